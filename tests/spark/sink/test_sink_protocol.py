"""The sink's protocol on a real cluster, without Spark: every place where something may die, and random histories."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'streamlog[spark]'")

from streamlog.client import Admin, Consumer  # noqa: E402  after what may skip the module
from streamlog.client.admin.transaction_values import TransactionState  # noqa: E402
from streamlog.client.consumer.corrupt_batches import corrupt_batch  # noqa: E402
from streamlog.errors import CorruptMessageError, NetworkError, StreamlogError  # noqa: E402
from streamlog.model import Offset, TopicPartition  # noqa: E402
from streamlog.pytest_plugin.cluster import InProcessCluster  # noqa: E402
from streamlog.spark.failures import StreamlogSparkError  # noqa: E402
from streamlog.spark.sink import decision_log, state  # noqa: E402
from streamlog.spark.sink.commit import SinkDriver  # noqa: E402
from streamlog.spark.sink.decision_log import SinkLog, UndecidedError  # noqa: E402
from streamlog.spark.sink.state import (  # noqa: E402
    RETIRED_MAX,
    SinkState,
    TaskTransaction,
    check_not_retired,
    decided,
    may_abort,
    run_of,
    taken_over,
    transactional_id,
)
from streamlog.spark.sink.task import SinkRules, TaskName, write_rows  # noqa: E402
from tests.spark.records import committed  # noqa: E402


class Killed(Exception):
    """The process is no more."""


class Run:
    """A run of a query: its driver, and its tasks."""

    def __init__(self, cluster: InProcessCluster, sink: str, topic: str, name: str) -> None:
        self.client = {"bootstrap.servers": cluster.bootstrap_servers, "default.api.timeout.ms": "60000"}
        self.sink, self.topic, self.name = sink, topic, name
        self.driver = SinkDriver(sink, name, self.client)
        self.other = SinkDriver(sink, name, self.client)  # in another process
        self.tasks = 0

    def stage(self, batch: int, task: int) -> TaskTransaction:
        """The rows of one task; their values name batch and task."""
        rules = SinkRules(client=self.client, topic=self.topic, timestamps=False)
        name = TaskName(transactional_id=transactional_id(self.sink, self.name, str(self.tasks)), two_phase=True)
        self.tasks += 1
        values = pa.array([f"{batch}:{task}:{row}".encode() for row in range(5)])
        writer, rows = write_rows(rules, name, iter([pa.RecordBatch.from_arrays([values], ["value"])]))
        assert writer is not None
        assert rows == 5
        return writer

    def stage_all(self, batch: int) -> list[TaskTransaction]:
        return [self.stage(batch, task) for task in range(2)]

    def die(self) -> None:
        self.driver.close()
        self.other.close()


def rows_of(batches: Sequence[int]) -> Counter[bytes]:
    return Counter(f"{b}:{task}:{row}".encode() for b in batches for task in range(2) for row in range(5))


def values(cluster: InProcessCluster, topic: str) -> Counter[bytes | None]:
    return Counter(one.value for one in committed(cluster.bootstrap_servers, topic))


def still_open(cluster: InProcessCluster, sink: str) -> list[str]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        found = admin.list_transactions(states=[TransactionState.ONGOING]).transactions
    return [one.transactional_id for one in found if run_of(sink, one.transactional_id)]


@pytest.fixture
def make(cluster: InProcessCluster, topic: str) -> Iterator[object]:
    runs: list[Run] = []

    def made(name: str) -> Run:
        runs.append(Run(cluster, topic, topic, name))
        return runs[-1]

    yield made
    for run in runs:
        run.die()


def test_micro_batches_one_after_another(cluster: InProcessCluster, topic: str, make: Callable[..., Any]) -> None:
    run = make("r1")
    for batch in range(3):
        assert run.driver.commit(batch, run.stage_all(batch))
    assert values(cluster, topic) == rows_of([0, 1, 2])


def test_what_is_not_decided_is_not_seen_and_the_next_run_aborts_it(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any]
) -> None:
    first = make("r1")
    first.stage_all(0)
    first.die()
    second = make("r2")
    assert second.driver.commit(0, second.stage_all(0))
    assert still_open(cluster, topic) == []
    assert values(cluster, topic) == rows_of([0])


@pytest.mark.parametrize("ended", [0, 1, 2])
def test_a_driver_that_dies_between_the_decision_and_its_end(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    """Between the sink's commit and Spark's; and in the middle of the sink's."""
    first = make("r1")
    whole = first.driver._end

    def cut_off(writers: Sequence[TaskTransaction], *, commit: bool) -> None:
        whole(list(writers)[:ended], commit=commit)
        raise Killed

    writers = first.stage_all(0)
    monkeypatch.setattr(first.driver, "_end", cut_off)
    with pytest.raises(Killed):
        first.driver.commit(0, writers)
    first.die()
    second = make("r2")
    assert not second.driver.commit(0, second.stage_all(0)), "it was decided before"
    assert still_open(cluster, topic) == []
    assert second.driver.commit(1, second.stage_all(1))
    assert still_open(cluster, topic) == []
    assert values(cluster, topic) == rows_of([0, 1])


