"""A link whose node stops: what a timer would begin then is not begun, and nothing is logged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from streamlog.broker.following.follower_link import FollowerLink, FollowState
from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.replica_wire import FollowerHello
from streamlog.broker.throttle import Throttle
from streamlog.model import BrokerEpoch, BrokerId
from streamlog.ports import Random, Stream
from streamlog.records.held_batch import HeldBatch


class Replica:
    """As much of a follower's replica as following it again needs."""

    def __init__(self) -> None:
        self.on_ackable_end: Any = None
        self.reads = 0

    async def held(self, count: int) -> Sequence[HeldBatch]:
        self.reads += 1
        return ()


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


async def test_a_timer_that_falls_into_the_end_of_the_node_begins_nothing() -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    stream, replica = SlowToEnd(), Replica()
    made: list[FollowerLink] = []

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            link = FollowerLink(
                tasks,
                throttle=cast(Throttle, None),
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
