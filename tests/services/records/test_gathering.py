"""Publish calls that arrive together: appended together, each with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.broker.append.pipeline import AppendPipeline
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import LeaderNotAvailableError, StreamlogError
from streamlog.metadata.records import ConfigRecord, ConfigTarget, ConfigTargetType
from streamlog.model import NO_TIMESTAMP, BrokerId, Offset, PartitionId, ProducerEpoch, TopicId
from streamlog.ports import Buffer
from streamlog.ports.system import run as run_loop
from streamlog.records import scan_headers
from streamlog.services.records.gathering import lane
from streamlog.services.records.gathering.batch_write import BatchWrite, WriteResult
from streamlog.services.records.gathering.gathered_writes import GatheredWrites, _expire
from streamlog.services.records.gathering.lane import WaitingWrite
from streamlog.services.records.producer_token import ProducerToken, decode_token
from streamlog.sim import Order
from tests.services.records.publish_calls import log_values, publish, records, token
from tests.services.world import Cluster
from tests.services.world import simulate as simulate_cluster

ACKS_LEADER = {"acks": common_pb2.ACKS_LEADER}


@pytest.fixture
def appends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Batches in each append."""
    found: list[int] = []
    append = AppendPipeline.append

    async def counted(self: AppendPipeline, batches: Buffer, *rest: Any) -> Any:
        found.append(sum(1 for _ in scan_headers(batches, 0, len(batches))))
        return await append(self, batches, *rest)

    monkeypatch.setattr(AppendPipeline, "append", counted)
    return found


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[GatheredWrites]]:
    """Of each node. Empty in the end: nothing is kept of calls that have ended."""
    found: list[GatheredWrites] = []
    make = GatheredWrites.__init__

    def made(self: GatheredWrites, *arguments: Any) -> None:
        make(self, *arguments)
        found.append(self)

    monkeypatch.setattr(GatheredWrites, "__init__", made)
    yield found
    assert [len(table) for table in found] == [0] * len(found)
    assert [table._queued.queued for table in found] == [0] * len(found)


def simulate(story: Callable[[Cluster], Awaitable[None]], order: Order = Order.FIFO) -> None:
    """Until lanes have ended, too."""

    async def whole(cluster: Cluster) -> None:
        await story(cluster)
        await asyncio.sleep(2 * lane.RETURN_S)

    simulate_cluster(whole, order=order)