def test_of_two_drivers_one_decides(cluster: InProcessCluster, topic: str, make: Callable[..., Any]) -> None:
    first, second = make("r1"), make("r2")
    mine, others = first.stage_all(0), second.stage_all(0)
    first.driver._opened()
    assert second.driver.commit(0, others)
    with pytest.raises((StreamlogError, StreamlogSparkError)):
        first.driver.commit(0, mine)
    assert values(cluster, topic) == rows_of([0])
    first.die()
    again = make("r1")
    with pytest.raises(StreamlogSparkError, match="another run of this query"):
        again.driver.commit(1, again.stage_all(1))
    third = make("r3")  # the zombie has fenced the second's driver; its query restarts the micro-batch
    assert third.driver.commit(1, third.stage_all(1))
    assert still_open(cluster, topic) == []
    assert values(cluster, topic) == rows_of([0, 1])


def test_two_processes_of_a_run_take_turns(cluster: InProcessCluster, topic: str, make: Callable[..., Any]) -> None:
    """Spark runs a commit in any of its idle Python processes, which several queries share."""
    one, other = make("r1"), make("r1")
    other.tasks = 100
    for batch in range(4):
        run = (one, other)[batch % 2]
        assert run.driver.commit(batch, run.stage_all(batch))
    assert still_open(cluster, topic) == []
    assert values(cluster, topic) == rows_of(range(4))


