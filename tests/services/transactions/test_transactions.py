"""Transactions over the simulated network, from raw messages: InitProducerId, Produce, EndTransaction, offsets."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from google.protobuf.message import Message
from msgspec.structs import replace

from streamlog.api.convert.admin import transaction_admin
from streamlog.api.pb import admin_pb2, batches_pb2, common_pb2, groups_pb2
from streamlog.api.pb import records_pb2 as pb_records
from streamlog.api.pb import transactions_pb2 as pb
from streamlog.api.requests import PartitionRef
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.errors import (
    InvalidRequestError,
    InvalidTransactionStateError,
    LeaderNotAvailableError,
    NotLeaderError,
    ProducerFencedError,
    StreamlogError,
    TopicAuthorizationError,
    UnknownMemberIdError,
)
from streamlog.groups.placement import partition_of
from streamlog.model import INT32_MAX, NO_BROKER, ProducerId
from streamlog.ports import CallInfo
from streamlog.records.header import TRANSACTIONAL_BIT
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.common.forwarding import Peers
from streamlog.services.transactions.markers import LocalMarkers
from streamlog.transactions import lifecycle
from streamlog.transactions.records import TransactionRecord
from tests.services.records.subscribe_calls import everything, subscribing
from tests.services.transactions.transaction_calls import COMMITTED, committed, offset, with_transactions
from tests.services.world import ADMIN, BATCHES, Cluster
from tests.storage.batches import batch

TRANSACTIONS = "/streamlog.v1.Transactions/"
UNCOMMITTED = common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED


class Producer:
    """A transactional producer without a client library."""

    def __init__(self, cluster: Cluster, name: str = "x") -> None:
        self.cluster = cluster
        self.name = name
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    async def init(self, **fields: Any) -> batches_pb2.InitProducerIdResponse:
        request = batches_pb2.InitProducerIdRequest(transactional_id=self.name, **fields)
        answer = await self.cluster.call(BATCHES + "InitProducerId", request, batches_pb2.InitProducerIdResponse)
        self._go_on(answer.producer_id, answer.producer_epoch)
        return answer

    def _go_on(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences = {}
        self.producer_id, self.epoch = producer_id, epoch

    async def send(self, *values: bytes, partition: int = 0) -> str:
        """The error's code, or empty."""
        sequence = self.sequences.get(partition, 0)
        data = self.batch(*values, sequence=sequence)
        result = await self.cluster.produce(batches=data, partition=partition, transactional_id=self.name)
        if not result.HasField("error"):
            self.sequences[partition] = sequence + len(values)
        return result.error.code

    def batch(self, *values: bytes, sequence: int = 0) -> bytes:
        now_ms = self.cluster.node.ports.clock.wall_ms()
        producer = (self.producer_id, self.epoch, sequence)
        return batch(values, producer=producer, attributes=TRANSACTIONAL_BIT, timestamp=now_ms)

    async def end(self, *, commit: bool) -> pb.EndTransactionResponse:
        request = pb.EndTransactionRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, commit=commit
        )
        answer = await self.cluster.call(TRANSACTIONS + "EndTransaction", request, pb.EndTransactionResponse)
        self._go_on(answer.producer_id, answer.producer_epoch)
        return answer

    async def commit_offset(self, offset: int, partition: int = 0, topic: str = "t") -> str:
        request = pb.CommitTransactionOffsetsRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group="g",
            offsets=[groups_pb2.OffsetToCommit(topic=topic, partition=partition, offset=offset)],
        )
        answer = await self.cluster.call(
            TRANSACTIONS + "CommitTransactionOffsets", request, pb.CommitTransactionOffsetsResponse
        )
        return answer.results[0].error.code


async def call_as(cluster: Cluster, guard: Any, method: str, request: Message) -> bytes:
    """The response. `guard`: of the caller; None: it may do everything."""
    info = CallInfo(method=method, peer="client:1", guard=guard)

    async def calling() -> bytes:
        return await cluster.node.handlers[method](request.SerializeToString(), info)

    return await cluster.world.host("node1").spawn(calling())


def test_an_offset_of_a_topic_that_was_just_created_waits_until_the_coordinator_knows_it() -> None:
    """SEMANTICS 10.5."""

    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        cluster.rig.create("new")
        committing = asyncio.ensure_future(producer.commit_offset(0, topic="new"))
        await asyncio.sleep(1)
        assert not committing.done()
        await cluster.spread()
        assert await committing == ""

    with_transactions(story)


