"""A link to a leader: how large its messages may be, the credit it grants, and its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from streamlog.broker.following.follower_link import (
    FOLLOWS_PER_MESSAGE,
    GRANT_BYTES,
    HELD_COUNT,
    FollowerLink,
    FollowState,
)
from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.replica_wire import CREDIT_MAX, REQUEST_BYTES_MAX, FollowerHello, decode_request, encode_request
from streamlog.broker.throttle import UNLIMITED, Throttle
from streamlog.errors import OffsetOutOfRangeError
from streamlog.model import (
    INT32_MAX,
    INT64_MAX,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionId,
    TopicId,
    TopicPartition,
)
from streamlog.ports import Random, Stream
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.follower import FetchPosition
from streamlog.replication.joining import UnprovenEpochs
from tests.support.clocks import FakeClock


class Replica:
    """As much of a follower's replica as following it again needs."""

    topic_id = TopicId(bytes(16))
    partition = TopicPartition("t", PartitionId(INT32_MAX))
    leader_epoch = LeaderEpoch(INT32_MAX)
    saved_log_start = Offset(INT64_MAX)
    is_incomplete = True

    def __init__(self) -> None:
        self.on_ackable_end: Any = None
        self.on_joined: Any = None
        self.reads = 0

    async def restore_producers(self) -> None:
        """They were not lost."""

    async def held(self, count: int) -> Sequence[HeldBatch]:
        self.reads += 1
        return ()

    def position(self) -> FetchPosition:
        return FetchPosition(Offset(INT64_MAX), LeaderEpoch(INT32_MAX), Offset(INT64_MAX), Offset(INT64_MAX))

    def unproven_epochs(self, count: int) -> UnprovenEpochs:
        """As many as may be, and as large."""
        epochs = [(LeaderEpoch(INT32_MAX - count + i), Offset(INT64_MAX - count + i)) for i in range(count)]
        return UnprovenEpochs(Offset(INT64_MAX), epochs)


