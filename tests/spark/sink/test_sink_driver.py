"""The sink's driver over an admin client and a log in memory: what it does with the answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'streamlog[spark]'")

from pyspark.sql.types import BinaryType, StructField, StructType

from streamlog.client.admin.transaction_values import TransactionDescription, TransactionState
from streamlog.errors import (
    CoordinatorNotAvailableError,
    ProducerFencedError,
    StreamlogError,
    UnknownProducerIdError,
)
from streamlog.model import BrokerId, ProducerEpoch, ProducerId
from streamlog.spark.data_source import DefaultSource
from streamlog.spark.failures import OptionError, StreamlogSparkError
from streamlog.spark.options import Options
from streamlog.spark.sink import commit
from streamlog.spark.sink.commit import LostTransactionError, SinkDriver
from streamlog.spark.sink.decision_log import SinkLog, UndecidedError
from streamlog.spark.sink.state import SinkState, TaskTransaction, transactional_id
from streamlog.spark.sink.writers import BatchSink, TaskCommitMessage


class FakeLog(SinkLog):
    def __init__(self, state: SinkState) -> None:
        self.state = state

    def decide(self, state: SinkState) -> None:
        self.state = state

    def close(self) -> None:
        pass


class FakeAdmin:
    """Answers `rows`, after `failures`; all ends are refused with `refusal`."""

    def __init__(self, rows: Iterable[TransactionDescription] = ()) -> None:
        self.rows = {one.transactional_id: one for one in rows}
        self.failures: Iterator[StreamlogError] = iter(())
        self.refusal: StreamlogError | None = None
        self.asked = self.closed = 0

    def describe_transactions(self, names: Sequence[str]) -> tuple[TransactionDescription, ...]:
        self.asked += 1
        if (error := next(self.failures, None)) is not None:
            return tuple(described(name, TransactionState.EMPTY, error=error) for name in names)
        return tuple(self.rows[name] for name in names)

    def end_prepared_transaction(self, name: str, prepared: object, *, commit: bool) -> None:
        if self.refusal is not None:
            raise self.refusal

    def close(self) -> None:
        self.closed += 1


def described(
    name: str, state: TransactionState, epoch: int = 0, error: StreamlogError | None = None
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=name,
        coordinator=BrokerId(1),
        state=state,
        producer_id=ProducerId(5),
        producer_epoch=ProducerEpoch(epoch),
        timeout_ms=None,
        started_ms=None,
        updated_ms=0,
        partitions=(),
        error=error,
    )


WRITER = TaskTransaction(transactional_id("s", "r1", "7"), 5, 0)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    found = FakeAdmin([described(WRITER.transactional_id, TransactionState.ONGOING)])
    monkeypatch.setattr(commit, "Admin", lambda *_, **__: found)
    monkeypatch.setattr(commit, "open_names", lambda *_: [])
    monkeypatch.setattr(commit, "_RETRY_S", 0)
    return found


def driver_with(state: SinkState, timeout_ms: int = 60_000) -> SinkDriver:
    driver = SinkDriver("s", "r1", {"bootstrap.servers": "h:1", "default.api.timeout.ms": str(timeout_ms)})
    driver._log = FakeLog(state)
    return driver


def moving() -> StreamlogError:
    return CoordinatorNotAvailableError("the coordinator is moving: retry")


def test_a_coordinator_that_moves_is_asked_again(admin: FakeAdmin) -> None:
    admin.failures = iter([moving(), moving()])
    assert driver_with(SinkState()).commit(0, [WRITER])
    assert admin.asked == 3


def test_only_what_is_unanswered_is_asked_again_and_less_and_less_often(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = TaskTransaction(transactional_id("s", "r1", "8"), 5, 0)
    there = described(other.transactional_id, TransactionState.ONGOING)
    missing = described(other.transactional_id, TransactionState.EMPTY, error=moving())
    answers = iter([missing] * 4 + [there])
    asked: list[list[str]] = []
    pauses: list[float] = []

    def describe(names: Sequence[str]) -> tuple[TransactionDescription, ...]:
        asked.append(list(names))
        admin.rows[other.transactional_id] = next(answers)
        return tuple(admin.rows[name] for name in names)

    monkeypatch.setattr(admin, "describe_transactions", describe)
    monkeypatch.setattr(commit, "_RETRY_S", 0.2)
    monkeypatch.setattr("time.sleep", pauses.append)
    assert driver_with(SinkState()).commit(0, [WRITER, other])
    assert asked == [[WRITER.transactional_id, other.transactional_id]] + [[other.transactional_id]] * 4
    assert pauses == [0.2, 0.4, 0.8, 1.0]


def test_a_coordinator_that_does_not_answer_in_time_is_the_error(admin: FakeAdmin) -> None:
    admin.failures = itertools.repeat(moving())
    with pytest.raises(CoordinatorNotAvailableError, match="the coordinator is moving"):
        driver_with(SinkState(), timeout_ms=1).commit(0, [WRITER])


def test_a_transaction_that_nothing_is_known_of_was_not_committed_yet(admin: FakeAdmin) -> None:
    admin.refusal, admin.failures = ProducerFencedError("its epoch is higher"), itertools.repeat(moving())
    with pytest.raises(CoordinatorNotAvailableError, match="the coordinator is moving"):
        driver_with(SinkState(owner="r0", batch=0, writers=(WRITER,)), timeout_ms=1).commit(1, [])


def test_a_loss_is_reported_also_where_it_cannot_be_noted(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.refusal = ProducerFencedError("its epoch is higher")
    admin.rows[WRITER.transactional_id] = described(WRITER.transactional_id, TransactionState.COMPLETE_ABORT, epoch=1)
    monkeypatch.setattr(FakeLog, "decide", lambda *_: (_ for _ in ()).throw(UndecidedError("no answer")))
    with pytest.raises(LostTransactionError, match="its rows of the micro-batch are lost"):
        driver_with(SinkState(owner="r0", batch=0, writers=(WRITER,))).commit(0, [])


def test_a_transaction_whose_id_is_unknown_is_not_prepared(admin: FakeAdmin) -> None:
    admin.failures = iter([UnknownProducerIdError("no such transactional id")])
    with pytest.raises(StreamlogSparkError, match="were aborted before the commit"):
        driver_with(SinkState()).commit(0, [WRITER])


def test_a_micro_batch_without_rows_aborts_what_killed_tasks_left_open(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, decided = transactional_id("s", "r1", "8"), WRITER.transactional_id
    aborted: list[str] = []
    monkeypatch.setattr(commit, "open_names", lambda *_: [left, decided, transactional_id("s", "r2", "1")])
    monkeypatch.setattr(commit, "abort_open", lambda _, names: aborted.extend(names))
    assert not driver_with(SinkState(owner="r1", batch=3, writers=(WRITER,))).commit(4, [])
    assert aborted == [left]


@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_batch_leaves_no_client_open(admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """A foreachBatch runs one for each micro-batch, in the same process."""
    monkeypatch.setattr(commit, "SinkLog", lambda *_: FakeLog(SinkState()))
    sink = BatchSink(Options.parse({"streamlog.bootstrap.servers": "h:1", "sinkId": "s"}))
    getattr(sink, ends)([TaskCommitMessage(sink._sink, sink._run, None, 0)])
    assert admin.closed == 1


def test_micro_batches_of_a_foreach_batch_are_written_once_under_one_name(
    admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FakeLog(SinkState())
    monkeypatch.setattr(commit, "SinkLog", lambda *_: log)
    found: list[tuple[int, bool]] = []
    for number in (0, 1, 1, 2):
        given = {"streamlog.bootstrap.servers": "h:1", "sinkId": "s", "sinkBatch": str(number)}
        sink = BatchSink(Options.parse(given))
        name = transactional_id("s", sink._run, "7")
        admin.rows[name] = described(name, TransactionState.ONGOING)
        writer = TaskTransaction(name, 5, 0)
        sink.commit([TaskCommitMessage("s", sink._run, writer, 1)])
        found.append((log.state.batch, log.state.writers == (writer,)))
    assert found == [(0, True), (1, True), (1, False), (2, True)]


def test_a_stream_takes_no_number_of_a_micro_batch() -> None:
    source = DefaultSource({"streamlog.bootstrap.servers": "h:1", "topic": "t", "sinkId": "s", "sinkBatch": "0"})
    with pytest.raises(OptionError, match="sinkBatch: does not apply to a streaming sink"):
        source.streamWriter(StructType([StructField("value", BinaryType())]), overwrite=False)