def test_records_of_two_partitions_and_an_offset_become_visible_together() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        assert await producer.send(b"a", b"b") == ""
        assert await producer.send(b"c") == ""
        assert await producer.send(b"d", partition=1) == ""
        assert await producer.commit_offset(7) == ""
        assert (await committed(cluster), await committed(cluster, 1)) == ([], [])
        assert (await offset(cluster), await offset(cluster, stable=True)) == (-1, "UNSTABLE_OFFSET_COMMIT")
        before = producer.epoch
        await producer.end(commit=True)
        assert producer.epoch == before + 1
        await asyncio.sleep(0.5)
        assert (await committed(cluster), await committed(cluster, 1)) == ([b"a", b"b", b"c"], [b"d"])
        assert (await offset(cluster), await offset(cluster, stable=True)) == (7, 7)

    with_transactions(story)


def test_a_partition_that_is_led_only_after_the_question_is_asked_about_too() -> None:
    """In one request with another one. It was appended to without the coordinator's word, and got no marker."""

    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        writable, late = PartitionLeaders.writable, [NotLeaderError("not yet")]

        def not_at_first(leaders: PartitionLeaders, ref: PartitionRef) -> LeaderReplica:
            if ref.partition == 1 and late:
                raise late.pop()
            return writable(leaders, ref)

        with patch.object(PartitionLeaders, "writable", not_at_first):
            request = batches_pb2.ProduceRequest(
                acks=common_pb2.ACKS_ALL,
                transactional_id=producer.name,
                partitions=[
                    batches_pb2.PartitionBatches(topic="t", partition=partition, batches=producer.batch(value))
                    for partition, value in enumerate([b"one", b"two"])
                ],
            )
            response = await cluster.call(BATCHES + "Produce", request, batches_pb2.ProduceResponse)
        assert [result.error.code for result in response.results] == ["", ""]
        assert not late
        await producer.end(commit=True)
        await asyncio.sleep(0.5)
        assert await committed(cluster, 0) == [b"one"]
        assert await committed(cluster, 1) == [b"two"]

    with_transactions(story)


def test_nothing_of_an_aborted_transaction_is_seen_and_the_next_one_is_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"no")
        await producer.commit_offset(3)
        await producer.end(commit=False)
        assert await producer.send(b"yes") == ""  # waits until the markers are written
        await producer.end(commit=True)
        await asyncio.sleep(0.5)
        assert await committed(cluster) == [b"yes"]
        assert await offset(cluster, stable=True) == -1

    with_transactions(story)


def test_a_late_batch_and_a_late_offset_of_a_transaction_that_is_over_are_refused() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"a")
        late = Producer(cluster)
        late.producer_id, late.epoch = producer.producer_id, producer.epoch
        late.sequences = dict(producer.sequences)
        await producer.end(commit=True)
        await asyncio.sleep(0.5)
        assert await late.send(b"late") == "PRODUCER_FENCED"
        assert await late.send(b"late", partition=1) == "PRODUCER_FENCED"  # never had a marker: the coordinator says so
        with pytest.raises(ProducerFencedError):
            await late.commit_offset(9)

    with_transactions(story)


def test_an_end_is_answered_again_and_never_decided_again() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"a")
        again = Producer(cluster)
        again.producer_id, again.epoch = producer.producer_id, producer.epoch
        first = await producer.end(commit=True)
        with pytest.raises(ProducerFencedError):
            await again.end(commit=False)
        assert await again.end(commit=True) == first
        await asyncio.sleep(0.5)
        assert await committed(cluster) == [b"a"]

    with_transactions(story)


def test_the_second_of_one_name_fences_the_first_and_aborts_what_it_left_open() -> None:
    async def story(cluster: Cluster) -> None:
        first, second = Producer(cluster), Producer(cluster)
        await first.init()
        await first.send(b"zombie")
        await second.init()
        assert second.producer_id == first.producer_id
        assert await first.send(b"more") == "PRODUCER_FENCED"
        for attempt in (lambda: first.end(commit=True), lambda: first.commit_offset(1)):
            with pytest.raises(ProducerFencedError):
                await attempt()
        assert await second.send(b"mine") == ""
        await second.end(commit=True)
        await asyncio.sleep(0.5)
        assert await committed(cluster) == [b"mine"]

    with_transactions(story)