async def all_of(*calls: Any) -> list[Any]:
    """(partition, offset) of each, or the code of its error."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    return [_outcome(one) for one in found]


def _outcome(one: Any) -> Any:
    if isinstance(one, StreamlogError):
        return one.code
    if isinstance(one, BaseException):
        raise one
    (result,) = one.results
    return result.error.code or result.offset


async def acknowledge(cluster: Cluster, node: int = 1, follower: int = 2) -> None:
    """A follower that is not simulated has all."""
    leader: LeaderReplica = cluster.nodes[node].leader()
    await cluster.on(lambda: leader.on_position(BrokerId(follower), leader.log_end_offset), node)


@pytest.mark.parametrize("node", [1, 2])
@pytest.mark.parametrize("order", [Order.FIFO, Order.SHUFFLE])
@pytest.mark.parametrize("acks", ["ACKS_ALL", "ACKS_LEADER", "ACKS_NONE"])
def test_each_call_has_its_own_records(
    node: int, order: Order, acks: str, appends: list[int], tables: list[GatheredWrites]
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(partitions=3)
        calls = [
            publish(cluster, *records(b"%d" % number, b"%d+" % number), node=node, options={"acks": acks})
            for number in range(40)
        ]
        for number, response in enumerate(await asyncio.gather(*calls)):
            first, second = response.results
            assert first.partition == second.partition
            if acks != "ACKS_NONE":
                values = await log_values(cluster, partition=first.partition)
                assert (values[first.offset], values[second.offset]) == (b"%d" % number, b"%d+" % number)
        written = [value for index in range(3) for value in await log_values(cluster, partition=index)]
        assert sorted(written) == sorted(b"%d%s" % (number, end) for number in range(40) for end in (b"", b"+"))

    simulate(story, order=order)
    assert sum(appends) == 40
    assert len(appends) < 30


def test_what_arrives_while_a_group_is_replicated_goes_together(
    appends: list[int], tables: list[GatheredWrites]
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create(replicas=(1, 2))
        first = asyncio.ensure_future(publish(cluster, *records(b"0")))
        await cluster.until_logged(cluster.node.leader(), 1)
        others = [asyncio.ensure_future(publish(cluster, *records(b"%d" % number))) for number in range(1, 9)]
        await cluster.until_logged(cluster.node.leader(), 9)  # without the first one's acknowledgement: GATHER_S
        assert not first.done()
        await acknowledge(cluster)
        assert sorted(await all_of(first, *others)) == list(range(9))

    simulate(story)
    assert appends == [1, 8]


def test_one_that_is_too_large_fails_alone(appends: list[int], tables: list[GatheredWrites]) -> None:
    """Of settings that the publishing node does not know yet."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        target = ConfigTarget(ConfigTargetType.TOPIC, "t")
        cluster.rig.commit([ConfigRecord(resource=target, name="max.message.bytes", value="1000")])
        await cluster.on(partial(cluster._apply, 1))
        values = [b"a", b"b" * 2_000, b"c", b"d" * 3_000, b"e"]
        calls = [publish(cluster, *records(value), node=2) for value in values]
        outcomes = await all_of(*calls)
        assert outcomes[1] == outcomes[3] == "MESSAGE_TOO_LARGE"
        assert sorted([outcomes[0], outcomes[2], outcomes[4]]) == [0, 1, 2]
        assert sorted(await log_values(cluster)) == [b"a", b"c", b"e"]

    simulate(story)
    assert max(appends) > 1


