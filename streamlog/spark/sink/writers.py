"""The sink's interface to Spark: writers of streams and of batches.

Spark creates a stream's writer for each micro-batch and each commit, in any process; a task gets the sink and the run
from its local properties, and sends them to the driver with its message.
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
from streamlog.config.settings.client_settings import ADMIN
from streamlog.errors import StreamlogError
from streamlog.spark.failures import StreamlogSparkError, hiding_tracebacks, sentence, without_traceback
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
# A task's transactional id is reused after so many task attempts, to bound the state of coordinators.
_NAMES: Final = 65_536
_ONLY_BATCH: Final = 0  # the batch number of a batch query without sinkBatch


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """A task's message to the driver."""

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
            raise StreamlogSparkError("tasks cannot determine their query: pyspark 4.2 or newer is needed")
        return _write(self._rules, sink, run.replace("/", "-"), context, iterator, two_phase=True)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if written:
            with _KeptDriver(written[0], self._rules) as driver:
                driver.commit(batchId, _writers(written))

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        written = _written(messages)
        if written:
            with _KeptDriver(written[0], self._rules) as driver:
                driver.abort(batchId, _writers(written))


class BatchSink(DataSourceArrowWriter):
    """With sinkId: as a stream with a single micro-batch; with sinkBatch, as one of its micro-batches, each by a run of
    its own. Without: open transactions of tasks are aborted at the end of the job, or, if the driver fails, after
    transaction.timeout.ms; if it fails during the commit, a part may be committed.
    """

    def __init__(self, options: Options) -> None:
        self._rules = _rules(options)
        self._named = options.get("sinkId") is not None
        self._sink: str = options.get("sinkId") or f"batch-{uuid.uuid4()}"
        self._batch = options.number("sinkBatch") or _ONLY_BATCH
        self._run = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._rules, self._sink, self._run, _context(), iterator, two_phase=self._named)

    @without_traceback
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if not self._named:
            self._end(written, commit=True)
        elif written:
            with self._own_driver() as driver:
                driver.commit(self._batch, _writers(written))

    @without_traceback
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _written(messages)
        if not self._named:
            self._end(written, commit=False)
        else:
            with self._own_driver() as driver:
                driver.abort(self._batch, _writers(written))

    def _own_driver(self) -> SinkDriver:
        """Not kept for other commits: there are none of this run."""
        return SinkDriver(self._sink, self._run, self._rules.client)

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
                    _log.warning("%s was not aborted, and will be after its timeout: %s", one, error)
            self._abort_leftovers(admin)

    def _abort_leftovers(self, admin: Admin) -> None:
        """Of attempts that were killed or overtaken: no other query writes under this sink's name."""
        try:
            abort_open(admin, open_names(admin, self._sink))
        except StreamlogError as error:
            _log.warning("open transactions of killed tasks will be aborted after their timeout: %s", error)


class _KeptDriver:
    """The stream's driver in this process; recreated after an error."""

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
    with hiding_tracebacks():
        name = TaskName(transactional_id=transactional_id(sink, run, task), two_phase=two_phase)
        writer, rows = write_rows(rules, name, batches)
    return TaskCommitMessage(sink, run, writer, rows)


def _rules(options: Options) -> SinkRules:
    return SinkRules(client=options.client, topic=options.get("topic"), timestamps=options.truth("includeTimestamp"))


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise StreamlogSparkError("the sink can only write in a task of Spark")
    return context


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommitMessage]:
    """Those of tasks that did not fail."""
    return [one for one in messages if isinstance(one, TaskCommitMessage)]


def _writers(written: Sequence[TaskCommitMessage]) -> list[TaskTransaction]:
    return [one.writer for one in written if one.writer is not None]