def test_a_transaction_that_is_open_too_long_is_aborted_and_readers_go_on() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init(transaction_timeout_ms=5_000)
        await producer.send(b"slow")
        await cluster.produce(b"plain")
        await asyncio.sleep(4)
        assert await committed(cluster) == []
        await asyncio.sleep(2)
        assert await committed(cluster) == [b"plain"]
        with pytest.raises(ProducerFencedError):
            await producer.end(commit=True)
        await producer.end(commit=False)  # so it has ended: the producer goes on
        assert await producer.send(b"again") == ""

    with_transactions(story)


def test_an_outside_coordinator_ends_what_was_prepared_before_a_crash() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init(enable_two_phase_commit=True)
        await producer.send(b"prepared")
        prepared = (producer.producer_id, producer.epoch)
        await asyncio.sleep(1_800)
        returned = Producer(cluster)
        answer = await returned.init(enable_two_phase_commit=True, keep_prepared_transaction=True)
        assert (answer.ongoing_producer_id, answer.ongoing_producer_epoch) == prepared
        with pytest.raises(ProducerFencedError):
            await producer.end(commit=False)
        await returned.end(commit=True)
        assert await returned.send(b"next") == ""
        await returned.end(commit=True)
        await asyncio.sleep(0.5)
        assert await committed(cluster) == [b"prepared", b"next"]

    with_transactions(story, transaction_two_phase_commit_enable="true")


def test_the_longest_time_out_is_still_one_at_the_next_coordinator() -> None:
    """One more ms would be the log's code for two-phase commit, which has none."""

    async def story(cluster: Cluster) -> None:
        await Producer(cluster).init(transaction_timeout_ms=INT32_MAX)
        await cluster.raise_leader_epoch("__transaction_state", partition_of("x", 50))
        await asyncio.sleep(0.5)
        request = admin_pb2.DescribeTransactionsRequest(transactional_ids=["x"])
        method = ADMIN + "DescribeTransactions"
        (found,) = (await cluster.call(method, request, admin_pb2.DescribeTransactionsResponse)).transactions
        assert (found.error.code, found.timeout_ms) == ("", INT32_MAX - 1)

    with_transactions(story, transaction_max_timeout_ms=str(INT32_MAX))


def test_what_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        with pytest.raises(InvalidRequestError):
            await producer.init(enable_two_phase_commit=True)
        with pytest.raises(InvalidRequestError):
            await producer.init(keep_prepared_transaction=True)
        with pytest.raises(InvalidRequestError):
            await producer.init(transaction_timeout_ms=10**9)
        await producer.init()
        with pytest.raises(StreamlogError) as unknown:
            await Producer(cluster, "missing").end(commit=True)
        assert unknown.value.code in ("INVALID_REQUEST", "UNKNOWN_PRODUCER_ID")
        name, producer.name = producer.name, ""
        assert await producer.send(b"of no transaction") == "INVALID_TXN_STATE"
        producer.name = name
        await producer.send(b"a")
        await producer.end(commit=True)
        await asyncio.sleep(0.5)
        with pytest.raises(InvalidTransactionStateError):
            await producer.end(commit=True)

    with_transactions(story)


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("start", range(0, 9, 2))
def test_who_subscribes_to_committed_records_gets_none_that_were_aborted(
    start: int, level: common_pb2.IsolationLevel.ValueType
) -> None:
    """Of two producers in turns, from wherever it begins; and of what comes while it reads."""

    async def story(cluster: Cluster) -> None:
        one, other = Producer(cluster, "one"), Producer(cluster, "other")
        await one.init()
        await other.init()
        for producer, value in ((one, b"0"), (other, b"1"), (one, b"2"), (other, b"3")):
            assert await producer.send(value) == ""
        await one.end(commit=False)
        await other.end(commit=True)
        assert await one.send(b"6") == ""  # behind the markers
        await one.end(commit=True)
        await asyncio.sleep(0.5)  # the marker is 7
        await cluster.produce(b"8")
        there, later = [b"1", b"3", b"6", b"8"], [b"yes"]
        if level == UNCOMMITTED:
            there, later = [b"0", b"1", b"2", b"3", b"6", b"8"], [b"no", b"yes"]
        there = [value for value in there if int(value) >= start]
        part = everything(partitions=[0], start=pb_records.StartPosition(offset=start))
        async with subscribing(cluster, part, isolation_level=level) as reader:
            assert await reader.until(len(there)) == {0: there}
            assert await one.send(b"no") == ""
            await one.end(commit=False)
            assert await one.send(b"yes") == ""
            await one.end(commit=True)
            assert await reader.until(len(there + later)) == {0: there + later}

    with_transactions(story)