def test_a_leader_that_moves_writes_nothing_twice(tables: list[GatheredWrites]) -> None:
    """Sent groups are of unknown outcome; what was not sent goes to the next leader."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create(replicas=(1, 2))
        sent = [asyncio.ensure_future(publish(cluster, *records(b"sent %d" % number))) for number in range(5)]
        await cluster.until_logged(cluster.node.leader(), 5)
        await cluster.move_leader(2)
        await cluster.until_led("t", 1)
        assert set(await all_of(*sent)) == {"OUTCOME_UNKNOWN"}
        options = {"timeout_ms": 20_000}
        later = [
            asyncio.ensure_future(publish(cluster, *records(b"later %d" % number), options=options))
            for number in range(5)
        ]
        leader = cluster.nodes[2].leader()
        await cluster.until_logged(leader, leader.log_end_offset + 5)
        await acknowledge(cluster, node=2, follower=1)
        offsets = await all_of(*later)
        assert sorted(offsets) == list(range(min(offsets), min(offsets) + 5))
        values = await log_values(cluster, node=2)
        assert [values[offset] for offset in offsets] == [b"later %d" % number for number in range(5)]
        assert len(set(values)) == len(values)

    simulate(story)


def test_those_that_wait_for_a_leader_are_written_once_there_is_one(tables: list[GatheredWrites]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create(replicas=(2, 1))  # node 2 leads, and does not run
        calls = [
            asyncio.ensure_future(publish(cluster, *records(b"%d" % number), options=ACKS_LEADER))
            for number in range(6)
        ]
        await asyncio.sleep(1)
        assert not any(call.done() for call in calls)
        await cluster.move_leader(1)
        await cluster.until_led("t", 1)
        assert sorted(await all_of(*calls)) == list(range(6))

    simulate(story)


def test_a_fenced_producer_fails_alone(tables: list[GatheredWrites]) -> None:
    """Batches of producers with a token are written beside the groups, each by itself."""

    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        current = await token(cluster)
        following = (await publish(cluster, *records(b"0"), producer_token=current)).producer_token
        newer = ProducerToken(producer_id=decode_token(current).producer_id, producer_epoch=ProducerEpoch(1)).encode()
        await publish(cluster, *records(b"1"), producer_token=newer)  # fences the tokens before
        calls = [publish(cluster, *records(b"%d" % number), node=2) for number in range(5)]
        calls.insert(2, publish(cluster, *records(b"fenced"), producer_token=following, node=2))
        calls.insert(4, publish(cluster, *records(b"1"), producer_token=newer, node=2))
        outcomes = await all_of(*calls)
        assert (outcomes.pop(2), outcomes.pop(3)) == ("PRODUCER_FENCED", 1)  # the other is a repetition
        assert sorted(outcomes) == [2, 3, 4, 5, 6]
        assert sorted(await log_values(cluster)) == sorted([b"0", b"1", *(b"%d" % number for number in range(5))])

    simulate(story)


def test_each_call_has_its_own_deadline(tables: list[GatheredWrites]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create(replicas=(1, 2))
        loop = asyncio.get_running_loop()
        begin = loop.time()
        calls = [
            asyncio.ensure_future(publish(cluster, *records(b"%d" % number), options={"timeout_ms": timeout_ms}))
            for number, timeout_ms in enumerate((500, 60_000, 1_000))
        ]
        assert await all_of(calls[0]) == ["OUTCOME_UNKNOWN"]
        assert loop.time() - begin == pytest.approx(0.5, abs=0.2)
        assert await all_of(calls[2]) == ["OUTCOME_UNKNOWN"]
        assert loop.time() - begin == pytest.approx(1.0, abs=0.2)
        await acknowledge(cluster)
        assert (await all_of(calls[1]))[0] in range(3)

    simulate(story)


def test_a_call_that_is_cancelled_takes_none_with_it(tables: list[GatheredWrites]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        await cluster.create(replicas=(1, 2))
        host = cluster.world.host("client")
        calls = [host.spawn(_direct(cluster, b"%d" % number)) for number in range(5)]
        await cluster.until_logged(cluster.node.leader(), 5)
        calls[0].cancel()
        calls[3].cancel()
        await asyncio.sleep(0.1)
        await acknowledge(cluster)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in outcomes] == [True, False, False, True, False]
        assert len({one for one in outcomes if isinstance(one, int)} & set(range(5))) == 3

    async def _direct(cluster: Cluster, value: bytes) -> int:
        request = pb.PublishRequest(topic="t", records=records(value))
        data = await cluster.channel().unary("/streamlog.v1.Records/Publish", request.SerializeToString(), timeout_s=60)
        return pb.PublishResponse.FromString(data).results[0].offset

    simulate(story)


def test_a_group_is_bounded(appends: list[int], tables: list[GatheredWrites], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "GROUP_BYTES", 1_000)

    async def story(cluster: Cluster) -> None:
        await cluster.start()
        await cluster.create()
        calls = [publish(cluster, *records(bytes(300))) for _ in range(12)]
        calls.append(publish(cluster, *records(bytes(5_000))))
        assert sorted(await all_of(*calls)) == list(range(13))

    simulate(story)
    assert sum(appends) == 13
    assert max(appends) <= 2


def test_bytes_that_wait_are_bounded(tables: list[GatheredWrites]) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create()
        for table in tables:
            table._queued.limit = 2_000
        calls = [publish(cluster, *records(bytes(900)), node=2, options={"timeout_ms": 3_000}) for _ in range(6)]
        outcomes = await all_of(*calls)
        assert sorted(outcomes) == list(range(6))  # those that were throttled were tried again

    simulate(story)


class Lanes:
    """One lane, on a real loop; a group is done when the test says so."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[Sequence[WaitingWrite]] = asyncio.Queue()
        self.is_idle = False
        self.lane = lane.Lane(self._send, self._on_idle)

    async def _send(self, writes: Sequence[WaitingWrite]) -> None:
        self.sent.put_nowait(writes)
        await asyncio.wait([one.outcome for one in writes])

    async def group(self) -> Sequence[WaitingWrite]:
        """The next one that is sent."""
        return await asyncio.wait_for(self.sent.get(), 30)

    def _on_idle(self) -> None:
        self.is_idle = True

    def join(self) -> WaitingWrite:
        write = BatchWrite(
            topic="t", topic_id=TopicId(b"t" * 16), partition=PartitionId(0), batch=b"b", count=1, base_sequence=None
        )
        one = WaitingWrite(write, 60.0, 0)
        self.lane.join(one)
        return one


