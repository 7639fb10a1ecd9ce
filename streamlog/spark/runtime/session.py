"""A Spark session for the pipelines: finds Java, uses this Python on executors, and reduces logging.

Under spark-submit all this is configured already, and not changed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamlog.spark.failures import OptionError, StreamlogSparkError
from streamlog.spark.launcher.start import QUIET, QUIET_DAEMON
from streamlog.spark.runtime.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAUNCHER: Final = "streamlog-spark-python"
_NATIVE: Final = "streamlog-spark-native"
_DAEMON_MODULE: Final = "spark.python.daemon.module"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_MASTERS: Final = ("local", "spark://", "yarn", "k8s://")  # for others, Spark fails with a Java stack trace
_DEFAULTS: Final = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # For the shuffles of small streams; Spark's 200 are for tables. A checkpoint keeps its first value.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    # Over TCP, Spark sends a task's command and its input in two small writes, and the second waits 40 ms for the
    # acknowledgement of the first (Nagle's algorithm meets delayed ACKs): for each task in Python.
    "spark.python.unix.domain.socket.enabled": "true",
}
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Options of the Java process that pyspark starts. The user's own follow ours, and win."""
_QUIET: Final = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"


def check_installed() -> None:
    """StreamlogSparkError."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise StreamlogSparkError(f"{' and '.join(missing)} not installed: pip install 'streamlog[spark]'")


def make_session(name: str, conf: Mapping[str, str]) -> SparkSession:
    """`conf`: spark.*, overriding the defaults. OptionError, StreamlogSparkError."""
    check_installed()
    submitted = _SUBMITTED in os.environ
    settings = {**({} if submitted else _DEFAULTS), **conf}
    if not submitted:
        master = settings["spark.master"]
        if not master.startswith(_MASTERS):
            raise OptionError("spark.master", f"must be local[N], spark://host:port, yarn or k8s://..., not {master}")
        ensure_java(os.environ)
        # For a data source that is not registered explicitly, Spark starts also the executors' Python with
        # PYSPARK_DRIVER_PYTHON, if it is set; so it is not set here.
        ours = pythons(master)
        is_ours = os.environ.setdefault("PYSPARK_PYTHON", ours[0]) in ours
        if is_ours and _is_local(master) and _DAEMON_MODULE not in settings:
            settings[_DAEMON_MODULE] = QUIET_DAEMON
            os.environ[QUIET] = "1"
        else:
            os.environ.pop(QUIET, None)
        given = os.environ.get(_JAVA_OPTIONS, "")
        if _QUIET not in given:
            os.environ[_JAVA_OPTIONS] = f"{_QUIET} {given}"
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise StreamlogSparkError(f"Spark cannot be started: {error}"[:500]) from None


def pythons(master: str) -> list[str]:
    """For PYSPARK_PYTHON: this Python, and before it, where all is on this machine, the programs beside it that start
    Spark's processes faster, the fastest first.
    """
    launcher = Path(sys.executable).with_name(_LAUNCHER)
    if not _is_local(master) or not launcher.exists() or sys.executable not in launcher.read_text(errors="replace"):
        return [sys.executable]
    native = launcher.with_name(_NATIVE)
    # Of the optional kernel. It becomes the launcher beside it, and beside itself where these are links to elsewhere.
    is_usable = os.access(native, os.X_OK) and native.resolve().parent == launcher.resolve().parent
    return [*([str(native)] if is_usable else []), str(launcher), sys.executable]


def _is_local(master: str) -> bool:
    return master.partition("[")[0] == "local"