def test_who_has_been_put_out_of_the_group_commits_no_offset_in_a_transaction() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        request = pb.CommitTransactionOffsetsRequest(
            transactional_id="x",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group="g",
            member=groups_pb2.GroupMember(member_id="gone", member_epoch=3),
            offsets=[groups_pb2.OffsetToCommit(topic="t", partition=0, offset=9)],
        )
        with pytest.raises(UnknownMemberIdError):
            await cluster.call(TRANSACTIONS + "CommitTransactionOffsets", request, pb.CommitTransactionOffsetsResponse)
        await producer.end(commit=False)
        await asyncio.sleep(0.5)
        assert await offset(cluster, stable=True) == -1

    with_transactions(story)


def test_no_marker_is_written_to_a_topic_that_the_producer_may_not_write() -> None:
    class WritesT:
        principal = "User:eve"

        def admit(self, request: Message) -> None:
            """It may make this call."""

        def reveal(self, answer: Message) -> None:
            """It may see all of the answer."""

        def topic_refusal(self, operation: str, topic: str, topic_id: bytes | None) -> StreamlogError | None:
            return None if topic == "t" else TopicAuthorizationError(f"{self.principal} may not {operation} {topic}")

    async def story(cluster: Cluster) -> None:
        await cluster.create("secret")
        producer = Producer(cluster)
        await producer.init()
        parts = [batches_pb2.PartitionBatches(topic=name, batches=producer.batch(b"x")) for name in ("t", "secret")]
        request = batches_pb2.ProduceRequest(partitions=parts, transactional_id="x", timeout_ms=3_000)
        answer = batches_pb2.ProduceResponse.FromString(await call_as(cluster, WritesT(), BATCHES + "Produce", request))
        assert [result.error.code for result in answer.results] == ["", "TOPIC_AUTHORIZATION_FAILED"]
        await producer.end(commit=True)
        await asyncio.sleep(1)
        assert cluster.node.leader("t").log_end_offset == 2
        assert cluster.node.leader("secret").log_end_offset == 0

    with_transactions(story)


# -- lists


