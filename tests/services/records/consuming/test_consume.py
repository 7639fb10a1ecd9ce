"""Consume, by raw messages over the simulated network, on whole nodes: members without a client library."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

import pytest

from streamlog.api import calls
from streamlog.api.convert.records.subscribe import received_record
from streamlog.api.pb import batches_pb2, common_pb2, groups_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.client import AsyncAdmin
from streamlog.client.consumer.aborted import AbortedTransactions
from streamlog.client.groups.consumer_group import ToCommit
from streamlog.errors import (
    CorruptBatchError,
    CorruptMessageError,
    NetworkError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.ports import Buffer
from streamlog.records import BatchFields, BatchHeader, Codec, encode_batch
from streamlog.services.quotas import gate
from streamlog.services.records.consuming import consume
from streamlog.services.records.consuming.consume_member import ConsumeMember
from streamlog.sim.workers import SimWorkers
from tests.client.groups.group_stage import GroupStage, perform
from tests.storage.batches import batch, poison

METHOD = "streamlog.v1.Records/Consume"


class Client:
    """The other end of a stream, as stock stubs have it."""

    def __init__(self, stream: calls.CallStream[pb.ConsumeResponse]) -> None:
        self._stream = stream
        self.got: list[tuple[int, int]] = []  # partition, offset
        self.owned: set[int] = set()
        self.news: list[str] = []
        self.committed: dict[int, int] = {}
        self.skipped: list[tuple[int, int]] = []
        self.statuses: list[pb.ConsumeStatus] = []
        self.member: groups_pb2.GroupMember | None = None

    async def join(self, credits: int = 0, **fields: Any) -> None:
        values = {"group": "g", "topics": ["t"], "offset_reset": pb.OFFSET_RESET_EARLIEST, **fields}
        await self._stream.send(pb.ConsumeRequest(join=pb.ConsumeJoin(**values), credits=credits))

    async def send(self, credits: int = 0, acks: dict[int, int] | None = None, released: tuple[int, ...] = ()) -> None:
        request = pb.ConsumeRequest(credits=credits)
        for partition, offset in (acks or {}).items():
            request.acknowledgements.add(topic="t", partition=partition, offset=offset)
        request.released.extend(common_pb2.TopicPartition(topic="t", partition=one) for one in released)
        await self._stream.send(request)

    async def acknowledge_all(self) -> None:
        await self.send(acks=dict(sorted(one for one in self.got if one[0] in self.owned)))

    async def leave(self) -> None:
        await self._stream.done_sending()
        while await self.next() is not None:
            pass

    async def next(self) -> str | None:
        """The kind of the next news."""
        response = await self._stream.recv()
        if response is None:
            return None
        kind = response.WhichOneof("news")
        assert kind is not None
        if response.HasField("member"):
            self.member = response.member
        if kind == "status":
            self.statuses.append(response.status)
            return kind
        match kind:
            case "assigned":
                self.owned |= {one.partition for one in response.assigned.partitions}
            case "revoked" | "lost":
                self.owned -= {one.partition for one in getattr(response, kind).partitions}
            case "records":
                news = response.records
                assert news.partition in self.owned
                self.skipped += [(one.offset, one.next_offset) for one in news.skipped_batches]
                last = news.records[-1].offset + 1 if news.records else news.skipped_batches[-1].next_offset
                assert news.position == last
                self.got += [(news.partition, record.offset) for record in news.records]
            case "committed":
                self.committed[response.committed.partition] = response.committed.offset
        self.news.append(kind)
        return kind

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                assert await self.next() is not None

    async def nothing_comes(self, for_s: float) -> None:
        """But statuses. The stream cannot be read any more then."""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(self._next_but_statuses(), for_s)

    async def _next_but_statuses(self) -> None:
        while await self.next() == "status":
            pass


@asynccontextmanager
async def consuming(stage: GroupStage, node: int = 1) -> AsyncIterator[Client]:
    channel = stage.ports.network.connect(f"n{node}:9092")
    try:
        async with calls.stream(channel, METHOD, pb.ConsumeResponse) as stream:
            yield Client(stream)
    finally:
        await channel.close()


def run_story(story: Callable[[GroupStage], Awaitable[None]], *, nodes: int = 1, seeds: int = 1) -> None:
    async def on_client(stage: GroupStage) -> None:
        async def work() -> None:
            await story(stage)

        await stage.client.spawn(work())

    perform(on_client, nodes=nodes, seeds=seeds)


async def poisoned(stage: GroupStage) -> None:
    """Topic `p`, of one partition: a batch that cannot be decoded at offset 1, one record before it and one behind."""
    async with AsyncAdmin(ports=stage.ports, bootstrap_servers=stage.bootstrap) as admin:
        await admin.create_topic("p", 1, configs={"record.validation.enable": "false"})
    await produce(stage, "p", batch([b"before"]), poison(codec=1), batch([b"after"]))


async def produce(stage: GroupStage, topic: str, *batches: bytes, partition: int = 0) -> None:
    """One after the other."""
    channel = stage.ports.network.connect("n1:9092")
    produce = calls.unary("streamlog.v1.Batches/Produce", batches_pb2.ProduceResponse)
    for data in batches:
        part = batches_pb2.PartitionBatches(topic=topic, partition=partition, batches=data)
        request = batches_pb2.ProduceRequest(acks=common_pb2.ACKS_ALL, partitions=[part])
        async with asyncio.timeout(30):
            while (await produce(channel, request, timeout_s=10)).results[0].HasField("error"):  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.1)  # it has no leader yet
    await channel.close()


def test_a_batch_that_cannot_be_decoded_ends_the_call() -> None:
    async def story(stage: GroupStage) -> None:
        await poisoned(stage)
        for _ in range(2):
            async with consuming(stage) as client:
                await client.join(credits=9, topics=["p"])
                with pytest.raises(CorruptBatchError) as caught:
                    await client.until(lambda: False)
                error = caught.value
                assert (error.topic, error.partition, error.offset, error.next_offset) == ("p", 0, 1, 2)
                assert client.got == [(0, 0)]

    run_story(story)


def test_it_is_skipped_by_choice() -> None:
    async def story(stage: GroupStage) -> None:
        await poisoned(stage)
        async with consuming(stage) as client:
            await client.join(credits=9, topics=["p"], on_corrupt_batch=pb.CORRUPT_BATCH_POLICY_SKIP)
            await client.until(lambda: len(client.got) == 2)
            assert client.got == [(0, 0), (0, 2)]
            assert client.skipped == [(1, 2)]

    run_story(story)


def test_what_is_skipped_counts_when_the_records_before_it_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged control batch is found when it is fetched: the offset behind it was committed at once, before records
    that were prefetched and not sent.
    """

    def skips(self: AbortedTransactions, data: Buffer, at: int, header: BatchHeader) -> bool:
        if header.base_offset == 2:
            raise CorruptMessageError("damaged", position=at)
        return False

    monkeypatch.setattr(AbortedTransactions, "skips", skips)

    async def story(stage: GroupStage) -> None:
        await produce(stage, "t", *(batch([b"%d" % offset]) for offset in range(4)))
        async with consuming(stage) as client:
            chosen = {"on_corrupt_batch": pb.CORRUPT_BATCH_POLICY_SKIP}
            await client.join(credits=1, isolation_level=common_pb2.ISOLATION_LEVEL_READ_COMMITTED, **chosen)
            await client.until(lambda: client.got == [(0, 0)])
            await client.send(acks={0: 0})
            await client.until(lambda: client.committed == {0: 1})
            await client.send(credits=9)
            await client.until(lambda: client.got == [(0, 0), (0, 1), (0, 3)])
            assert client.skipped == [(2, 3)]
            await client.send(acks={0: 3})
            await client.until(lambda: client.committed == {0: 4})

    run_story(story)


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_was_skipped_in_a_partition_that_comes_back_does_not_count_and_is_reported_again(
    monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """It was committed, though another member had committed more; or the client never got to know of it."""
    turn, waits = asyncio.Event(), asyncio.Event()

    async def wait(_: gate._Pace) -> None:
        if waits.is_set():
            await turn.wait()

    def skips(self: AbortedTransactions, data: Buffer, at: int, header: BatchHeader) -> bool:
        if header.base_offset == 2:
            raise CorruptMessageError("damaged", position=at)
        return False

    monkeypatch.setattr(AbortedTransactions, "skips", skips)
    monkeypatch.setattr(gate._Pace, "active", True)
    monkeypatch.setattr(gate._Pace, "must_wait", True)
    monkeypatch.setattr(gate._Pace, "wait", wait)
    chosen = {
        "on_corrupt_batch": pb.CORRUPT_BATCH_POLICY_SKIP,
        "isolation_level": common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
    }

    async def story(stage: GroupStage) -> None:
        turn.clear()
        waits.clear()
        for partition in (0, 1):
            await produce(stage, "t", *(batch([b"%d" % offset]) for offset in range(6)), partition=partition)
        async with consuming(stage) as first:
            await first.join(credits=1, **chosen)
            await first.until(lambda: len(first.got) == 1)
            if is_committed:
                waits.set()
            ((begun, _),) = first.got
            await first.send(acks={begun: 0})
            await first.until(lambda: first.committed == {begun: 1})
            await asyncio.sleep(2)
            waits.clear()
            async with consuming(stage) as second:
                await second.join(credits=100, **chosen)
                await first.until(lambda: "revoked" in first.news)
                (moved,) = {0, 1} - first.owned
                await second.until(lambda: (moved, 5) in second.got)
                if is_committed:
                    await second.acknowledge_all()
                    await second.until(lambda: second.committed == {moved: 6})
                await second.leave()
            await first.until(lambda: first.owned == {0, 1})
            await asyncio.sleep(2)
            turn.set()
            await first.send(credits=20)
            wanted = {0, 1} - {moved} if is_committed else {0, 1}
            await first.until(lambda: {(one, 5) for one in wanted} <= set(first.got))
            assert first.skipped == [(2, 3)] * len(wanted)
            await first.leave()
        at = (await stage.committed())[moved]
        assert at == 6 if is_committed else at in (None, 1)

    run_story(story)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_any_node_serves_and_only_what_is_acknowledged_is_committed(node: int) -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage, node) as client:
            await client.join(credits=100)
            await client.until(lambda: len(client.got) == 20)
            assert client.news[0] == "assigned"
            await client.send(acks={0: 3})
            await client.until(lambda: client.committed == {0: 4})
            await client.send(acks={0: 5, 1: 9})
            await client.until(lambda: client.committed == {0: 6, 1: 10})
            await client.leave()
        assert await stage.committed() == [6, 10]
        async with consuming(stage, node) as client:
            await client.join(credits=100)
            await client.until(lambda: len(client.got) == 4)
            assert client.got == [(0, offset) for offset in range(6, 10)]
        assert await stage.committed() == [6, 10]

    run_story(story, nodes=3)


