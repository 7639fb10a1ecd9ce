"""Spark from topic to topic, by streamlog's source and sink and by Spark's own for Kafka, in a plain session each time.

streamlog's processes are started as docs/spark.md says, by streamlog-spark-native, or by streamlog-spark-python where
the kernel is not installed; in another run by Python itself.

A run is a program of its own (`pipeline_query`), since what is measured is its start: from `load()` to the end of the
first micro-batch; then each later micro-batch. streamlog's sink writes each exactly once, Kafka's at least once.

Kafka's are a part of Spark's Java process. For streamlog's, as for all in Python, Spark starts Python processes; how
long that alone takes is shown by a source and a sink that do nothing.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from bench.peers.pipeline_query import Query
from bench.peers.systems import HERE

ROWS: Final = 3_000
"""Of a micro-batch."""
MICRO_BATCHES: Final = 11
PYTHON: Final = Path(sys.executable)
_NATIVE: Final = PYTHON.with_name("streamlog-spark-native")
LAUNCHER: Final = _NATIVE if _NATIVE.exists() else PYTHON.with_name("streamlog-spark-python")
_RUN_S: Final = 600.0


def why_not() -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "no pyspark: make test-spark installs it, or pip install 'streamlog[spark]'"
    return None


def jars() -> str:
    """Of Spark's own source and sink for Kafka: from Maven, separated by commas."""
    pom, found = HERE / "pom.xml", HERE / "target" / "jars.txt"
    if not found.exists() or found.stat().st_mtime < pom.stat().st_mtime:
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "validate"], check=True, timeout=_RUN_S)
    return found.read_text().strip()


def runs_of(
    query: Callable[[str], Query], python: Path = PYTHON
) -> Callable[[], Coroutine[Any, Any, tuple[float, float]]]:
    """Seconds to the end of the first micro-batch, and for a later one (the median). `query`: by its checkpoint.
    `python`: what Spark starts.
    """

    async def run() -> tuple[float, float]:
        with tempfile.TemporaryDirectory(prefix="pipeline-") as state:
            return await asyncio.to_thread(_run, query(state), python)

    return run


def _run(query: Query, python: Path) -> tuple[float, float]:
    """With the environment of an activated venv: Spark looks for data sources with the python3 of the PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "bench.peers.pipeline_query", query.as_json()],
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        env={**os.environ, "PATH": path, "PYSPARK_PYTHON": str(python)},
    )
    if done.returncode != 0:
        raise SystemExit(f"the Spark query of {query.system} failed: {done.stderr.strip()[-2000:]}")
    first_s, later_s = json.loads(done.stdout.splitlines()[-1])
    return first_s, later_s
