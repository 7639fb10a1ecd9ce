"""Markers that are held for the first batch of the transaction behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from streamlog.broker.append.held_markers import HOLD_S
from streamlog.errors import NotLeaderError
from streamlog.model import Acks, Appended, ProducerEpoch
from tests.broker.producing import PID, begin, transactional
from tests.broker.rig import QUEUED, Opening, Rig


class Holding:
    """A transaction of epoch 0, and its marker, which is held until the next one begins."""

    def __init__(self, rig: Rig) -> None:
        self.leader = rig.leader()
        self.asked = 0

    def mark(self, epoch: int = 1) -> asyncio.Task[Appended]:
        return asyncio.ensure_future(self.leader.markers.append_with_next(PID, ProducerEpoch(epoch), 0, commit=True))

    async def held(self) -> asyncio.Task[Appended]:
        marking = self.mark()
        await asyncio.sleep(0)
        assert self.leader.log_end_offset == 1
        return marking

    async def send(self, epoch: int) -> Appended:
        async def count() -> None:
            self.asked += 1

        data = transactional(b"b", epoch=epoch)
        return await self.leader.appends.append(data, Acks.LEADER, QUEUED, Opening(count))


def hold(rig: Rig, story: Callable[[Holding], Awaitable[None]]) -> None:
    begin(rig, b"a")

    async def playing() -> None:
        await story(Holding(rig))

    rig.machine.run(playing())


def test_a_marker_is_appended_with_the_first_batch_of_the_next_transaction(leading: Rig) -> None:
    async def story(scene: Holding) -> None:
        marking = await scene.held()
        sent = asyncio.ensure_future(scene.send(1))
        await asyncio.sleep(0)
        assert scene.leader.log_end_offset == 3, "in one step"
        assert ((await marking).first_offset, (await sent).first_offset, scene.asked) == (1, 2, 0)

    hold(leading, story)


def test_a_marker_that_nothing_follows_waits_a_moment(leading: Rig) -> None:
    async def story(scene: Holding) -> None:
        marking = await scene.held()
        await asyncio.sleep(2 * HOLD_S)
        assert scene.leader.log_end_offset == 2
        assert not (await marking).duplicate
        assert (await scene.send(1)).first_offset == 2
        assert scene.asked == 0

    hold(leading, story)


def test_a_marker_that_a_batch_waits_for_is_not_held(leading: Rig) -> None:
    async def story(scene: Holding) -> None:
        sent = asyncio.ensure_future(scene.send(1))
        await asyncio.sleep(0)
        marking = scene.mark()
        await asyncio.sleep(0)
        assert scene.leader.log_end_offset >= 2
        assert ((await marking).first_offset, (await sent).first_offset, scene.asked) == (1, 2, 0)

    hold(leading, story)


def test_what_comes_of_a_producer_comes_behind_its_held_marker(leading: Rig) -> None:
    """The marker of a transaction that was decided to commit, and that of a later abort."""

    async def story(scene: Holding) -> None:
        marking = await scene.held()
        abort = scene.leader.markers.append(PID, ProducerEpoch(2), 0, commit=False)
        assert ((await marking).first_offset, abort.first_offset) == (1, 2)
        await asyncio.sleep(2 * HOLD_S)
        assert scene.leader.log_end_offset == 3

    hold(leading, story)


def test_what_a_held_marker_grants_can_be_taken_back(leading: Rig) -> None:
    async def story(scene: Holding) -> None:
        marking = await scene.held()
        assert not scene.leader.markers.revoke_grant(PID, ProducerEpoch(1))
        assert (await marking).first_offset == 1
        await scene.send(1)
        assert scene.asked == 1

    hold(leading, story)


def test_a_held_marker_that_comes_again_is_one(leading: Rig) -> None:
    async def story(scene: Holding) -> None:
        first = await scene.held()
        again = scene.mark()
        assert [(await one).duplicate for one in (first, again)] == [False, True]

    hold(leading, story)


def test_a_held_marker_ends_with_the_leadership(leading: Rig) -> None:
    async def story(scene: Holding) -> None:
        marking = await scene.held()
        scene.leader.end(NotLeaderError("another leads"))
        with pytest.raises(NotLeaderError, match="another leads"):
            await marking
        await asyncio.sleep(2 * HOLD_S)
        assert scene.leader.log_end_offset == 1

    hold(leading, story)


def test_a_held_marker_that_no_call_waits_for_any_more_is_not_appended(leading: Rig) -> None:
    """Its coordinator asks again."""

    async def story(scene: Holding) -> None:
        marking = await scene.held()
        marking.cancel()
        await asyncio.sleep(2 * HOLD_S)
        assert scene.leader.log_end_offset == 1
        assert not (await scene.mark()).duplicate

    hold(leading, story)