def test_what_is_being_committed_when_the_stream_ends_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = ConsumeMember.commit

    async def story(stage: GroupStage) -> None:
        begun = asyncio.Event()

        async def first_takes_long(self: ConsumeMember, offsets: ToCommit) -> None:
            if not begun.is_set():
                begun.set()
                await asyncio.Event().wait()
            await commit(self, offsets)

        monkeypatch.setattr(ConsumeMember, "commit", first_takes_long)
        await stage.write(10, partitions=1)
        async with consuming(stage) as client:
            await client.join(credits=100)
            await client.until(lambda: len(client.got) == 10)
            await client.send(acks={0: 9})
            await begun.wait()
            await client.leave()
        assert await stage.committed() == [10, None]

    run_story(story)


def test_batches_are_decompressed_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    run, ran = SimWorkers.run, list[str]()

    async def noted(self: SimWorkers, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if work.__qualname__ == "ConsumerBatch._decoded":
            ran.append(given[0].__name__)
        return await run(self, work, *given, **named)

    monkeypatch.setattr(SimWorkers, "run", noted)

    async def story(stage: GroupStage) -> None:
        packed = encode_batch([b"b"], timestamps=1000, fields=BatchFields(codec=Codec.GZIP))
        await produce(stage, "t", batch([b"a"]), packed, batch([b"c"]))
        async with consuming(stage) as client:
            await client.join(credits=9)
            await client.until(lambda: client.got == [(0, 0), (0, 1), (0, 2)])
        assert ran == ["iter_fields"]

    run_story(story)


def test_a_batch_in_many_responses_is_kept_as_it_is() -> None:
    """Each response wrapped the rest of the batch once more: slower each time, and a crash at some hundred thousand."""

    async def story(stage: GroupStage) -> None:
        await produce(stage, "t", batch([b"%d" % offset for offset in range(300)]))
        before = chains()
        async with consuming(stage) as client:
            await client.join(credits=200, response_bytes_max=1)
            await client.until(lambda: len(client.got) == 200)
            assert chains() < before + 100
            await client.send(credits=200)
            await client.until(lambda: len(client.got) == 300)
        assert client.got == [(0, offset) for offset in range(300)]
        assert client.news.count("records") == 300

    def chains() -> int:
        return sum(type(one) is chain for one in gc.get_objects())

    run_story(story)


def test_a_turn_of_the_loop_has_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: GroupStage) -> None:
        await produce(stage, "t", *[batch([b"x"] * 2_500) for _ in range(2)])
        loop = stage.nodes.world.loop
        turns: Counter[int] = Counter()

        def counted(*given: Any) -> pb.ReceivedRecord:
            turns[loop.steps] += 1
            return received_record(*given)

        monkeypatch.setattr(consume, "received_record", counted)
        async with consuming(stage) as client:
            await client.join(credits=5_000)
            await client.until(lambda: len(client.got) == 5_000)
            assert [offset for _, offset in client.got] == list(range(5_000))
        assert max(turns.values()) == 1_000

    run_story(story)


