"""The consumer as a member of a group, against whole nodes: who reads what, from where, and what is committed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from streamlog.client import AsyncAdmin, AsyncConsumer, OffsetAndMetadata
from streamlog.errors import (
    GroupNotEmptyError,
    InvalidConfigError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    MaxPollIntervalError,
    NoOffsetForPartitionError,
    StreamlogError,
    UnknownMemberIdError,
)
from streamlog.model import Offset, PartitionId, TopicPartition

from .group_stage import GroupStage, perform

T0, T1 = TopicPartition("t", PartitionId(0)), TopicPartition("t", PartitionId(1))


async def take(consumer: AsyncConsumer, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while len(found) < count:
        found += [(one.partition, int(one.offset)) for one in await consumer.poll(count - len(found), timeout_s=10)]
    return found


def test_members_come_and_go_and_everything_is_read_once() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(50)
        a = stage.reader("a").start()
        await stage.shared(a)
        await stage.read(a)
        b = stage.reader("b").start()
        assert await stage.shared(a, b) < 1.0
        c = stage.reader("c").start()
        await stage.write(50)
        await stage.read(a, b)
        assert c.owned == set()
        await a.close()
        assert a.calls[-1][0] == "revoked"
        assert await stage.shared(b, c) < 0.3
        await stage.write(50)
        await stage.read(a, b, c)
        got = [at for reader in (a, b, c) for at in reader.got]
        assert len(got) == len(set(got)) == 300
        await b.close()
        await c.close()
        assert await stage.committed() == [150, 150]

    perform(story, seeds=3)


def test_a_member_that_is_killed_is_replaced_and_nothing_is_skipped() -> None:
    async def story(stage: GroupStage) -> None:
        a, b = (stage.reader(name, auto_commit_interval_ms=100).start() for name in "ab")
        waiting = stage.reader("c", auto_commit_interval_ms=100).start()
        await stage.nodes.until(lambda: sum(len(one.owned) for one in (a, b, waiting)) == 2)
        await stage.write(200)
        await stage.read(a, b, waiting)
        victim = next(one for one in (a, b, waiting) if one.owned)
        victim.crash()
        others = [one for one in (a, b, waiting) if one is not victim]
        assert await stage.shared(*others) < 0.3
        await stage.write(100)
        await stage.read(a, b, waiting)

    perform(story, seeds=3)


def test_two_groups_get_everything_each() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(30)
        a, b = stage.reader("a", group_id="g1").start(), stage.reader("b", group_id="g2").start()
        await stage.read(a)
        await stage.read(b)
        await a.close()
        assert await stage.committed(group="g1") == [30, 30]
        assert await stage.committed(group="g2") in ([None, None], [30, 30])

    perform(story)


def test_a_coordinator_that_dies_changes_nothing_for_its_members() -> None:
    async def story(stage: GroupStage) -> None:
        a, b = (stage.reader(name, auto_commit_interval_ms=200).start() for name in "ab")
        await stage.shared(a, b)
        await stage.write(50)
        await stage.read(a, b)
        owned, calls = [set(a.owned), set(b.owned)], [list(a.calls), list(b.calls)]
        old = stage.coordinator()
        stage.nodes.host(old).crash()
        await stage.write(50)
        await stage.read(a, b)
        await stage.nodes.until(lambda: stage.coordinator() not in (old, -1))
        await asyncio.sleep(5)
        assert [a.owned, b.owned] == owned
        assert [a.calls, b.calls] == calls
        b.crash()
        assert await stage.shared(a) < 0.5
        await a.close()
        assert await stage.committed() == [100, 100]

    perform(story, nodes=3, seeds=3)


def test_a_broken_stream_is_a_loss_and_the_member_comes_back() -> None:
    async def story(stage: GroupStage) -> None:
        a = stage.reader("a").start()
        await stage.shared(a)
        stage.nodes.world.fabric.reset("a", "n1")
        await stage.nodes.until(lambda: [kind for kind, _ in a.calls] == ["assigned", "lost", "assigned"])
        await stage.write(10)
        await stage.read(a)

    perform(story)


def test_a_static_member_that_returns_keeps_its_partitions_and_nobody_notices() -> None:
    async def story(stage: GroupStage) -> None:
        a, b = (stage.reader(name, group_instance_id=name).start() for name in "ab")
        await stage.shared(a, b)
        owned, before = set(a.owned), len(b.calls)
        a.crash()
        await asyncio.sleep(2)
        a.start()
        await stage.shared(a, b)
        assert a.owned == owned
        assert len(b.calls) == before
        await a.close()
        await asyncio.sleep(2)
        assert len(b.calls) == before

    perform(story)


def test_one_that_handles_too_long_is_put_out_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: GroupStage) -> None:
        caplog.clear()
        await stage.write(3)
        slow = stage.reader("slow", max_poll_interval_ms=10_000, enable_auto_commit=False)
        slow.handling_s, slow.too_slow = 20.0, True
        slow.start()
        await stage.nodes.until(lambda: len(slow.got) == 1)
        begin = stage.nodes.world.loop.now
        await stage.nodes.until(lambda: slow.consumer.member_id is None)
        assert 10 <= stage.nodes.world.loop.now - begin < 10.6
        other = stage.reader("other").start()
        await stage.nodes.until(lambda: len(other.owned) == 2)
        slow.handling_s = 0.0
        await stage.nodes.until(lambda: [kind for kind, _ in slow.calls] == ["assigned", "lost", "assigned"])
        assert sum("this member leaves" in record.getMessage() for record in caplog.records) == 1
        assert "the consumer has not polled for" in caplog.text

    perform(story)


def test_heartbeats_go_on_while_a_handler_takes_its_time() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(2)
        slow = stage.reader("slow", session_timeout_ms=6_000)
        slow.handling_s = 60.0
        slow.start()
        await stage.nodes.until(lambda: len(slow.got) == 2, within_s=100)
        assert [kind for kind, _ in slow.calls] == ["assigned"]

    perform(story)


def test_what_was_processed_is_committed_and_nothing_else() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10, partitions=1)

        async def work(fails: bool) -> None:
            async with stage.consumer(stage.ports) as consumer:
                consumer.subscribe(["t"])
                assert await take(consumer, 3) == [(0, at) for at in range(await first(), await first() + 3)]
                assert len(await consumer.poll(2, timeout_s=10)) == 2
                if fails:
                    raise ZeroDivisionError

        async def first() -> int:
            return (await stage.committed())[0] or 0

        with pytest.raises(ZeroDivisionError):
            await stage.client.spawn(work(True))
        assert await stage.committed() == [3, 0]
        await stage.client.spawn(work(False))
        assert await stage.committed() == [8, 0]

    perform(story)


def test_auto_commit_goes_on_by_itself_and_leaves_out_what_is_being_handled() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(3, partitions=1)
        reader = stage.reader("a", auto_commit_interval_ms=500)
        reader.handling_s = 5.0
        reader.start()
        await stage.nodes.until(lambda: len(reader.got) == 2)
        await asyncio.sleep(1)
        assert (await stage.committed())[0] == 1
        await stage.nodes.until(lambda: len(reader.got) == 3)
        await asyncio.sleep(6)
        assert (await stage.committed())[0] == 3

    perform(story)


def test_commits_by_hand() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10, partitions=1)

        async def work() -> None:
            async with stage.consumer(stage.ports, enable_auto_commit=False) as consumer:
                consumer.subscribe(["t"])
                some = await consumer.poll(5, timeout_s=10)
                assert (await consumer.committed([T0]))[T0] is None
                await consumer.commit(some[1])
                assert await stage.committed() == [2, None]
                await consumer.commit()
                found = (await consumer.committed([T0]))[T0]
                assert found is not None
                assert (found.offset, found.leader_epoch) == (5, 0)
                await consumer.commit_async({T0: 7})
                await consumer.commit({("t", 0): OffsetAndMetadata(Offset(8), metadata="here")})
                found = (await consumer.committed([T0, T1]))[T0]
                assert found is not None
                assert (found.offset, found.metadata) == (8, "here")
                with pytest.raises(StreamlogError, match=r"t-9: .*does not exist"):
                    await consumer.commit({("t", 9): 1, T0: 9})
                assert (await stage.committed())[0] == 9
                await consumer.poll(5, timeout_s=1)
            assert (await stage.committed())[0] == 9

        await stage.client.spawn(work())

    perform(story)


def test_where_a_member_begins_without_a_commit() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)

        async def position(reset: str) -> Any:
            async with stage.consumer(stage.ports, auto_offset_reset=reset, group_id=f"g-{reset[:4]}") as consumer:
                consumer.subscribe(["t"])
                await consumer.poll(1, timeout_s=3)
                return await consumer.position(T1, timeout_s=3)

        assert await stage.client.spawn(position("latest")) == 10
        assert await stage.client.spawn(position("by_duration:PT1H")) == 0
        with pytest.raises(NoOffsetForPartitionError, match="group 'g-none' has no committed offset of t-"):
            await stage.client.spawn(position("none"))

    perform(story)


def test_assignment_by_hand_with_a_group() -> None:
    async def story(stage: GroupStage) -> None:
        await stage.write(10)

        async def work() -> None:
            async with stage.consumer(stage.ports) as consumer:
                await consumer.assign([T0])
                assert await take(consumer, 4) == [(0, at) for at in range(4)]
                with pytest.raises(InvalidRequestError, match="assigned with assign"):
                    consumer.subscribe(["t"])
            assert await stage.committed() == [4, None]
            async with stage.consumer(stage.ports) as consumer:
                await consumer.assign([T0])
                assert await take(consumer, 2) == [(0, 4), (0, 5)]
                await consumer.assign({T0: 9})
                assert await take(consumer, 1) == [(0, 9)]
            member = stage.reader("m").start()
            await stage.shared(member)
            async with stage.consumer(stage.ports, enable_auto_commit=False) as consumer:
                await consumer.assign([T0])
                with pytest.raises(GroupNotEmptyError):
                    await consumer.commit({T0: 1})

        await stage.client.spawn(work())

    perform(story)


def test_patterns_growth_and_deletion() -> None:
    async def story(stage: GroupStage) -> None:
        reader = stage.reader("a").start([], pattern="t|u.*")
        await stage.shared(reader)
        await stage.create("u1", 3)
        await stage.nodes.until(lambda: len(reader.owned) == 5)

        async def change() -> None:
            async with AsyncAdmin(ports=stage.ports, bootstrap_servers=stage.bootstrap) as admin:
                await admin.grow_topic("t", 4)
                await admin.delete_topic("u1")

        await stage.client.spawn(change())
        await stage.nodes.until(lambda: reader.owned == {TopicPartition("t", PartitionId(n)) for n in range(4)})
        await stage.write(5, partitions=4)
        await stage.read(reader, partitions=4)

    perform(story)


def test_what_is_refused() -> None:
    async def story(stage: GroupStage) -> None:
        async def work() -> None:
            async with stage.consumer(stage.ports) as consumer:
                for given in ([None], ["t", b"t"]):
                    with pytest.raises(InvalidRequestError, match="a topic must be a name"):
                        consumer.subscribe(cast(Any, given))
                for at in (5.5, -1, 2**63, OffsetAndMetadata(cast(Any, 5.5))):
                    with pytest.raises(InvalidRequestError, match="offset must be an integer from 0"):
                        await consumer.commit({T0: cast(Any, at)})
                consumer.subscribe(pattern="(")
                for _ in range(2):
                    with pytest.raises(InvalidRegularExpressionError):
                        await consumer.poll(timeout_s=5)
                with pytest.raises(UnknownMemberIdError):
                    await consumer.commit({T0: 1})
                consumer.subscribe(["t"])
                await consumer.poll(timeout_s=1)
                assert list(consumer.assignment) == [T0, T1]
                with pytest.raises(InvalidRequestError, match="is subscribed"):
                    await consumer.assign([T0])
                await consumer.unsubscribe()
                assert list(consumer.assignment) == []
                await consumer.assign([T0])
            async with AsyncConsumer(ports=stage.ports, bootstrap_servers=stage.bootstrap) as alone:
                with pytest.raises(InvalidConfigError, match=r"set group\.id"):
                    alone.subscribe(["t"])

        await stage.client.spawn(work())
        assert issubclass(MaxPollIntervalError, StreamlogError)

    perform(story)
