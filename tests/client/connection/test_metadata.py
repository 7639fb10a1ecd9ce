"""How often a client opens the watch of its metadata."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import WATCH_GROWS_S, MetadataCache
from streamlog.sim import SimLoop, run
from streamlog.sim.clock import SimClock

ANSWERED_S = 0.5
NAMES = [f"topic-{number}" for number in range(200)]


class SlowNode:
    """Answers each call at a moment within half a second."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def next_address(self) -> str:
        return "n1:9092"

    def learn(self, addresses: Iterable[str]) -> None: ...

    async def ask_any(self, call: object, request: pb.MetadataRequest, *, timeout_s: float) -> pb.MetadataResponse:
        await asyncio.sleep(self._dice.uniform(0, ANSWERED_S))
        topics = [pb.TopicMetadata(topic=one, topic_id=one.encode(), partition_count=1) for one in request.topics]
        return pb.MetadataResponse(topics=topics, metadata_version=1)


def test_topics_that_are_looked_up_one_by_one_share_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Sequence[str]] = []

    async def watch(self: MetadataCache, address: str, topics: Sequence[str]) -> None:
        opened.append(topics)
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(MetadataCache, "_watch", watch)

    async def story(loop: SimLoop) -> None:
        dice = random.Random(1)
        connections = cast(Connections, cast(Any, SlowNode(dice)))
        metadata = MetadataCache(connections, SimClock(loop), Backoff(dice))
        running = asyncio.ensure_future(metadata.run())
        await asyncio.gather(*(metadata.look_up([one], timeout_s=60) for one in NAMES))
        await asyncio.sleep(2 * WATCH_GROWS_S)
        assert sorted(opened[-1]) == sorted(NAMES)
        assert len(opened) <= ANSWERED_S / WATCH_GROWS_S + 2
        before = len(opened)
        await metadata.look_up(["another"], timeout_s=60)
        await asyncio.sleep(0.001)
        assert len(opened) == before + 1  # this one is not held up
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(story, seed=1)
