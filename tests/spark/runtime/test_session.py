"""The session of our programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from streamlog.spark.failures import OptionError
from streamlog.spark.runtime.session import make_session, pythons

pytestmark = [pytest.mark.spark, pytest.mark.process]

FAMILIES = """
from streamlog.spark.runtime.session import make_session

def families(_):
    import os, socket
    found = set()
    for fd in range(100):
        try:
            with socket.socket(fileno=os.dup(fd)) as one:
                found.add(one.family.name)
        except OSError:  # none of ours, or no socket
            pass
    return sorted(found)

session = make_session("sockets", {"spark.master": "local[1]"})
print("python:", session.sparkContext.pythonExec)
print("families:", session.sparkContext.parallelize([0], 1).map(families).collect()[0])
session.stop()
"""


def test_spark_starts_its_python_by_our_program_and_speaks_to_it_by_local_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    programs = [Path(sys.executable).with_name(f"streamlog-spark-{name}") for name in ("native", "python")]
    ran = subprocess.run([sys.executable, "-c", FAMILIES], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert f"python: {next(one for one in programs if one.exists())}\n" in ran.stdout, ran.stdout + ran.stderr
    assert "families: ['AF_UNIX']" in ran.stdout, ran.stdout + ran.stderr


QUIET = """
import sys
from streamlog.spark.runtime.session import make_session

session = make_session("quiet", {"spark.master": "local[1]", **dict(pair.split("=") for pair in sys.argv[1:])})
try:
    session.sql("select assert_true(false)").collect()
except Exception as error:
    print("failed:", type(error).__name__)
session.stop()
"""


@pytest.mark.parametrize("settings", [(), ("spark.log.level=ERROR",)], ids=["quiet", "asked"])
def test_spark_says_nothing_unless_it_is_asked(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """Neither about itself nor about failures: our programs report them."""
    command = [sys.executable, "-c", QUIET, *settings]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert ran.stdout == "failed: SparkRuntimeException\n", ran.stdout + ran.stderr
    said = [line for line in ran.stderr.splitlines() if not line.startswith("WARNING: ")]  # those are Java's own
    assert bool(said) == bool(settings), ran.stderr


def test_a_master_that_spark_does_not_know_is_refused_before_java_starts() -> None:
    with pytest.raises(OptionError, match=r"^option spark\.master: .* not nonsense$"):
        make_session("test", {"spark.master": "nonsense"})


@pytest.mark.parametrize("apart", [False, True])
def test_the_program_in_c_is_taken_where_it_is_beside_the_one_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """It looks beside itself, so not where both are links to folders of their own."""
    programs, stored = tmp_path / "programs", [tmp_path / "one", tmp_path / ("other" if apart else "one")]
    programs.mkdir()
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    for folder, name in zip(stored, ("python", "native"), strict=True):
        folder.mkdir(exist_ok=True)
        made = folder / f"streamlog-spark-{name}"
        made.write_text(f"#!{sys.executable}\n")
        made.chmod(0o755)
        (programs / made.name).symlink_to(made)
    names = (
        ["streamlog-spark-python", "python"]
        if apart
        else ["streamlog-spark-native", "streamlog-spark-python", "python"]
    )
    assert [Path(one).name for one in pythons("local[2]")] == names
    assert pythons("yarn") == [sys.executable]