def test_no_more_than_the_credits_is_sent() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10, partitions=1)
        async with consuming(stage) as client:
            await client.join()
            await client.until(lambda: client.owned == {0, 1})
            await client.send(credits=3)
            await client.until(lambda: len(client.got) == 3)
            await client.send(credits=2)
            await client.until(lambda: len(client.got) == 5)
            await client.nothing_comes(5)
        assert client.got == [(0, offset) for offset in range(5)]
        assert await stage.committed() == [None, None]

    run_story(story)


def test_credits_as_acknowledgements() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10, partitions=1)
        async with consuming(stage) as client:
            await client.join(credits=4, mode=pb.CONSUME_MODE_BY_CREDIT)
            await client.until(lambda: len(client.got) == 4)
            await client.send(credits=3)
            await client.until(lambda: len(client.got) == 7 and client.committed == {0: 3})
            await client.leave()
        assert await stage.committed() == [3, None]

    run_story(story)


def test_a_partition_moves_when_what_was_sent_of_it_is_acknowledged() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage, 1) as first, consuming(stage, 2) as second:
            await first.join(credits=1000)
            await first.until(lambda: len(first.got) == 20)
            await second.join(credits=1000)
            await first.until(lambda: "revoked" in first.news)
            (moved,) = {0, 1} - first.owned
            assert second.owned == set()
            await first.send(acks={moved: 9})
            await second.until(lambda: second.owned == {moved})
            assert first.owned == {1 - moved}
            await stage.write(5)
            await second.until(lambda: len(second.got) == 5)
            assert second.got == [(moved, offset) for offset in range(10, 15)]

    run_story(story, nodes=3, seeds=2)


