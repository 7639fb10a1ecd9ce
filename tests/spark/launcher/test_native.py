"""What streamlog-spark-native does otherwise than the launcher in Python; the rest: test_launcher, test_java."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamlog.spark.launcher.address import PROTOCOL, names_of_java
from streamlog.spark.launcher.main import VERSION
from tests.records.checks.kernel_build import SOURCE, build_programs
from tests.spark.launcher.launched import MANY, NATIVE, WITHIN_S, Launch

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="forks only on Linux")]


def test_a_server_that_does_not_answer_is_given_up(
    launch: Launch, program: Path, tmp_path_factory: pytest.TempPathFactory, run_directory: Path
) -> None:
    """By streamlog-spark-native, which asks all; the launcher in Python asks only its own."""
    directory = run_directory / f"streamlog-spark-{os.getuid()}"
    directory.mkdir(mode=0o700)
    impatient = program
    if program.name == NATIVE:
        folder = tmp_path_factory.mktemp("impatient")
        build_programs(folder, "-DANSWERS_MS=100")
        impatient = Path(shutil.copy(folder / NATIVE, program.with_name("impatient")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(f"{directory}/{names_of_java(os.getpid())}_")
        silent.listen(MANY)
        silent.setblocking(False)
        assert not launch(by=impatient).forked
        if program.name == NATIVE:
            silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_of_the_program_in_c_python_knows_the_numbers() -> None:
    source = (SOURCE / "streamlog_spark_native.c").read_text()
    assert f'#define PROTOCOL "{PROTOCOL}"' in source
    assert f'#define VERSION "{VERSION[1]}"' in source


@pytest.mark.parametrize(
    ("first", "variables", "code"),
    [
        (f"#!{sys.executable}", {}, 0),
        (f"#!/bin/sh\n'''exec' {sys.executable} \"$0\" \"$@\"\n' '''", {}, 5),
        (f"#!{sys.executable}", {"PYTHONHOME": sys.base_prefix}, 5),
    ],
    ids=["by its path", "by a shell", "with a home"],
)
def test_a_version_is_asked_of_a_bare_python(
    native: Path, tmp_path: Path, first: str, variables: dict[str, str], code: int
) -> None:
    """Else the launcher would answer, which fails here."""
    program = Path(shutil.copy(native, tmp_path))
    launcher = program.with_name("streamlog-spark-python")
    launcher.write_text(f"{first}\nimport sys\nsys.exit(5)\n")
    launcher.chmod(0o755)
    ran = subprocess.run([program, *VERSION], env={**os.environ, **variables}, capture_output=True, timeout=WITHIN_S)
    assert ran.returncode == code
    assert ran.stdout.decode() == ("" if code else f"{sys.version_info[0]}.{sys.version_info[1]}\n")


def test_without_a_python_beside_it_the_program_says_so(native: Path) -> None:
    ran = subprocess.run([native, "-c", "1"], capture_output=True, text=True, timeout=WITHIN_S)
    assert ran.returncode == 127
    assert f"{native.with_name('streamlog-spark-python')}: No such file or directory; install streamlog" in ran.stderr
