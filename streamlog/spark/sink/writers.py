"""The sink as Spark sees it: writers of streams and of batches.

A stream's writer is made anew for every micro-batch and every commit, in processes of Spark's choosing; what a task and
the driver must agree on (which sink, which run) comes from the task's local properties, and back with its message.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from streamlog.client import Admin
from streamlog.config.client_settings import ADMIN
from streamlog.errors import StreamlogError
from streamlog.spark.failures import StreamlogSparkError, sentence, telling, told
from streamlog.spark.options import Options, settings_for
from streamlog.spark.runtime.loop import loop_thread
from streamlog.spark.sink.commit import SinkDriver, abort_open, driver_of, forget, open_names
from streamlog.spark.sink.state import TaskTransaction, transactional_id
from streamlog.spark.sink.task import SinkRules, TaskName, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"
# A task's transactional id is used again after so many task attempts, so that coordinators do not remember one each.
_NAMES: Final = 65_536
_ONLY_BATCH: Final = 0  # of a batch query


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """What a task tells the driver."""

    sink: str
    run: str
    writer: TaskTransaction | None  # None: it had no rows
    rows: int


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: Options) -> None:
        self._rules = _rules(options)
        self._sink: str | None = options.get("sinkId")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        sink = self._sink or context.getLocalProperty(_QUERY_ID)
        run = context.getLocalProperty(_RUN_ID)
        if not sink or not run:
            raise StreamlogSparkError(
                "Spark does not tell its tasks which query they are of: pyspark 4.2 or newer does"
            )
        return _write(self._rules, sink, run.replace("/", "-"), context, iterator, two_phase=True)

    @told
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if written:
            with _driver(written[0], self._rules) as driver:
                driver.commit(batchId, _writers(written))

    @told
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if written:
            with _driver(written[0], self._rules) as driver:
                driver.abort(batchId, _writers(written))


class BatchSink(DataSourceArrowWriter):
    """With sinkId as a stream with a single micro-batch. Without: what tasks left open is aborted at the end of the
    job, or, if the driver dies, when its time is over (transaction.timeout.ms); if it dies while it commits, a part may
    stay.
    """

    def __init__(self, options: Options) -> None:
        self._rules = _rules(options)
        self._named = options.get("sinkId") is not None
        self._sink: str = options.get("sinkId") or f"batch-{uuid.uuid4()}"
        self._run = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._rules, self._sink, self._run, _context(), iterator, two_phase=self._named)

    @told
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if not self._named:
            self._end(written, commit=True)
        elif written:
            with _driver(written[0], self._rules) as driver:
                driver.commit(_ONLY_BATCH, _writers(written))

    @told
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if not self._named:
            self._end(written, commit=False)
        else:
            with _driver(TaskCommitMessage(self._sink, self._run, None, 0), self._rules) as driver:
                driver.abort(_ONLY_BATCH, _writers(written))

    def _end(self, written: Sequence[TaskCommitMessage], *, commit: bool) -> None:
        done = 0
        with Admin(settings_for(ADMIN, self._rules.client), thread=loop_thread()) as admin:
            for one in _writers(written):
                try:
                    admin.end_prepared_transaction(one.transactional_id, one.prepared, commit=commit)
                    done += 1
                except StreamlogError as error:
                    if commit:
                        raise StreamlogSparkError(
                            f"{done} of {len(_writers(written))} tasks' records were committed: {sentence(error)}"
                        ) from None
                    _log.warning("%s was not aborted, and will be when its time is over: %s", one, error)
            self._abort_leftovers(admin)

    def _abort_leftovers(self, admin: Admin) -> None:
        """Of attempts that were killed or overtaken: nobody else writes under this sink's name."""
        try:
            abort_open(admin, open_names(admin, self._sink))
        except StreamlogError as error:
            _log.warning("what killed tasks left open is aborted when its time is over: %s", error)


class _driver:
    """The sink's driver in this process; after an error it is made anew."""

    def __init__(self, written: TaskCommitMessage, rules: SinkRules) -> None:
        self._driver = driver_of(written.sink, written.run, rules.client)

    def __enter__(self) -> SinkDriver:
        return self._driver

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            forget(self._driver)


def _write(
    rules: SinkRules,
    sink: str,
    run: str,
    context: TaskContext,
    batches: Iterator[pa.RecordBatch],
    *,
    two_phase: bool,
) -> TaskCommitMessage:
    task = str(context.taskAttemptId() % _NAMES)
    with telling():
        name = TaskName(transactional_id=transactional_id(sink, run, task), two_phase=two_phase)
        writer, rows = write_rows(rules, name, batches)
    return TaskCommitMessage(sink, run, writer, rows)


def _rules(options: Options) -> SinkRules:
    return SinkRules(client=options.client, topic=options.get("topic"), timestamps=options.truth("includeTimestamp"))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise StreamlogSparkError("the sink writes in tasks of Spark alone")
    return context


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommitMessage]:
    """Without those of tasks that failed."""
    return [one for one in messages if isinstance(one, TaskCommitMessage)]


def _writers(written: Sequence[TaskCommitMessage]) -> list[TaskTransaction]:
    return [one.writer for one in written if one.writer is not None]
