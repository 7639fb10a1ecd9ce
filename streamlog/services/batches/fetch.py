"""Fetch: a read of some partitions, which waits for data if need be (long poll).

    read all --enough, an error, or no wait asked for--> answer
             --too little--> drop it, watch them; when one moves, read that one --enough, or the time is over--> read
                             all again --> answer

A poll that waits costs nothing: it is woken by the partitions that it waits for, and holds no records, only how many
bytes there were (as Kafka's DelayedFetch). Answers are filled in the order of the request. A response is bounded; its
first batch comes whole, however large, or nobody could ever read it. What is read counts as outgoing
(`services.outgoing`) until gRPC has let go of the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from streamlog.api.convert.fetch import fetch_request
from streamlog.api.fetched import Fetched, encode
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import FetchSettings, PartitionFetch
from streamlog.api.service import Call
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.config.node_settings import FETCH_MAX_BYTES
from streamlog.errors import StreamlogError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.model import Appended
from streamlog.services.batches.partition_fetch import (
    NOTHING,
    PARTITION_OVERHEAD,
    diverging,
    fetched,
    not_fetched,
    read_batches,
)
from streamlog.services.batches.partition_leader import PartitionLeaders, within
from streamlog.services.common.outgoing import MESSAGE_BYTES_MIN, OutgoingBytes, Reader

ROOM_WAIT_MS: Final = 10_000
"""How long a fetch waits at most until the node may hold its answer."""


class FetchHandler:
    def __init__(self, leaders: PartitionLeaders, configs: NodeConfigs, outgoing: OutgoingBytes) -> None:
        self._leaders = leaders
        self._configs = configs
        self._outgoing = outgoing

    async def fetch(self, request: pb.FetchRequest, call: Call) -> bytes:
        """A FetchResponse. ThrottledError where the node holds too much for others for too long."""
        wanted = fetch_request(request)
        room = min(wanted.settings.response_bytes_max, self._configs.node[FETCH_MAX_BYTES])
        reader = self._outgoing.reader()
        poll = _Poll(self._leaders, wanted.settings, room, reader)
        parts = [_Part(fetch) for fetch in wanted.fetches]
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + within(wanted.settings.wait_ms_max, call)
        is_held = False
        try:
            await self._read(poll, parts, call)
            while not poll.is_enough and loop.time() < wait_until:
                poll.drop(parts)
                await poll.wait(parts, wait_until)
                await self._read(poll, [part for part in parts if part.readable_bytes], call)
            message = encode(poll.answers(parts))
            if reader.held_bytes:
                reader.try_keep(len(message))
                reader.on_end = call.info.abandon
                is_held = call.info.on_release(reader.close)
            return message
        finally:
            if not is_held:
                reader.close()

    async def _read(self, poll: _Poll, parts: Sequence[_Part], call: Call) -> None:
        try:
            async with asyncio.timeout(within(ROOM_WAIT_MS, call)):
                await poll.read(parts)
        except TimeoutError:
            raise self._outgoing.error("the answer to a fetch has waited for too long") from None


class _Part:
    """One partition of the poll."""

    __slots__ = ("answer", "fetch", "has_news", "readable_bytes", "replica")

    def __init__(self, fetch: PartitionFetch) -> None:
        self.fetch = fetch
        self.replica: LeaderReplica | None = None
        self.answer: Fetched | None = None  # with something to tell; while the poll waits none has one
        self.readable_bytes = 0  # that the last look found; 1: there is something to read or to tell
        self.has_news = False  # to be read again


class _Watch:
    """A `ReplicaWatcher` of one partition, while its poll waits."""

    __slots__ = ("_news", "_part", "_woken")

    def __init__(self, part: _Part, woken: list[_Part], news: asyncio.Event) -> None:
        self._part = part
        self._woken = woken
        self._news = news

    def on_appended(self, appended: Appended) -> None:
        """Not readable yet."""

    def on_readable(self) -> None:
        self.wake()

    def on_ended(self, error: StreamlogError) -> None:
        self.wake()

    def wake(self) -> None:
        if not self._part.has_news:
            self._part.has_news = True
            self._woken.append(self._part)
            self._news.set()


class _Poll:
    def __init__(self, leaders: PartitionLeaders, settings: FetchSettings, room: int, reader: Reader) -> None:
        self._leaders = leaders
        self._settings = settings
        self._reader = reader
        self._room_max = room
        self._room = room  # bytes that the response may still take
        self._read_bytes = 0
        self._must_tell = False  # an error, a divergence

    @property
    def is_enough(self) -> bool:
        return self._must_tell or self._read_bytes >= self._settings.bytes_min

    def drop(self, parts: Sequence[_Part]) -> None:
        """What was read, but not how much it was."""
        for part in parts:
            part.answer = None
        self._reader.release()

    async def read(self, parts: Sequence[_Part]) -> None:
        """From the beginning. Waits until the node has room for the answer."""
        least = MESSAGE_BYTES_MIN
        while True:
            self._room = await self._reader.room(self._room_max, least)
            self._read_bytes, self._must_tell = 0, False
            for part in parts:
                part.answer, part.readable_bytes = None, 0
            await self._read_all(parts)
            if self._reader.try_keep(self._read_bytes):
                return
            least = self._read_bytes  # a first batch that is larger than what was granted: again, when there is room
            self.drop(parts)

    async def _read_all(self, parts: Sequence[_Part]) -> None:
        for part in parts:
            if self._room <= 0:
                return
            try:
                part.answer = await self._read(part)
            except StreamlogError as error:
                part.answer = not_fetched(part.fetch, error)
                part.readable_bytes = 1
                self._must_tell = True
            if part.answer is not None:
                self._room -= PARTITION_OVERHEAD + len(part.fetch.ref.topic)

    async def _read(self, part: _Part) -> Fetched | None:
        """None where there is nothing to tell."""
        fetch = part.fetch
        replica = part.replica = self._leaders.leader(fetch.ref)
        answer = diverging(fetch, replica)
        if answer is not None:
            part.readable_bytes = 1
            self._must_tell = True
            return answer
        size_max = min(fetch.bytes_max, self._room)
        batches = await read_batches(replica, fetch.fetch_offset, fetch.end_offset, size_max, self._settings)
        if not batches.data or (batches.size_bytes > self._room and self._read_bytes):
            return None
        part.readable_bytes = len(batches.data)
        self._read_bytes += len(batches.data)
        self._room -= batches.size_bytes
        return fetched(fetch, replica, batches)

    async def wait(self, parts: Sequence[_Part], until: float) -> None:
        """Until there is enough to be read, as far as can be seen without reading all of it, or the time is over."""
        news = asyncio.Event()
        woken: list[_Part] = []
        watches: list[tuple[LeaderReplica, _Watch]] = []
        found_bytes = sum(part.readable_bytes for part in parts)
        try:
            async with asyncio.timeout_at(until):
                for part in parts:
                    self._watch(part, _Watch(part, woken, news), watches)
                while found_bytes < self._settings.bytes_min:
                    await news.wait()
                    news.clear()
                    for part in woken:
                        part.has_news = False
                        if not part.readable_bytes:
                            found_bytes += await self._look(part)
                    woken.clear()
        except TimeoutError:
            pass  # what there is is the answer
        finally:
            for replica, watch in watches:
                replica.unwatch(watch)

    def _watch(self, part: _Part, watch: _Watch, watches: list[tuple[LeaderReplica, _Watch]]) -> None:
        replica = part.replica
        if replica is None:
            return
        try:
            replica.watch(watch)
        except StreamlogError:  # it has ended since it was read: reading again tells why
            watch.wake()
            return
        watches.append((replica, watch))
        is_behind = replica.readable_end(self._settings.isolation_level) > part.fetch.fetch_offset
        if is_behind and not part.readable_bytes:
            watch.wake()

    async def _look(self, part: _Part) -> int:
        """How much one partition that has moved adds to what there is to be read; all that is wanted for what has to
        be told at once. What is read for that is not kept.
        """
        enough, fetch, replica = self._settings.bytes_min, part.fetch, part.replica
        try:
            if replica is None or replica is not self._leaders.leader(fetch.ref) or diverging(fetch, replica):
                part.readable_bytes = 1
                return enough
            if enough <= 1:
                is_behind = replica.readable_end(self._settings.isolation_level) > fetch.fetch_offset
                part.readable_bytes = int(is_behind)
            else:
                size_max = min(fetch.bytes_max, self._room_max)
                found = await read_batches(replica, fetch.fetch_offset, fetch.end_offset, size_max, self._settings)
                part.readable_bytes = len(found.data)
        except StreamlogError:
            part.readable_bytes = 1
            return enough
        return part.readable_bytes

    def answers(self, parts: Sequence[_Part]) -> list[Fetched]:
        """Those with something to tell; of an empty answer all, as far as they fit: they tell the high watermarks."""
        told = [part.answer for part in parts if part.answer is not None]
        if told:
            return told
        for part in parts:
            self._room -= PARTITION_OVERHEAD + len(part.fetch.ref.topic)
            if self._room < 0 and told:
                break
            if part.replica is not None:
                told.append(fetched(part.fetch, part.replica, NOTHING))
        return told
