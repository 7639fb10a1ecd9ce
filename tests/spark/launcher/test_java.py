"""How the server and its processes end when Java does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.spark.launcher.launched import DAEMON, WITHIN_S, has_ended

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="forks only on Linux")]

JAVA: Final = f"""
import subprocess, sys
for _ in range(2):
    started = subprocess.Popen([sys.argv[1], *{DAEMON!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print(started.stdout.readline().decode(), end="", flush=True)
"""


@pytest.fixture
def java(
    program: Path, tmp_path: Path, pyspark: str
) -> Iterator[Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]]:
    """Starts a program that starts two processes as Java does, and waits for nothing; the facts of the second one."""
    started: list[subprocess.Popen[str]] = []

    def run(then: str, **variables: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        process = subprocess.Popen(
            [sys.executable, "-c", JAVA + then, program],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": pyspark, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert second["parent"] not in (process.pid, first["parent"]), "it is forked"
        return process, second

    yield run
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)  # what it has started itself goes on
        one.communicate(timeout=WITHIN_S)


Java = Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]


def test_the_server_ends_with_java(java: Java) -> None:
    process, second = java("sys.stdin.read()")
    process.communicate(timeout=WITHIN_S)
    assert has_ended(second["parent"])
    assert has_ended(second["process"])


@pytest.mark.parametrize("variables", [{}, {"SPARK_IGNORES": "1"}], ids=["ends", "ignores"])
@pytest.mark.parametrize("whole", [True, False], ids=["with its launchers", "alone"])
def test_processes_that_go_on_end_when_java_is_killed(java: Java, whole: bool, variables: dict[str, str]) -> None:
    process, second = java("import signal; signal.pause()", PAUSES="1", **variables)
    if whole:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    assert has_ended(second["process"])
    assert has_ended(second["parent"])
