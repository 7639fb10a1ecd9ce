"""streamlog-spark-python and streamlog-spark-native: what is forked, what is not, and what becomes of it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from streamlog.spark.launcher.address import PROTOCOL
from tests.spark.launcher.launched import LAUNCHER, MANY, WITHIN_S, Launch, Launched, Start, has_ended, program_of
from tests.spark.records import until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="forks only on Linux")]


def test_the_first_leaves_a_server_which_forks_the_others(launch: Launch, tmp_path: Path, program: Path) -> None:
    first = launch(SPARK_LOCAL_DIRS="/first")
    second = launch("-m", "pyspark.daemon", "pyspark.worker", SPARK_LOCAL_DIRS="/second", OMP_NUM_THREADS="1")
    third = launch(SPARK_LOCAL_DIRS="/third")
    assert [one.forked for one in (first, second, third)] == [False, True, True]
    assert second.facts["parent"] == third.facts["parent"]
    assert [one.facts["own"] for one in (first, second, third)] == ["/first", "/second", "/third"]
    assert [one.facts["threads"] for one in (first, second, third)] == [None, "1", None]
    assert second.facts["arguments"] == ["pyspark.worker"]
    for one in (first, second, third):
        assert one.facts["first"] == str(tmp_path)
        assert one.facts["open"] == [0, 1, 2], "nothing of the server's is left open in what it forks"
        assert not one.facts["leaked"]
    assert {one.program for one in (second, third)} == {program_of(program)}
    assert third.obey("exit 3") == 3
    assert second.obey("kill 9") == -9
    assert first.obey("exit 0") == 0


@pytest.mark.parametrize("variables", [{"OTHER": "1"}, {"OMP_NUM_THREADS": "4"}], ids=["environment", "threads"])
def test_what_would_differ_from_the_server_is_not_forked(launch: Launch, variables: dict[str, str]) -> None:
    launch()
    assert not launch(**variables).forked
    assert launch().forked


def test_in_another_directory_or_by_another_program_it_is_not_forked(
    launch: Launch, tmp_path: Path, program: Path
) -> None:
    others = tmp_path / "others"
    shutil.copytree(program.parent, others)
    launch()
    assert not launch(directory=others).forked
    assert not launch(by=others / program.name).forked
    assert launch(by=others / program.name).forked, "by a server of its own"
    assert launch().forked


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": ""}], ids=["none", "C", "empty"])
def test_what_python_changes_in_its_environment_is_changed_in_forks(
    launch: Launch, program: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    """The locale is Python's, the other one sitecustomize's."""
    monkeypatch.delenv("LC_CTYPE", raising=False)
    found = [launch(LC_ALL="", LANG="C", CHANGES="1", SPARK_LOCAL_DIRS=place, **given) for place in ("/a", "/b")]
    assert [one.forked for one in found] == [False, True]
    assert found[1].program == program_of(program)
    assert [(one.facts["locale"], one.facts["changes"]) for one in found] == [("C.UTF-8", "1, changed")] * 2


def test_what_python_would_have_made_otherwise_is_not_forked(launch: Launch, program: Path) -> None:
    """Of a variable without which sitecustomize sets another one too; of one that it sets for each process."""
    assert not launch().forked
    assert not launch(PAIR="1").forked
    own = [launch(OWN="1") for _ in range(2)]
    assert [one.forked for one in own] == [False, True]
    assert own[1].program == Path(sys.executable).resolve()


def test_what_spark_varies_is_forked(launch: Launch, pyspark: str) -> None:
    """It names entries of the path twice when it looks data sources up, and each session has an id."""
    launch(PYTHONPATH=f"{pyspark}{os.pathsep}{pyspark}", PYSPARK_SPARK_SESSION_UUID="one")
    assert launch(PYSPARK_SPARK_SESSION_UUID="two").forked


def test_servers_are_few(launch: Launch, run_directory: Path) -> None:
    """Where a variable differs each time."""
    assert not any(launch(OTHER=str(number)).forked for number in range(6))
    [directory] = run_directory.iterdir()
    assert len(list(directory.iterdir())) == 4


def test_what_an_earlier_java_has_left_is_removed(launch: Launch, run_directory: Path) -> None:
    """Of another process with the number that Java has now, and of one that is gone."""
    directory = run_directory / f"streamlog-spark-{os.getuid()}"
    directory.mkdir(mode=0o700)
    namespace = os.stat("/proc/self/ns/pid").st_ino
    for number in range(4):
        (directory / f"{PROTOCOL}-{namespace}-{os.getpid()}-1-{number}").touch()
    (directory / f"{PROTOCOL}-{namespace}-{1 << 23}-1-0").touch()
    (directory / f"{PROTOCOL}-0-{os.getpid()}-1-0").touch()  # of another namespace: it may be in use
    (directory / f"{namespace}-{1 << 23}-1-0").touch()  # of an earlier release
    (directory / f"{namespace}-{os.getpid()}-1-0").touch()  # likewise, it may be in use
    (directory / "file").touch()
    assert [launch().forked for _ in range(2)] == [False, True]
    assert len(list(directory.iterdir())) == 4


def test_where_all_processes_have_threads_there_is_no_server(launch: Launch) -> None:
    """A fork would be without them."""
    assert not any(launch(WATCHED="1").forked for _ in range(3))


def _after_preload(launch: Launch, directory: Path, **variables: str) -> Launched:
    """One that is started once the server has imported `pyspark.worker`."""
    for _ in range(MANY):
        if (directory / "preloaded").exists():
            break
        launch(**variables)
    return launch(**variables)


def test_a_program_that_the_server_has_started_may_end(launch: Launch, tmp_path: Path) -> None:
    forked = _after_preload(launch, tmp_path, STARTS="1")
    assert forked.forked
    child = int((tmp_path / "child").read_text())
    os.kill(child, signal.SIGTERM)
    assert has_ended(child)
    assert launch(STARTS="1").facts["parent"] == forked.facts["parent"]
    assert forked.obey("exit 3") == 3


def test_a_server_that_has_threads_is_tried_once(launch: Launch, tmp_path: Path) -> None:
    """From when it has: a fork would be without them."""
    early = _until_not_forked(launch, THREADED="1")
    assert not any(launch(THREADED="1").forked for _ in range(2))
    assert (tmp_path / "preloaded").read_text() == "once "
    assert [one.obey("exit 3") for one in early] == [3] * len(early), "those that it had forked before go on"


def _until_not_forked(launch: Launch, **variables: str) -> list[Launched]:
    """The first, which leaves the server, and those that this forks while it can."""
    found = [launch(**variables)]
    for _ in range(MANY):
        found.append(launch(**variables))
        if not found[-1].forked:
            break
    return found


def test_what_cannot_be_imported_is_left_to_the_processes(launch: Launch, tmp_path: Path) -> None:
    assert _after_preload(launch, tmp_path, FAILS="1").forked


def test_an_exit_code_is_passed_on_however_long_the_next_import_takes(
    launch: Launch, start: Start, tmp_path: Path, run_directory: Path
) -> None:
    """The server forks between two imports, and learns of the end after the second one."""
    gates = [tmp_path / "first-gate", tmp_path / "second-gate"]
    for gate in gates:
        os.mkfifo(gate)
    launch(WAITS="1")
    asking = start(WAITS="1")
    until(lambda: _connections(run_directory) == 1, "the second process asks the server")
    until(lambda: _opened(gates[0]), "the server is at its first import that waits")
    forked = Launched(asking)
    assert forked.forked
    assert forked.process.stdin is not None
    with os.fdopen(os.pidfd_open(forked.facts["process"])) as ended:
        forked.process.stdin.write("exit 3\n")
        forked.process.stdin.flush()
        assert select.select([ended], [], [], WITHIN_S)[0]
    until(lambda: _opened(gates[1]), "the server is at the second one")
    assert forked.process.wait(WITHIN_S) == 3


def _opened(gate: Path) -> bool:
    """For one that reads it."""
    try:
        os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # it is not opened by the server
        return False
    return True


def _connections(run_directory: Path) -> int:
    """To servers whose sockets are there."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return sum(str(run_directory) in line for line in lines) - 1  # the one that listens


