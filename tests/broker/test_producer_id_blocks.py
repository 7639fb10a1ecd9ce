"""Blocks of producer ids."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.broker.producer_id_blocks import ProducerIdBlocks
from streamlog.errors import QuorumUnavailableError
from streamlog.model import ProducerId


class Blocks:
    """Hands out blocks of three, each after a while."""

    def __init__(self) -> None:
        self.first = 100
        self.asked = 0
        self.error: QuorumUnavailableError | None = None

    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.first += 10
        return ProducerId(self.first), 3


def test_ids_are_given_once_and_a_block_is_asked_for_once() -> None:
    async def run() -> None:
        blocks = Blocks()
        ids = ProducerIdBlocks(blocks)
        given = await asyncio.gather(*(ids.next() for _ in range(7)))
        assert sorted(given) == [110, 111, 112, 120, 121, 122, 130]
        assert blocks.asked == 3

    asyncio.run(run())


def test_a_controller_that_cannot_be_asked_is_asked_again_by_the_next() -> None:
    async def run() -> None:
        blocks = Blocks()
        blocks.error = QuorumUnavailableError("no leader")
        ids = ProducerIdBlocks(blocks)
        with pytest.raises(QuorumUnavailableError):
            await ids.next()
        blocks.error = None
        assert await ids.next() == 110

    asyncio.run(run())


def test_a_block_given_twice_is_not_used() -> None:
    async def run() -> None:
        blocks = Blocks()
        ids = ProducerIdBlocks(blocks)
        for _ in range(3):
            await ids.next()
        blocks.first -= 10
        with pytest.raises(QuorumUnavailableError, match="this node has had those below 113"):
            await ids.next()
        assert await ids.next() == 120

    asyncio.run(run())