async def done(group: Sequence[WaitingWrite]) -> None:
    for one in group:
        one.done(WriteResult(Offset(0), NO_TIMESTAMP))
    for _ in range(5):  # turns of the loop, until the lane knows it
        await asyncio.sleep(0)


@pytest.mark.parametrize("run", [asyncio.run, run_loop], ids=["asyncio", "the loop of a node"])
def test_a_group_that_is_done_starts_the_next_one(
    run: Callable[[Coroutine[Any, Any, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the timer, which is for those that hang: another loop's handles are of other types."""
    monkeypatch.setattr(lane, "GATHER_S", 600)

    async def story() -> None:
        lanes = Lanes()
        lanes.join()
        first = await lanes.group()
        lanes.join()
        lanes.join()
        assert lanes.sent.empty()
        await done(first)
        second = await lanes.group()
        assert (len(first), len(second)) == (1, 2)
        await done(second)

    run(story())


@pytest.mark.parametrize("run", [asyncio.run, run_loop], ids=["asyncio", "the loop of a node"])
def test_callers_that_were_answered_together_are_waited_for(
    run: Callable[[Coroutine[Any, Any, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane.Lane, "_return_s", lambda *_: 600.0)

    async def story() -> None:
        lanes = Lanes()
        lanes.join(), lanes.join(), lanes.join()
        first = await lanes.group()
        await done(first)
        lanes.join()
        lanes.join()
        await asyncio.sleep(0)
        assert lanes.sent.empty()
        lanes.join()
        second = await lanes.group()
        assert (len(first), len(second)) == (3, 3)
        await done(second)
        assert not lanes.is_idle

    run(story())


def test_what_was_answered_as_not_sent_is_not_sent() -> None:
    """Its deadline and the lane's timer may be due in the same turn of the loop, before its caller can leave."""

    async def story() -> None:
        lanes = Lanes()
        lanes.join()
        first = await lanes.group()
        expired, sent = lanes.join(), lanes.join()
        _expire(expired)
        lanes.lane._flush()
        second = await lanes.group()
        assert second == [sent]
        with pytest.raises(LeaderNotAvailableError):
            await expired.outcome
        lanes.lane.leave(expired)
        assert lanes.lane._waiting_bytes == 0
        await done(first)
        await done(second)

    asyncio.run(story())


def test_a_lane_whose_writes_have_all_expired_is_idle_once() -> None:
    """Another lane of the same partition may be in use when the last of its callers leaves."""

    async def story() -> None:
        lanes = Lanes()
        expired = lanes.join()
        _expire(expired)
        await asyncio.sleep(0)
        assert (lanes.sent.empty(), lanes.is_idle) == (True, True)
        lanes.is_idle = False
        lanes.lane.leave(expired)
        assert (lanes.is_idle, lanes.lane._waiting_bytes) == (False, 0)
        expired.outcome.exception()

    asyncio.run(story())


def test_a_single_caller_is_not_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane.Lane, "_return_s", lambda *_: 600.0)

    async def story() -> None:
        lanes = Lanes()
        for _ in range(3):
            lanes.join()
            group = await lanes.group()
            await done(group)
            assert lanes.is_idle

    asyncio.run(story())