class SlowToEnd:
    """A stream whose end takes longer than its call's cancellation, as of a connection that does not answer."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def send(self, message: bytes) -> None:
        pass

    async def recv(self) -> bytes | None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await self.may_end.wait()
        return None


def quiet(event: str, /, **fields: object) -> None:
    pass


async def test_what_is_named_of_many_logs_fits_into_messages() -> None:
    held = [
        HeldBatch(Offset(end - 1), Offset(end), LeaderEpoch(INT32_MAX), 2**32 - 1, 2**32 - 1)
        for end in range(INT64_MAX - HELD_COUNT, INT64_MAX)
    ]
    async with asyncio.TaskGroup() as tasks:
        link = FollowerLink(
            tasks, throttle=Throttle(FakeClock()), in_sync=lambda _: True, random=cast(Random, None), probe=quiet
        )
        for _ in range(3 * FOLLOWS_PER_MESSAGE):
            link.follow(cast(FollowerReplica, Replica()))
        for followed in link._followed.values():
            followed.held = held
            link._to_follow[followed] = None
        slots: list[int] = []
        while link._to_follow:
            message = encode_request(link._pending())
            assert len(message) <= REQUEST_BYTES_MAX
            slots += [follow.slot for follow in decode_request(message).follows]
        assert slots == list(range(3 * FOLLOWS_PER_MESSAGE))


async def test_credit_of_a_replica_in_sync_does_not_wait_for_those_that_are_throttled() -> None:
    clock, in_sync = FakeClock(), set[FollowerReplica]()
    async with asyncio.TaskGroup() as tasks:
        link = FollowerLink(
            tasks,
            throttle=Throttle(clock, 1000),
            in_sync=in_sync.__contains__,
            random=cast(Random, None),
            probe=quiet,
        )
        for _ in range(100):
            link.follow(cast(FollowerReplica, Replica()))
        followed = list(link._followed.values())
        link._to_follow.update(dict.fromkeys(followed))
        link._pending()
        assert [one.credit_bytes for one in followed] == [GRANT_BYTES, *[0] * 99]
        waiting, behind = followed[50], followed[0]
        in_sync |= {waiting.replica, behind.replica}
        behind.received_bytes = GRANT_BYTES  # it has joined while it had credit left
        link._request_credit(behind)
        assert behind.credit_bytes == CREDIT_MAX
        waiting.replica.on_joined()
        assert waiting.credit_bytes == CREDIT_MAX
        assert len(link._to_grant) == 98
        assert {waiting, behind} <= link._to_report.keys()
        link._on_closed()


async def test_a_rate_that_is_set_while_replicas_catch_up_holds_for_them_too() -> None:
    """They had been opened without a limit, and copied everything at full speed."""
    throttle, in_sync = Throttle(FakeClock()), set[FollowerReplica]()
    async with asyncio.TaskGroup() as tasks:
        link = FollowerLink(
            tasks, throttle=throttle, in_sync=in_sync.__contains__, random=cast(Random, None), probe=quiet
        )
        for _ in range(3):
            link.follow(cast(FollowerReplica, Replica()))
        followed = list(link._followed.values())
        link._to_follow.update(dict.fromkeys(followed))
        link._pending()
        in_sync.add(followed[2].replica)
        followed[0].received_bytes = followed[1].received_bytes = 1_000_000
        throttle.set_rate(1000)
        link.limit()
        assert [one.credit_bytes for one in followed] == [1_000_000 + GRANT_BYTES, 1_000_000, None]
        assert followed[:2] == list(link._to_report)
        throttle.set_rate(UNLIMITED)
        assert [one.credit_bytes for one in followed] == [1_000_000 + GRANT_BYTES, CREDIT_MAX, None]
        link._on_closed()


async def test_credit_is_granted_at_once_when_the_rate_is_raised() -> None:
    throttle = Throttle(FakeClock(), 1000)
    async with asyncio.TaskGroup() as tasks:
        link = FollowerLink(tasks, throttle=throttle, in_sync=lambda _: False, random=cast(Random, None), probe=quiet)
        for _ in range(3):
            link.follow(cast(FollowerReplica, Replica()))
        followed = list(link._followed.values())
        link._to_follow.update(dict.fromkeys(followed))
        link._pending()
        assert [one.credit_bytes for one in followed] == [GRANT_BYTES, 0, 0]
        throttle.set_rate(UNLIMITED)
        assert [one.credit_bytes for one in followed] == [GRANT_BYTES, CREDIT_MAX, CREDIT_MAX]
        link._on_closed()
        assert not throttle._waiting


@pytest.mark.parametrize(("start", "end"), [(-5, 3), (0, -1), (9, 3), (INT64_MAX + 1, INT64_MAX + 2)])
async def test_bounds_of_a_log_that_cannot_be_are_a_failed_attempt(start: int, end: int) -> None:
    """Not a reason to truncate the log, or to begin it elsewhere."""
    async with asyncio.TaskGroup() as tasks:
        link = FollowerLink(
            tasks, throttle=Throttle(FakeClock()), in_sync=lambda _: True, random=random.Random(1), probe=quiet
        )
        replica = Replica()
        link.follow(cast(FollowerReplica, replica))
        [followed] = link._followed.values()
        link._on_error(followed, OffsetOutOfRangeError("not there", log_start=start, log_end=end))
        assert followed.state is FollowState.REPAIRING
        assert followed.timer is not None
        followed.close()


async def test_a_timer_that_falls_into_the_end_of_the_node_begins_nothing() -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    stream, replica = SlowToEnd(), Replica()
    made: list[FollowerLink] = []

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            link = FollowerLink(
                tasks,
                throttle=Throttle(FakeClock()),
                in_sync=lambda _: True,
                random=cast(Random, None),
                probe=quiet,
            )
            made.append(link)
            hello = FollowerHello("cluster", BrokerId(2), BrokerEpoch(1), BrokerId(1))
            tasks.create_task(link.exchange(cast(Stream, stream), hello))
            await asyncio.get_running_loop().create_future()

    running = asyncio.ensure_future(run())
    while not made or not made[0]._is_open:  # noqa: ASYNC110  until the exchange is open
        await asyncio.sleep(0)
    link = made[0]
    link.follow(cast(FollowerReplica, replica))
    [followed] = link._followed.values()
    while followed.state is not FollowState.WAITING:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert replica.reads == 1
    running.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    link._follow_again(followed)  # as its timer would
    stream.may_end.set()
    await asyncio.wait([running])
    assert replica.reads == 1
    assert problems == []
