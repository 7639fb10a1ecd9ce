"""Runs a pipeline: checks, starts, watches and stops it.

    settings --check: cluster, topics--> session --start--> queries run --SIGINT, SIGTERM--> stopped, exit 0
                                                             |-- all ended (available-now)--> done, exit 0
                                                             '-- one failed --> the others are stopped, error

A stop interrupts the current micro-batch, which is restarted with the same rows at the next start. Errors after a stop
are not reported: Spark may have been stopped by the same signal.
"""

from __future__ import annotations

import importlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from streamlog.client import Admin
from streamlog.config.settings.client_settings import ADMIN
from streamlog.errors import StreamlogError
from streamlog.spark.failures import OptionError, StreamlogSparkError, sentence
from streamlog.spark.options import settings_for
from streamlog.spark.pipelines.explain import explanation
from streamlog.spark.pipelines.settings import PipelineSettings
from streamlog.spark.runtime.session import check_installed, make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

Report = Callable[[str], None]

_LOOK_S: Final = 0.2
# Spark's timeout for the start of a Python process is ten seconds, however busy the machine is.
_SLOW: Final = "Python worker failed to connect back"
_STARTS_MAX: Final = 4
_UNREACHABLE_MS: Final = "5000"
_GONE: Final = (
    "Spark's Java process has ended: check its output, and whether it had enough memory (spark.driver.memory)"
)


class Pipeline(Struct, frozen=True):
    name: str
    module: str
    doc: str


PIPELINES: Final = {
    one.name: one
    for one in (
        Pipeline(
            "log-counts", "log_counts", "Lines of logs, counted by window, level and component, to a topic or Parquet."
        ),
        Pipeline("archive", "archive", "Topics to Parquet, by topic and day, every record once."),
        Pipeline("backfill", "backfill", "Parquet into a topic, every file once."),
    )
}


def load(name: str) -> Any:
    """The pipeline's module. StreamlogSparkError."""
    if name not in PIPELINES:
        raise StreamlogSparkError(f"there is no pipeline {name}; the pipelines are {', '.join(PIPELINES)}")
    check_installed()
    return importlib.import_module(f"streamlog.spark.pipelines.{PIPELINES[name].module}")


def run(name: str, given: Mapping[str, str], report: Report) -> None:
    """Runs it until it ends or a signal stops it. `report` gets lines of progress. StreamlogSparkError."""
    module = load(name)
    settings = PipelineSettings(module.SETTINGS, given)
    _check_cluster(settings, module)
    with _stop_signals() as stop:
        try:
            with _session(f"streamlog {name}", settings.spark) as session:
                report(f"{name}: running; Ctrl-C stops it, a restart resumes from its checkpoint")
                run_queries(lambda: module.start(session, settings), stop, report)
        except StreamlogSparkError:
            # A service manager signals all processes of a service, so Spark's Java ends too, and queries fail.
            if not stop.is_set():
                raise
        report(f"{name}: {'stopped' if stop.is_set() else 'done'}")


@contextmanager
def _session(name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """StreamlogSparkError."""
    from pyspark.logger import PySparkLogger

    logging.getLogger().addFilter(_is_not_of_py4j)
    # They log exceptions that are raised anyway, with Java's whole stack trace.
    loud = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("DataFrame", "SQL")]
    for logger in loud:
        logger.disabled = True
    try:
        session = _explained(lambda: make_session(name, conf))
        try:
            yield session
        finally:
            try:
                _explained(session.stop)
            except StreamlogSparkError:
                pass  # it has ended already, which was reported
    finally:
        logging.getLogger().removeFilter(_is_not_of_py4j)
        for logger in loud:
            logger.disabled = False


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j logs that Java has ended, with a traceback and on the root logger, before it raises the same error."""
    return record.module != "java_gateway"


def run_queries(start: Callable[[], list[StreamingQuery]], stop: threading.Event, report: Report) -> None:
    """Restarts the queries where Spark's timeout for the start of a process expired: the machine is busy."""
    for left in reversed(range(_STARTS_MAX)):
        try:
            _explained(lambda: _watch(start(), stop, report))
            return
        except StreamlogSparkError as error:
            if not left or _SLOW not in str(error):
                raise
            report(f"{error}: the machine is busy; restarting")


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(queries: list[StreamingQuery], stop: threading.Event, report: Report) -> None:
    reported: dict[str, int] = {}
    try:
        while not stop.is_set():
            for query in queries:
                _report_progress(query, reported, report)
                if not query.isActive and (error := query.exception()) is not None:
                    raise StreamlogSparkError(f"{query.name}: {explanation(str(error), _root(error))}")
            if not any(query.isActive for query in queries):
                return
            stop.wait(_LOOK_S)
    finally:
        for query in queries:
            query.stop()
            _report_progress(query, reported, report)


def _report_progress(query: StreamingQuery, reported: dict[str, int], report: Report) -> None:
    """Reports the micro-batches since the last call that had rows."""
    for one in query.recentProgress:
        # An idle query reports progress without rows, with the number of the next micro-batch.
        if one["numInputRows"] and one["batchId"] > reported.get(query.name, -1):
            reported[query.name] = one["batchId"]
            report(progress_line(query.name, one))


def progress_line(name: str, progress: Any) -> str:
    rows, took_ms = progress["numInputRows"], progress["durationMs"].get("triggerExecution", 0)
    late = sum(one.get("numRowsDroppedByWatermark", 0) for one in progress["stateOperators"])
    text = f"{name}: batch {progress['batchId']}, {rows:,} rows in {took_ms:,} ms"
    behind = sum(behind_of(one) for one in progress["sources"])
    return text + (f", {behind:,} behind" if behind else "") + (f", {late:,} too late" if late else "")


def behind_of(source: Any) -> int:
    """Offsets between the micro-batch's end and the latest offsets."""
    import json

    try:
        latest, end = (json.loads(source[name]) if isinstance(source[name], str) else source[name] for name in _ENDS)
        return sum(
            max(0, offset - (end.get(topic) or {}).get(partition, 0))
            for topic, offsets in latest.items()
            for partition, offset in offsets.items()
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return 0  # of another kind of source


_ENDS: Final = ("latestOffset", "endOffset")


def _explained(work: Callable[[], Any]) -> Any:
    """Raises Spark's errors as StreamlogSparkError, including those without a pyspark class."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return work()
    except (PySparkException, Py4JJavaError) as error:
        raise StreamlogSparkError(explanation(str(error), _root(error))) from None
    except (Py4JError, ConnectionError):
        raise StreamlogSparkError(_GONE) from None


def _root(error: BaseException) -> str:
    """The text of the root cause, as far as pyspark keeps it; "" where there is none."""
    cause = error
    while (deeper := getattr(cause, "_cause", None)) is not None:
        cause = deeper
    return "" if cause is error else str(cause)


def _check_cluster(settings: PipelineSettings, module: Any) -> None:
    """Fails early, since Spark takes seconds to start. StreamlogSparkError."""
    client = {name.removeprefix("streamlog."): text for name, text in settings.clients.items()}
    quick = {"default.api.timeout.ms": _UNREACHABLE_MS, "request.timeout.ms": _UNREACHABLE_MS}
    try:
        with Admin({**settings_for(ADMIN, client), **quick}) as admin:
            there = {one.name for one in admin.list_topics(include_internal=True)}
    except StreamlogError as error:
        raise StreamlogSparkError(sentence(error)) from None
    for name in (module.READS, module.WRITES):
        for topic in settings.list(name) if name else ():
            if topic not in there:
                raise OptionError(
                    name, f"there is no topic {topic}; create it with 'streamlogctl topic create {topic}'"
                )
