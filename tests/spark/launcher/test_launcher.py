"""streamlog-spark-python and streamlog-spark-native, with a pyspark whose processes print what they are, and obey."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

import pytest

from streamlog.spark.launcher.address import PROTOCOL, names_of_java
from streamlog.spark.launcher.main import VERSION
from tests.records.checks.kernel_build import SOURCE, build_programs
from tests.spark.records import until

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="forks only on Linux")]

WITHIN_S: Final = 60
"""A bound against hanging, not a measure."""
MANY: Final = 50
"""Processes until something has come to pass: a bound as well."""
NATIVE: Final = "streamlog-spark-native"
DAEMON: Final = ("-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources")
LAUNCHER: Final = f"""#!{sys.executable}
import os
from streamlog.spark.launcher import fork_client
from streamlog.spark.launcher.main import main

fork_client._ANSWER_S = {WITHIN_S}
fork_client.PRELOAD_S = int(os.environ.get("PRELOAD_S", {WITHIN_S}))
main()
"""
# Stands for Spark's daemon: what it is, in a line; then it obeys the lines of its stdin.
PROCESS: Final = """
import json, os, signal, sys

def on_signal(number, _):
    os.write(1, f"signal {number}\\n".encode())  # print may be under way
    os._exit(7)

signal.signal(signal.SIGTERM, signal.SIG_IGN if "SPARK_IGNORES" in os.environ else on_signal)
if "DRAWS" in os.environ:
    import numpy
    drawn = numpy.random.random()
else:
    drawn = None
facts = {
    "process": os.getpid(),
    "parent": os.getppid(),
    "arguments": sys.argv[1:],
    "own": os.environ.get("SPARK_LOCAL_DIRS"),
    "threads": os.environ.get("OMP_NUM_THREADS"),
    "locale": os.environ.get("LC_CTYPE"),
    "changes": os.environ.get("CHANGES"),
    "leaked": sorted({"JE_ARROW_MALLOC_CONF"} & set(os.environ)),
    "open": sorted(int(one) for one in os.listdir("/proc/self/fd"))[:-1],
    "first": sys.path[0],
    "drawn": drawn,
}
print(json.dumps(facts), flush=True)
if "PAUSES" in os.environ:
    signal.pause()
for line in sys.stdin:
    command, _, argument = line.strip().partition(" ")
    if command == "exit":
        sys.exit(int(argument))
    elif command == "kill":
        os.kill(os.getpid(), int(argument))
"""


class Launched:
    """A process that was started, and the facts that it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.facts: dict[str, Any] = json.loads(process.stdout.readline())

    @property
    def program(self) -> Path:
        """That the launcher is: streamlog-spark-native is Python where it does not have the process forked."""
        return Path(os.readlink(f"/proc/{self.process.pid}/exe"))

    @property
    def forked(self) -> bool:
        """By the server; else it is the launcher itself."""
        return bool(self.facts["process"] != self.process.pid)

    def obey(self, line: str) -> int:
        """Its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.wait(WITHIN_S)


Start = Callable[..., "subprocess.Popen[str]"]
Launch = Callable[..., Launched]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    build_programs(folder, f"-DANSWERS_MS={WITHIN_S * 1_000}")
    return folder / NATIVE


@pytest.fixture(params=["python", "native"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """What Spark starts."""
    python = tmp_path / "bin" / "streamlog-spark-python"
    python.parent.mkdir()
    python.write_text(LAUNCHER)
    python.chmod(0o755)
    if request.param == "python":
        return python
    return Path(shutil.copy(request.getfixturevalue("native"), python.parent))


@pytest.fixture
def pyspark(tmp_path: Path) -> str:
    """The path in which it is."""
    package = tmp_path / "path" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "daemon.py").write_text(f"if __name__ == '__main__':\n    exec({PROCESS!r})\n")
    (package / "worker.py").write_text(
        "import os, threading\nopen('preloaded', 'a').write('once ')\n"
        "print('preloaded')\n"
        "if 'FAILS' in os.environ:\n    raise RuntimeError\n"
        "if 'WAITS' in os.environ:\n    open('second-gate').read()\n"
        "if 'THREADED' in os.environ:\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "if 'DRAWS' in os.environ:\n    import numpy.random\n"
        "if 'STARTS' in os.environ:\n"
        "    import subprocess\n    print(subprocess.Popen(['sleep', '600']).pid, file=open('child', 'w'))\n"
    )
    early = package / "sql" / "worker"
    early.mkdir(parents=True)
    (early / "create_data_source.py").write_text(
        "import os\nif 'WAITS' in os.environ:\n    open('first-gate').read()\n"
    )
    (package.parent / "sitecustomize.py").write_text(
        "import os, threading\n"
        "if 'CHANGES' in os.environ:\n    os.environ['CHANGES'] = '1, changed'\n"
        "if 'PAIR' not in os.environ:\n    os.environ['PAIR'] = os.environ['OTHER_OF_PAIR'] = '1'\n"
        "if 'OWN' in os.environ:\n    os.environ['SPARK_OWN'] = str(os.getpid())\n"
        "if 'WITHOUT_PIDFD' in os.environ:\n    del os.pidfd_open\n"
        "if 'WATCHED' in os.environ:\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    return f"{package.parent}{os.pathsep}{Path(__file__).parents[3]}"


@pytest.fixture
def run_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s") as path:  # a socket's path is short
        yield Path(path)


@pytest.fixture
def start(program: Path, tmp_path: Path, pyspark: str, run_directory: Path) -> Iterator[Start]:
    """Starts processes as Spark does. Each test has a fork server of its own, by a directory of its own."""
    # Java's, in which streamlog has not been imported.
    given = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    # Spark sets PYTHONUNBUFFERED; without it, what the server has buffered would show.
    test = {"PYTHONPATH": pyspark, "PYTHONUNBUFFERED": "", "XDG_RUNTIME_DIR": str(run_directory)}
    started: list[subprocess.Popen[str]] = []

    def begun(
        *arguments: str, by: Path = program, directory: Path = tmp_path, **variables: str
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [by, *(arguments or DAEMON)],
            cwd=directory,
            env={**given, **test, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begun
    for one in started:
        one.kill()
        one.communicate(timeout=WITHIN_S)


@pytest.fixture
def launch(start: Start) -> Launch:
    """As `start`, until they have said what they are."""
    return lambda *arguments, **variables: Launched(start(*arguments, **variables))


def program_of(launcher: Path) -> Path:
    """As the system names it."""
    return launcher.resolve() if launcher.name == NATIVE else Path(sys.executable).resolve()


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
    assert _has_ended(child)
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


def _has_ended(process: int) -> bool:
    try:
        ended = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    return bool(select.select([ended], [], [], WITHIN_S)[0])


def test_the_server_ends_with_java(java: Java) -> None:
    process, second = java("sys.stdin.read()")
    process.communicate(timeout=WITHIN_S)
    assert _has_ended(second["parent"])
    assert _has_ended(second["process"])


@pytest.mark.parametrize("variables", [{}, {"SPARK_IGNORES": "1"}], ids=["ends", "ignores"])
@pytest.mark.parametrize("whole", [True, False], ids=["with its launchers", "alone"])
def test_processes_that_go_on_end_when_java_is_killed(java: Java, whole: bool, variables: dict[str, str]) -> None:
    process, second = java("import signal; signal.pause()", PAUSES="1", **variables)
    if whole:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    assert _has_ended(second["process"])
    assert _has_ended(second["parent"])


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