def test_after_an_import_that_hangs_all_is_python(launch: Launch, pyspark: str) -> None:
    """A file that cannot be read is not a missing one."""
    source = Path(pyspark.partition(os.pathsep)[0]) / "pyspark/sql/worker/create_data_source.py"
    compiled = Path(cache_from_source(str(source)))
    compiled.parent.mkdir()
    os.mkfifo(compiled)
    early = _until_not_forked(launch, PRELOAD_S="1")
    assert not any(launch(PRELOAD_S="1").forked for _ in range(2))
    assert [one.obey("exit 3") for one in early] == [3] * len(early)


def test_without_pidfd_all_is_python(launch: Launch) -> None:
    assert not any(launch(WITHOUT_PIDFD="1").forked for _ in range(2))


def test_a_directory_that_others_may_write_to_is_not_used(launch: Launch, run_directory: Path) -> None:
    directory = run_directory / f"streamlog-spark-{os.getuid()}"
    directory.mkdir()
    directory.chmod(0o2770)
    with tempfile.TemporaryDirectory(prefix="t") as other:
        assert [launch(TMPDIR=other).forked for _ in range(2)] == [False, True]
        assert [list(directory.iterdir()), len(os.listdir(f"{other}/{directory.name}"))] == [[], 1]
        directory.chmod(0o2700)
        assert [launch(OTHER="1").forked for _ in range(2)] == [False, True]
        assert len(list(directory.iterdir())) == 1