def test_an_abort_in_a_process_that_has_not_made_the_decision(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make("r1"), make("r1")
    assert other.driver.commit(0, other.stage_all(0))
    one.tasks = 100
    writers = one.stage_all(1)
    monkeypatch.setattr(one.driver, "_end", lambda *_, **__: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        one.driver.commit(1, writers)
    other.driver.abort(1, writers)
    assert values(cluster, topic) == rows_of([0, 1])


@pytest.mark.parametrize("own", [True, False])
def test_a_commit_that_is_still_executed_during_an_abort_does_not_decide(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    """Of a run that owned the sink before, and of one whose first micro-batch this is."""
    commits, aborts = make("r1"), make("r1")
    first = commits if own else make("r0")
    assert first.driver.commit(0, first.stage_all(0))
    commits.tasks = 100
    writers = commits.stage_all(1)
    end = aborts.driver._end

    def meanwhile(some: Sequence[TaskTransaction], *, commit: bool) -> None:
        with pytest.raises(StreamlogSparkError, match="run r1 can no longer write"):
            commits.driver.commit(1, writers)
        end(some, commit=commit)

    monkeypatch.setattr(aborts.driver, "_end", meanwhile)
    aborts.driver.abort(1, writers)
    last = make("r2")
    assert last.driver.commit(1, last.stage_all(1))
    assert still_open(cluster, topic) == []
    assert values(cluster, topic) == rows_of([0, 1])


def test_a_zombie_that_is_no_longer_known_as_retired_does_not_decide(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "RETIRED_MAX", 1)
    zombie = make("r1")
    assert zombie.driver.commit(0, zombie.stage_all(0))
    for batch, name in ((1, "r2"), (2, "r3")):
        run = make(name)
        assert run.driver.commit(batch, run.stage_all(batch))
    writers = zombie.stage_all(3)
    with pytest.raises(UndecidedError, match="was refused, or whether it is written is unknown"):
        zombie.driver.commit(3, writers)
    zombie.driver.abort(3, writers)  # as Spark does
    assert values(cluster, topic) == rows_of([0, 1, 2])


def test_a_run_that_is_unknown_is_retired_before_it_is_aborted(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any]
) -> None:
    second = make("r2")
    assert second.driver.commit(0, second.stage_all(0))
    late = make("r1")
    late.stage_all(1)
    assert second.driver.commit(1, second.stage_all(1))
    assert still_open(cluster, topic) == []
    with pytest.raises(StreamlogSparkError, match="another run of this query"):
        late.driver.commit(2, [])
    assert values(cluster, topic) == rows_of([0, 1])


def test_what_an_operator_aborted_is_not_committed_in_part(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any]
) -> None:
    run = make("r1")
    writers = run.stage_all(0)
    cluster.with_admin(lambda admin: admin.abort_transaction(writers[0].transactional_id))
    with pytest.raises(StreamlogSparkError, match="were aborted before the commit"):
        run.driver.commit(0, writers)
    run.driver.abort(0, writers)
    assert still_open(cluster, topic) == []
    assert values(cluster, topic) == Counter()


def test_a_decided_transaction_that_is_aborted_is_reported_by_one_commit(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make("r1")
    writers = first.stage_all(0)
    monkeypatch.setattr(first.driver, "_end", lambda *_, **__: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        first.driver.commit(0, writers)
    cluster.with_admin(lambda admin: admin.abort_transaction(writers[1].transactional_id))
    second = make("r2")
    with pytest.raises(StreamlogSparkError, match="it continues with the next micro-batch"):
        second.driver.abort(0, [second.stage(0, 0)])  # its other task failed; Spark only logs what this raises
    third = make("r3")
    lost = third.stage_all(0)
    with pytest.raises(StreamlogSparkError, match="it continues with the next micro-batch"):
        third.driver.commit(0, lost)
    third.driver.abort(0, lost)  # as Spark does
    fourth = make("r4")
    assert not fourth.driver.commit(0, fourth.stage_all(0)), "it was decided before"
    assert fourth.driver.commit(1, fourth.stage_all(1))
    assert still_open(cluster, topic) == []
    committed_rows = Counter(f"0:0:{row}".encode() for row in range(5))
    assert values(cluster, topic) == committed_rows + rows_of([1])


def test_abort_of_a_batch_whose_decision_was_not_heard_of(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any]
) -> None:
    run = make("r1")
    writers = run.stage_all(0)
    run.driver.commit(0, writers)
    run.die()
    again = make("r1")
    again.driver.abort(0, writers)  # as Spark does when the commit's answer was lost
    assert values(cluster, topic) == rows_of([0])


def test_a_decision_that_cannot_be_read_is_never_skipped(
    cluster: InProcessCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []

    class RecordingConsumer(Consumer):
        def __init__(self, settings: dict[str, str], **more: Any) -> None:
            given.append(settings)
            super().__init__(settings, **more)

    monkeypatch.setattr(decision_log, "Consumer", RecordingConsumer)
    tolerant = {"on.corrupt.batch": "skip", "check.crcs": "false"}
    SinkLog(topic, {"bootstrap.servers": cluster.bootstrap_servers, **tolerant}).close()
    assert {(one["on.corrupt.batch"], one["check.crcs"]) for one in given} == {("fail", "true")}


def test_a_decision_that_cannot_be_read_has_a_remedy(
    cluster: InProcessCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def corrupt(consumer: Consumer, ends: dict[TopicPartition, Offset], **_: Any) -> None:
        [at] = ends
        raise corrupt_batch(at, Offset(7), Offset(8), CorruptMessageError("its CRC is wrong"))

    client = {"bootstrap.servers": cluster.bootstrap_servers}
    log = SinkLog(topic, client)
    log.decide(SinkState(owner="r1"))
    log.close()
    monkeypatch.setattr(Consumer, "poll_batches", corrupt)
    with pytest.raises(StreamlogSparkError) as failed:
        SinkLog(topic, client)
    assert "the batch at offset 7 cannot be decoded: " in str(failed.value)
    assert f"repair it with 'streamlogctl partition repair {log.partition}'" in str(failed.value)
    assert "skip such batches" not in str(failed.value)


def test_a_decision_that_is_not_written_has_a_remedy(
    cluster: InProcessCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SinkLog(topic, {"bootstrap.servers": cluster.bootstrap_servers})
    down = NetworkError("no node answers")
    with monkeypatch.context() as patched:
        patched.setattr(log._producer, "commit_transaction", lambda: (_ for _ in ()).throw(down))
        with pytest.raises(UndecidedError, match="no node answers: check that the nodes are running"):
            log.decide(SinkState(owner="r1"))
    log.close()


def test_failed_and_doubled_attempts_leave_nothing(
    cluster: InProcessCluster, topic: str, make: Callable[..., Any]
) -> None:
    run = make("r1")
    run.stage(0, 0)  # its executor died, or another attempt was faster
    writers = run.stage_all(0)
    assert run.driver.commit(0, writers)
    assert still_open(cluster, topic) == []
    assert values(cluster, topic) == rows_of([0])


@pytest.mark.parametrize("seed", [0, 1, 10, 23])  # the latter two find an abort by a stale driver
def test_random_histories(cluster: InProcessCluster, topic: str, make: Callable[..., Any], seed: int) -> None:
    """Runs of two processes that die anywhere, and zombies that go on: each micro-batch is there once, and nothing is
    left open.
    """
    chance = random.Random(seed)
    done, names = 0, 0
    zombies: list[tuple[Any, int, Any]] = []
    while done < 4:
        names += 1
        run = make(f"r{names}")
        if chance.random() < 0.4:
            run.driver.abort = lambda *_: None
        while done < 4:
            if zombies and chance.random() < 0.5:
                zombie, batch, staged = zombies.pop(chance.randrange(len(zombies)))
                try:
                    zombie.driver.commit(batch, staged)
                except (StreamlogError, StreamlogSparkError):  # it was fenced, or retired
                    with contextlib.suppress(StreamlogError, StreamlogSparkError):
                        zombie.other.abort(batch, staged)
            try:
                writers = run.stage_all(done)
            except StreamlogError:
                break  # a zombie took it for dead
            fate = chance.choice(["whole", "whole", "killed before", "killed within", "sleeps"])
            if fate == "sleeps":
                zombies.append((run, done, writers))
                break
            if fate == "killed before":
                run.die()
                break
            try:
                if fate == "killed within":
                    end = run.driver._end
                    calls = chance.randrange(2)

                    def cut_off(
                        some: Sequence[TaskTransaction], *, commit: bool, end: Any = end, calls: int = calls
                    ) -> None:
                        end(list(some)[:calls], commit=commit)
                        raise Killed

                    run.driver._end = cut_off
                run.driver.commit(done, writers)
                if chance.random() < 0.5:
                    run.driver, run.other = run.other, run.driver
            except Killed:
                if chance.random() < 0.5:
                    run.other.abort(done, writers)
                run.die()
                break
            except (StreamlogError, StreamlogSparkError):
                break  # Spark ends the query; the next run restarts the micro-batch
            done += 1
    last = make("last")
    last.driver.commit(done, last.stage_all(done))
    assert values(cluster, topic) == rows_of(range(done + 1)), f"seed {seed}"
    assert still_open(cluster, topic) == []


# The rules alone.


def test_a_state_is_what_it_was_written_as() -> None:
    state = SinkState(owner="r2", retired=("r0", "r1"), batch=7, writers=(TaskTransaction("spark-sink/s/r2/1", 5, 6),))
    assert SinkState.from_bytes(state.to_bytes()) == state
    with pytest.raises(StreamlogSparkError, match="has an invalid record"):
        SinkState.from_bytes(b"x")


def test_who_is_retired() -> None:
    state = decided(SinkState(), "r1", 0, [], ["r1", "r0"])
    assert (state.owner, state.retired) == ("r1", ("r0",))
    state = taken_over(state, "r2", ["r3"])
    assert (state.owner, state.retired, state.batch) == ("r2", ("r0", "r1", "r3"), 0)
    for number in range(RETIRED_MAX + 5):
        state = decided(state, f"n{number}", number, [], [])
    assert len(state.retired) == RETIRED_MAX
    assert state.retired[-1] == f"n{RETIRED_MAX + 3}"


@pytest.mark.parametrize("owner", ["", "r1"])
def test_a_run_that_retired_itself_names_no_other(owner: str) -> None:
    check_not_retired(SinkState(owner=owner), "r1")
    with pytest.raises(StreamlogSparkError, match=r"^run r1 can no longer write: it has aborted a micro-batch"):
        check_not_retired(SinkState(owner=owner, retired=("r1",)), "r1")


def test_what_may_be_aborted() -> None:
    writer = TaskTransaction(transactional_id("s", "r2", "1"), 5, 6)
    state = SinkState(owner="r2", retired=("r1",), batch=7, writers=(writer,))
    assert not may_abort(state, "r2", writer.transactional_id, "s"), "it was decided"
    assert may_abort(state, "r2", transactional_id("s", "r2", "2"), "s")
    assert may_abort(state, "r2", transactional_id("s", "r1", "1"), "s")
    assert not may_abort(state, "r2", transactional_id("s", "r3", "1"), "s"), "it may decide yet"
    assert not may_abort(state, "r2", transactional_id("s.r1", "r1", "1"), "s"), "another sink's"
    assert not may_abort(state, "r2", "spark-sink/s", "s"), "a driver's"
