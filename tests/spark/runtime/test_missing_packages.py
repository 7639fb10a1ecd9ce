"""A Python without streamlog, on the driver's side or on the executors' alone: one sentence, and exit code 1."""

from __future__ import annotations

import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.spark.drivers import Driver
from tests.spark.records import write

pytestmark = [pytest.mark.spark, pytest.mark.process]

ANYWHERE = "Error: Spark does not find data source streamlog: pip install 'streamlog[spark]' into the Python of"
ON_EXECUTORS = "Error: archive: Python on an executor has no package "


def bare_python(folder: Path) -> Path:
    """With nothing installed."""
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def python_by_place(folder: Path) -> Path:
    """This one; on executors one with nothing installed."""
    made = folder / "python"
    bare = bare_python(folder / "bare")
    made.write_text(f'#!/bin/sh\n[ -n "$ON_EXECUTOR" ] && exec {bare} "$@"\nexec {sys.executable} "$@"\n')
    made.chmod(0o755)
    return made


Make = Callable[[Path], Path]


@pytest.mark.parametrize(
    ("make", "master", "message"),
    [
        pytest.param(bare_python, "local[1]", ANYWHERE, id="driver"),
        pytest.param(python_by_place, "local-cluster[1,1,1024]", ON_EXECUTORS, id="executors"),
    ],
)
def test_a_python_without_the_package(
    cluster: InProcessCluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Make,
    master: str,
    message: str,
) -> None:
    write(cluster.bootstrap_servers, topic, [b"x"])
    monkeypatch.setenv("PYSPARK_PYTHON", str(make(tmp_path)))
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    confs = {"topics": topic, "path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "state")}
    confs |= {"trigger": "available-now", "spark__master": master, "spark__executorEnv__ON_EXECUTOR": "1"}
    with Driver(tmp_path / "driver", "archive", cluster.bootstrap_servers, **confs) as driver:
        driver.start()
        assert driver.wait() == 1, driver.said()[-3000:]
        [last] = [line for line in driver.said().splitlines() if line.startswith("Error: ")]
    assert last.startswith(message), driver.said()[-3000:]
    assert 'File "' not in driver.said() or master != "local[1]", "no traceback"