def test_a_partition_that_is_released_is_read_again_from_what_was_acknowledged() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage) as first, consuming(stage) as second:
            await first.join(credits=1000)
            await first.until(lambda: len(first.got) == 20)
            await second.join(credits=1000)
            await first.until(lambda: "revoked" in first.news)
            (moved,) = {0, 1} - first.owned
            await first.send(acks={moved: 6}, released=(moved,))
            await second.until(lambda: len(second.got) == 3)
            assert second.got == [(moved, offset) for offset in range(7, 10)]

    run_story(story)


def test_one_that_waits_for_its_quota_takes_part_in_rebalances(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = asyncio.Event()

    async def wait(_: gate._Pace) -> None:
        await turn.wait()

    monkeypatch.setattr(gate._Pace, "active", True)
    monkeypatch.setattr(gate._Pace, "must_wait", True)
    monkeypatch.setattr(gate._Pace, "wait", wait)

    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage) as first, consuming(stage) as second:
            await first.join(credits=100)
            await first.until(lambda: first.owned == {0, 1})
            assert first.got == []
            await second.join(credits=100)
            await first.until(lambda: "revoked" in first.news)
            await second.until(lambda: second.owned == {0, 1} - first.owned)
            turn.set()
            await first.until(lambda: len(first.got) == 10)
            await second.until(lambda: len(second.got) == 10)

    run_story(story)