def test_the_event_loop_goes_on_while_transactions_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of each of 100,000 ids was made and sorted in one turn, 0.6 s, for a page of one as well."""
    coordinators: list[TransactionCoordinator] = []
    turns: list[int] = [0]
    make, listing = TransactionCoordinator.__init__, transaction_admin.listing

    def made(self: TransactionCoordinator, *rest: Any) -> None:
        coordinators.append(self)
        make(self, *rest)

    def counted(*rest: Any) -> admin_pb2.TransactionListing:
        turns[-1] += 1
        return listing(*rest)

    monkeypatch.setattr(TransactionCoordinator, "__init__", made)
    monkeypatch.setattr(transaction_admin, "listing", counted)

    async def asked(cluster: Cluster, method: str, request: Message) -> bytes:
        turns[:] = [0]
        call = asyncio.ensure_future(call_as(cluster, None, ADMIN + method, request))
        while not call.done():
            await asyncio.sleep(0)
            if turns[-1]:
                turns.append(0)
        return call.result()

    async def listed(cluster: Cluster, **fields: Any) -> tuple[list[str], str]:
        data = await asked(cluster, "ListTransactions", admin_pb2.ListTransactionsRequest(**fields))
        response = admin_pb2.ListTransactionsResponse.FromString(data)
        assert len(response.coordinated_partitions) == 50
        return [row.transactional_id for row in response.transactions], response.next_page_token

    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"a")
        (coordinator,) = coordinators
        ((_, value),) = coordinator.own_transactions("", 2)
        other = replace(value, producer_id=ProducerId(value.producer_id + 1))
        names = [f"other{n:04}" for n in range(3_000)]
        shards = list(coordinator._shards)
        for n, name in enumerate(names):
            shard = shards[n % 7]
            shard._apply(TransactionRecord(name, other))
        assert await listed(cluster, page_size=2) == (names[:2], names[1])
        assert sum(turns) == 3
        assert await listed(cluster, page_size=1_500, page_token=names[9]) == (names[10:1_510], names[1_509])
        assert max(turns) <= 2_000  # two steps, where the test comes first in one turn and last in the next
        assert await listed(cluster, page_size=1_500, page_token=names[1_509]) == ([*names[1_510:], "x"], "")
        assert await listed(cluster, producer_ids=[value.producer_id]) == (["x"], "")
        assert sum(turns) == 3_001
        assert max(turns) <= 2_000
        request = admin_pb2.FindHangingTransactionsRequest(open_for_ms=0, all_open=True)
        found = admin_pb2.FindHangingTransactionsResponse.FromString(
            await asked(cluster, "FindHangingTransactions", request)
        )
        assert [(row.transactional_id, row.hanging) for row in found.transactions] == [("x", False)]
        assert sum(turns) == 3_001
        assert max(turns) <= 2_000

    with_transactions(story)


# -- what hangs


async def open_ones(cluster: Cluster, guard: Any = None) -> admin_pb2.FindHangingTransactionsResponse:
    """All that are open, of any age."""
    request = admin_pb2.FindHangingTransactionsRequest(open_for_ms=0, all_open=True)
    called = await call_as(cluster, guard, ADMIN + "FindHangingTransactions", request)
    answer = admin_pb2.FindHangingTransactionsResponse.FromString(called)
    assert answer.transactions
    return answer


async def give_coordinator(cluster: Cluster, leader: int) -> None:
    await cluster.move_leader(leader, "__transaction_state", partition_of("x", 50))
    await asyncio.sleep(0.5)


def test_more_open_transactions_than_one_request_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: Cluster) -> None:
        for name in ("x", "y", "z"):
            producer = Producer(cluster, name)
            await producer.init()
            await producer.send(b"a")
        monkeypatch.setattr(transaction_admin, "IDS_PER_REQUEST_MAX", 2)
        answer = await open_ones(cluster)
        assert sorted(row.transactional_id for row in answer.transactions) == ["x", "y", "z"]
        assert not any(row.hanging for row in answer.transactions)

    with_transactions(story)


def test_a_transaction_whose_coordinator_is_not_there_at_present_does_not_hang() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"a")
        answer = await open_ones(cluster)
        assert not answer.errors
        assert [(row.transactional_id, row.hanging) for row in answer.transactions] == [("x", False)]
        await give_coordinator(cluster, NO_BROKER)
        answer = await open_ones(cluster)
        assert [row.hanging for row in answer.transactions] == [False]
        assert [(one.node_id, one.error.code) for one in answer.errors] == [(NO_BROKER, "COORDINATOR_NOT_AVAILABLE")]
        await give_coordinator(cluster, 1)
        assert not (await open_ones(cluster)).errors

    with_transactions(story)


def test_a_transaction_does_not_hang_while_its_new_coordinator_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """At another node, which says only what it has loaded."""
    loaded: list[int] = []

    async def call(*rest: Any) -> admin_pb2.ListTransactionsResponse | admin_pb2.FindHangingTransactionsResponse:
        response: type[Any] = rest[4]
        if response is admin_pb2.ListTransactionsResponse:
            return admin_pb2.ListTransactionsResponse(coordinated_partitions=loaded)
        return response()

    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"a")
        cluster.rig.start_all(2)
        await give_coordinator(cluster, 2)
        monkeypatch.setattr(Peers, "call", call)
        answer = await open_ones(cluster)
        assert ([row.hanging for row in answer.transactions], [one.node_id for one in answer.errors]) == ([False], [2])
        loaded.append(partition_of("x", 50))
        answer = await open_ones(cluster)
        assert ([row.hanging for row in answer.transactions], list(answer.errors)) == ([True], [])

    with_transactions(story)


def test_a_transaction_is_known_by_the_producer_id_that_its_coordinator_has_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The markers are not written yet, and name the former one."""
    monkeypatch.setattr(lifecycle, "TRANSACTION_EPOCH_MAX", 0)

    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"a")
        former = producer.producer_id
        with monkeypatch.context() as patched:
            patched.setattr(LocalMarkers, "_leader", unavailable)
            await producer.end(commit=True)
            assert producer.producer_id != former
            (row,) = (await open_ones(cluster)).transactions
            assert (row.producer_id, row.transactional_id, row.hanging) == (former, "x", False)
        await asyncio.sleep(1)
        assert await committed(cluster) == [b"a"]

    with_transactions(story)


def unavailable(*_: object) -> Any:
    raise LeaderNotAvailableError("not now")


class NoIds:
    """The guard of a caller who may describe the cluster, and no transactional id."""

    principal = "User:monitor"

    def admit(self, request: object) -> None: ...

    def reveal(self, response: object) -> None: ...

    def may_list(self, kind: str, name: str) -> bool:
        return False


def test_what_the_caller_may_not_see_does_not_hang() -> None:
    async def story(cluster: Cluster) -> None:
        producer = Producer(cluster)
        await producer.init()
        await producer.send(b"a")
        (row,) = (await open_ones(cluster, NoIds())).transactions
        assert (row.transactional_id, row.hanging) == ("", False)

    with_transactions(story)