@pytest.mark.parametrize("name", ["missing", "long" * 40])
def test_another_directory_is_used_where_one_cannot_be(launch: Launch, run_directory: Path, name: str) -> None:
    unusable = run_directory / name
    if len(name) > 20:
        unusable.mkdir()
    variables = {"XDG_RUNTIME_DIR": str(unusable), "TMPDIR": str(run_directory)}
    assert [launch(**variables).forked for _ in range(2)] == [False, True]
    assert f"streamlog-spark-{os.getuid()}" in os.listdir(run_directory)


def test_forks_draw_other_random_numbers(launch: Launch, tmp_path: Path) -> None:
    assert _after_preload(launch, tmp_path, DRAWS="1").forked
    assert len({launch(DRAWS="1").facts["drawn"] for _ in range(3)}) == 3


def test_a_process_that_the_executors_java_starts_leaves_no_server(launch: Launch) -> None:
    launch("-m", "pyspark.daemon", "pyspark.worker")
    assert not launch("-m", "pyspark.daemon").forked
    assert not launch().forked


def test_signals_are_passed_on(launch: Launch, program: Path) -> None:
    launch()
    forked = launch()
    assert forked.program == program_of(program)
    forked.process.terminate()
    assert forked.process.wait(WITHIN_S) == 7
    assert forked.process.stdout is not None
    assert forked.process.stdout.read() == f"signal {signal.SIGTERM:d}\n"


def test_a_launcher_that_is_killed_takes_its_process_along(launch: Launch, program: Path) -> None:
    launch()
    forked = launch()
    assert forked.program == program_of(program)
    ended = os.pidfd_open(forked.facts["process"])
    forked.process.kill()
    assert forked.process.stdout is not None
    assert forked.process.stdout.readline() == f"signal {signal.SIGTERM:d}\n"
    assert select.select([ended], [], [], WITHIN_S)[0]


def test_a_server_that_is_killed_leaves_its_processes_to_their_launchers(launch: Launch) -> None:
    launch()
    forked = launch()
    assert forked.forked
    os.kill(forked.facts["parent"], signal.SIGKILL)
    later = launch()
    assert not later.forked, "a server that was killed is not replaced"
    later.obey("exit 0")
    assert forked.process.poll() is None
    assert forked.obey("exit 3") == 1, "its exit code is lost"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-c", "import sys; print(sys.argv)", "one"), "['-c', 'one']\n"),
        (("-c", "import sys; print('%d.%d' % sys.version_info[:2])"), "3."),
        (("-m", "calendar", "2024", "1"), "    January 2024"),
        (("-m",), ""),
    ],
    ids=["code", "version", "module", "mistake"],
)
@pytest.mark.parametrize("by_a_shell", [False, True])
def test_everything_else_is_python(by_a_shell: bool, program: Path, arguments: tuple[str, ...], said: str) -> None:
    if by_a_shell:  # as pip writes it where Python's path is too long for a first line
        begin = f"#!/bin/sh\n'''exec' {sys.executable} \"$0\" \"$@\"\n' '''\n"
        program.with_name("streamlog-spark-python").write_text(begin + LAUNCHER)
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=WITHIN_S)
    same = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=WITHIN_S)
    assert (ran.returncode, ran.stdout, ran.stderr) == (same.returncode, same.stdout, same.stderr)
    assert ran.stdout.startswith(said)