def test_one_without_a_quota_does_not_wait_because_others_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn would cost a task."""
    waited = list[object]()

    async def wait(_: consume._Stream, pace: gate._Pace) -> None:
        waited.append(pace)

    monkeypatch.setattr(gate._Pace, "active", True)
    monkeypatch.setattr(consume._Stream, "_wait_for_turn", wait)

    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage) as client:
            await client.join(credits=100)
            await client.until(lambda: len(client.got) == 20)

    run_story(story)
    assert waited == []


def test_one_that_keeps_records_for_too_long_loses_its_partitions() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage) as slow:
            await slow.join(credits=5, processing_timeout_ms=4_000)
            await slow.until(lambda: len(slow.got) == 5)
            begin = stage.nodes.world.loop.now
            await slow.until(lambda: "lost" in slow.news)
            assert 3.9 < stage.nodes.world.loop.now - begin < 4.6
            assert slow.owned == set()
            await slow.until(lambda: slow.owned == {0, 1})
            assert stage.nodes.world.loop.now - begin > 7.9, "the others' turn"
            await slow.send(acks={slow.got[-1][0]: slow.got[-1][1]}, credits=20)  # of its life before: passed over
            await slow.until(lambda: len(slow.got) == 25)
            await slow.leave()
        assert await stage.committed() == [None, None]

    run_story(story)


def test_one_that_was_too_slow_leaves_its_partitions_to_others_until_it_is_back() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage, 1) as slow, consuming(stage, 2) as second:
            await slow.join(credits=1000, processing_timeout_ms=5_000)
            await slow.until(lambda: len(slow.got) == 20)
            await second.join(credits=1000)
            await slow.until(lambda: "lost" in slow.news)
            await second.until(lambda: second.owned == {0, 1})
            await slow.send(credits=1)
            await second.until(lambda: "revoked" in second.news)
            (moved,) = {0, 1} - second.owned
            await second.send(released=(moved,))
            await slow.until(lambda: slow.owned == {moved})

    run_story(story, nodes=3)


def test_one_that_waits_for_records_is_not_too_slow() -> None:
    async def story(stage: GroupStage) -> None:
        async with consuming(stage) as client:
            await client.join(credits=5, processing_timeout_ms=2_000)
            await client.until(lambda: client.owned == {0, 1})
            await asyncio.sleep(10)
            await stage.write(1)
            await client.until(lambda: len(client.got) == 2)
            assert "lost" not in client.news

    run_story(story)


def test_a_client_that_vanishes_and_a_node_that_dies_release_their_members() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage, 1) as first:
            await first.join(credits=100)
            await first.until(lambda: len(first.got) == 20)
            await first.send(acks={0: 9, 1: 4})
            await first.until(lambda: len(first.committed) == 2)
        begin = stage.nodes.world.loop.now
        async with consuming(stage, 2) as second:
            await second.join(credits=100)
            await second.until(lambda: len(second.got) == 5)
            assert stage.nodes.world.loop.now - begin < 2
            await second.acknowledge_all()
            await second.until(lambda: second.committed == {1: 10})
            stage.nodes.host(2).crash()
            with pytest.raises(NetworkError):
                await second.until(lambda: False)
        await stage.nodes.until(lambda: stage.coordinator() not in (-1, 2))
        async with consuming(stage, 3) as third:
            await third.join(credits=100)
            await stage.write(1)
            await third.until(lambda: len(third.got) == 2)
            assert sorted(third.got) == [(0, 10), (1, 10)]

    run_story(story, nodes=3, seeds=2)


def test_with_members_of_the_client_library_in_one_group() -> None:
    async def story(stage: GroupStage) -> None:
        reader = stage.reader("r").start()
        await stage.shared(reader)
        async with consuming(stage) as client:
            await client.join(credits=100)
            await client.until(lambda: len(client.owned) == 1)
            await stage.write(5)
            await client.until(lambda: len(client.got) == 5)
            await stage.nodes.until(lambda: len(reader.got) == 5)
        await stage.shared(reader)

    run_story(story)


async def status(client: Client, wait: pb.ConsumeWait.ValueType) -> pb.ConsumeStatus:
    """The first from now on that waits for this."""
    client.statuses.clear()
    await client.until(lambda: any(one.waiting_for == wait for one in client.statuses))
    return next(one for one in client.statuses if one.waiting_for == wait)


def test_a_call_says_what_it_waits_for() -> None:
    async def story(stage: GroupStage) -> None:
        async with consuming(stage) as first, consuming(stage) as second, consuming(stage) as third:
            await first.join(heartbeat_interval_ms=200)
            assert "credits" in (await status(first, pb.CONSUME_WAIT_CREDITS)).reason
            await first.send(credits=1000)
            assert (await status(first, pb.CONSUME_WAIT_RECORDS)).reason == "no new records in 2 partitions"
            await stage.write(10)
            await first.until(lambda: len(first.got) == 20)
            await second.join(heartbeat_interval_ms=200, credits=9)
            await first.until(lambda: "revoked" in first.news)
            (moved,) = {0, 1} - first.owned
            held = await status(first, pb.CONSUME_WAIT_RELEASE)
            assert [(one.topic, one.partition) for one in held.unreleased] == [("t", moved)]
            assert "the other members of group 'g'" in (await status(second, pb.CONSUME_WAIT_ASSIGNMENT)).reason
            await first.acknowledge_all()
            await first.send(released=(moved,))
            assert (await status(first, pb.CONSUME_WAIT_RECORDS)).reason == "no new records in 1 partitions"
            await third.join(heartbeat_interval_ms=200, topics=["later", "never"], group="other")
            waiting = await status(third, pb.CONSUME_WAIT_ASSIGNMENT)
            assert list(waiting.unknown_topics) == ["later", "never"]
            assert "do not exist (yet): later, never" in waiting.reason
            await stage.create("later", 1)
            await third.until(lambda: third.owned == {0})
            assert list((await status(third, pb.CONSUME_WAIT_CREDITS)).unknown_topics) == ["never"]

    run_story(story)


def test_statuses_come_only_while_nothing_else_does() -> None:
    async def story(stage: GroupStage) -> None:
        async with consuming(stage) as client:
            await client.join(credits=1_000_000, heartbeat_interval_ms=4_000)
            await client.until(lambda: client.owned == {0, 1})
            for _ in range(12):
                await stage.write(1)
                await client.until(lambda: len(client.got) == 2 * stage.written)
                await asyncio.sleep(1)
            assert client.statuses == []
            await status(client, pb.CONSUME_WAIT_RECORDS)

    run_story(story)


def test_a_member_that_cannot_join_says_why() -> None:
    async def story(stage: GroupStage) -> None:
        async with consuming(stage, 1) as first, consuming(stage, 2) as second:
            await first.join(instance_id="i")
            await first.until(lambda: first.owned == {0, 1})
            await second.join(instance_id="i", heartbeat_interval_ms=200)
            joining = await status(second, pb.CONSUME_WAIT_MEMBERSHIP)
            await second.until(lambda: "instance" in second.statuses[-1].reason)
            assert joining.reason.startswith("joining group 'g'")

    run_story(story, nodes=3)


def test_an_unknown_topic_is_an_error_by_choice() -> None:
    async def story(stage: GroupStage) -> None:
        async with consuming(stage) as client:
            await client.join(topics=["t", "missing"], on_unknown_topic=pb.UNKNOWN_TOPIC_POLICY_FAIL)
            with pytest.raises(UnknownTopicOrPartitionError) as refused:
                await client.until(lambda: False)
            assert (refused.value.details["topic"], refused.value.details["field"]) == ("missing", "join.topics")
        async with consuming(stage) as client:
            await client.join(topics=["t"], on_unknown_topic=pb.UNKNOWN_TOPIC_POLICY_FAIL)
            await client.until(lambda: client.owned == {0, 1})

    run_story(story)


async def commit_in_transaction(stage: GroupStage, member: groups_pb2.GroupMember, places: dict[int, int]) -> str:
    """Offsets of the group by a transactional stream; the code of their refusal."""
    channel = stage.ports.network.connect("n1:9092")
    rows = [groups_pb2.OffsetToCommit(topic="t", partition=one, offset=at) for one, at in places.items()]
    try:
        async with calls.stream(channel, "streamlog.v1.Records/PublishStream", pb.PublishStreamResponse) as stream:
            writer = pb.TransactionalWriter(transactional_id="x")
            offsets = pb.TransactionOffsets(group="g", member=member, offsets=rows)
            request = pb.PublishStreamRequest(transactional=writer, offsets=[offsets], end=pb.TRANSACTION_END_COMMIT)
            await stream.send(request)
            response = await stream.recv()
            assert response is not None
            return response.error.message
    finally:
        await channel.close()


def test_a_transactional_member_keeps_revoked_partitions_until_it_releases_them() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage, 1) as first, consuming(stage, 2) as second:
            await first.join(credits=1000)
            await first.until(lambda: len(first.got) == 20)
            await second.join(credits=1000, heartbeat_interval_ms=500)
            await first.until(lambda: "revoked" in first.news)
            (moved,) = {0, 1} - first.owned
            await status(second, pb.CONSUME_WAIT_ASSIGNMENT)
            await asyncio.sleep(10)
            assert second.owned == set()
            assert first.member is not None
            assert await commit_in_transaction(stage, first.member, {moved: 10}) == ""
            await status(second, pb.CONSUME_WAIT_ASSIGNMENT)
            await first.send(released=(moved,))
            await second.until(lambda: second.owned == {moved})
            await stage.write(1)
            await second.until(lambda: bool(second.got))
            assert second.got == [(moved, 10)]

    run_story(story, nodes=3)


def test_a_transactional_member_that_does_not_release_is_fenced() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)
        async with consuming(stage, 1) as first, consuming(stage, 2) as second:
            await first.join(credits=1000, processing_timeout_ms=5_000)
            await first.until(lambda: len(first.got) == 20)
            member = first.member
            assert member is not None
            await second.join(credits=1000)
            await first.until(lambda: "lost" in first.news)
            refusal = await commit_in_transaction(stage, member, {0: 10, 1: 10})
            assert "ILLEGAL_GENERATION" in refusal or "UNKNOWN_MEMBER_ID" in refusal
            await second.until(lambda: bool(second.got))
            assert second.got[0][1] == 0  # nothing of it was committed
        assert await stage.committed() == [None, None]

    run_story(story, nodes=3)


BAD: list[tuple[pb.ConsumeRequest, str, str]] = [
    (pb.ConsumeRequest(credits=1), "INVALID_REQUEST", "join"),
    (pb.ConsumeRequest(join=pb.ConsumeJoin(topics=["t"])), "INVALID_GROUP_ID", "join.group"),
    (pb.ConsumeRequest(join=pb.ConsumeJoin(group="g")), "INVALID_REQUEST", "join.topics"),
    (pb.ConsumeRequest(join=pb.ConsumeJoin(group="g", topics=["t"]), credits=-1), "INVALID_REQUEST", "credits"),
    (pb.ConsumeRequest(join=pb.ConsumeJoin(group="g", topics=["t"]), credits=1 << 30), "INVALID_REQUEST", "credits"),
    (
        pb.ConsumeRequest(join=pb.ConsumeJoin(group="g", pattern="(")),
        "INVALID_REGULAR_EXPRESSION",
        "subscription.pattern",
    ),
    (
        pb.ConsumeRequest(join=pb.ConsumeJoin(group="g", topics=["t"], assignor="best")),
        "UNSUPPORTED_ASSIGNOR",
        "join.assignor",
    ),
]


def test_what_is_refused() -> None:
    async def story(stage: GroupStage) -> None:
        for request, code, field in BAD:
            async with consuming(stage) as client:
                await client._stream.send(request)
                with pytest.raises(StreamlogError) as refused:
                    await client.until(lambda: False)
                assert (refused.value.code, refused.value.details.get("field")) == (code, field)
        await stage.write(1)
        async with consuming(stage) as client:
            await client.join(credits=9)
            await client.until(lambda: len(client.got) == 2)
            await client.send(acks={0: 1})
            with pytest.raises(StreamlogError, match="offset 1 of t-0 is acknowledged, but only"):
                await client.until(lambda: False)
        async with consuming(stage) as client:
            await client.join(group="g2", offset_reset=pb.OFFSET_RESET_NONE, credits=1)
            with pytest.raises(StreamlogError, match="group 'g2' has no committed offset of t-"):
                await client.until(lambda: False)

    run_story(story)
