"""Processes started by each of the two launchers, with a fork server of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.records.checks.kernel_build import build_programs
from tests.spark.launcher.launched import DAEMON, LAUNCHER, NATIVE, PROCESS, WITHIN_S, Launch, Launched, Start


@pytest.fixture(scope="session")
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
