"""Fetch: reads some partitions, waiting for data if necessary (long poll).

    read all --enough bytes, an error, or wait_ms_max is 0--> respond
             --too little--> drop the bytes, watch the partitions; when one advances, measure that one
                             --enough bytes, or timeout--> read all again --> respond with what fits

A waiting poll is cheap: its partitions wake it, and it holds no records, only how many bytes there were (as Kafka's
DelayedFetch). One that wants more than a byte is measured first, by the logs' indexes: a poll that will wait reads
nothing before its end.

Responses are filled in the order of the request, and bounded; the first batch is returned whole, whatever its size, or
it could never be read. What is read counts against `queued.max.response.bytes` (`services.common.outgoing`) until
the transport has released the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from streamlog.aio.timeouts import timeout, timeout_at
from streamlog.api.convert.records.fetch import fetch_request
from streamlog.api.fetched import Fetched, encode
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import FetchSettings, PartitionFetch
from streamlog.api.service import Call
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.config.settings.node_settings import FETCH_MAX_BYTES
from streamlog.errors import StreamlogError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.model import Appended
from streamlog.ports import Random
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
"""How long a fetch waits at most for free response bytes of the node."""
LONG_WAIT_S: Final = 5.0
SPREAD: Final = 0.5
"""Long waits end earlier by up to this part, at random: thousands of polls that began together would otherwise end
together, and hold up the node's other callers.
"""


class FetchHandler:
    def __init__(
        self, leaders: PartitionLeaders, configs: NodeConfigs, outgoing: OutgoingBytes, random: Random
    ) -> None:
        self._random = random
        self._leaders = leaders
        self._configs = configs
        self._outgoing = outgoing

    async def fetch(self, request: pb.FetchRequest, call: Call) -> bytes:
        """An encoded FetchResponse. ThrottledError if other clients hold the node's response bytes for too long."""
        wanted = fetch_request(request)
        room = min(wanted.settings.response_bytes_max, self._configs.node[FETCH_MAX_BYTES])
        reader = self._outgoing.reader()
        reader.pace = call.info.pace
        guard = call.info.guard
        leaders = self._leaders if guard is None else self._leaders.guarded(guard, "READ")
        poll = _Poll(leaders, wanted.settings, room, reader)
        parts = [_Part(fetch) for fetch in wanted.fetches]
        loop = asyncio.get_running_loop()
        wait_until = loop.time() + self._spread(within(wanted.settings.wait_ms_max, call))
        is_held = False
        try:
            if wanted.settings.bytes_min > 1 and loop.time() < wait_until and poll.is_too_little(parts):
                await poll.wait(parts, wait_until)
            await self._read(poll, parts, call)
            if not poll.is_enough and loop.time() < wait_until:
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

    def _spread(self, wait_s: float) -> float:
        return wait_s if wait_s < LONG_WAIT_S else wait_s * (1 - SPREAD * self._random.random())

    async def _read(self, poll: _Poll, parts: Sequence[_Part], call: Call) -> None:
        try:
            async with timeout(within(ROOM_WAIT_MS, call)):
                await poll.read(parts)
        except TimeoutError:
            raise self._outgoing.error("a fetch has waited too long for free response bytes") from None


class _Part:
    """One partition of the poll."""

    __slots__ = ("answer", "fetch", "is_woken", "readable_bytes", "replica")

    def __init__(self, fetch: PartitionFetch) -> None:
        self.fetch = fetch
        self.replica: LeaderReplica | None = None
        self.answer: Fetched | None = None  # batches, an error or a divergence; None while the poll waits
        self.readable_bytes = 0  # as of the last read; 1: something is readable, or there is an error or divergence
        self.is_woken = False  # to be read again


class _Watch:
    """A `ReplicaWatcher` of one partition, while its poll waits."""

    __slots__ = ("_part", "_wake", "_woken")

    def __init__(self, part: _Part, woken: list[_Part], wake: asyncio.Event) -> None:
        self._part = part
        self._woken = woken
        self._wake = wake

    def on_appended(self, appended: Appended) -> None:
        """Not readable yet."""

    def on_readable(self) -> None:
        self.wake()

    def on_ended(self, error: StreamlogError) -> None:
        self.wake()

    def wake(self) -> None:
        if not self._part.is_woken:
            self._part.is_woken = True
            self._woken.append(self._part)
            self._wake.set()


class _Poll:
    def __init__(self, leaders: PartitionLeaders, settings: FetchSettings, room: int, reader: Reader) -> None:
        self._leaders = leaders
        self._settings = settings
        self._reader = reader
        self._room_max = room
        self._room = room  # bytes left in the response
        self._read_bytes = 0
        self._must_respond = False  # an error, a divergence

    @property
    def is_enough(self) -> bool:
        return self._must_respond or self._read_bytes >= self._settings.bytes_min

    def is_too_little(self, parts: Sequence[_Part]) -> bool:
        """Whether a read would certainly end with fewer than `bytes_min`, without an error or a divergence."""
        room, found_bytes = self._room_max, 0
        for part in parts:
            size = self._measured(part, min(part.fetch.bytes_max, room)) if room > 0 else 0
            if size is None:
                return False
            part.readable_bytes = size
            found_bytes += size
            room -= size
        return found_bytes < self._settings.bytes_min

    def _measured(self, part: _Part, size_max: int) -> int | None:
        """Readable bytes; None: only reading shows it, or there is an error or a divergence."""
        fetch = part.fetch
        try:
            replica = part.replica = self._leaders.leader(fetch.ref)
            if fetch.end_offset is not None or diverging(fetch, replica) is not None:
                return None
            return replica.try_measure(fetch.fetch_offset, size_max, self._settings.isolation_level)
        except StreamlogError:
            return None

    def drop(self, parts: Sequence[_Part]) -> None:
        """Release what was read; `readable_bytes` stay."""
        for part in parts:
            part.answer = None
        self._reader.release()

    async def read(self, parts: Sequence[_Part]) -> None:
        """All of `parts`, from the start. Waits until the node has free bytes for the response."""
        least = MESSAGE_BYTES_MIN
        while True:
            self._room = await self._reader.reserve(self._room_max, least)
            self._read_bytes, self._must_respond = 0, False
            for part in parts:
                part.answer, part.readable_bytes = None, 0
            await self._read_all(parts)
            if self._reader.try_keep(self._read_bytes):
                return
            least = self._read_bytes  # a first batch larger than the grant: again, once that many bytes are free
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
                self._must_respond = True
            if part.answer is not None:
                self._room -= PARTITION_OVERHEAD + len(part.fetch.ref.topic)

    async def _read(self, part: _Part) -> Fetched | None:
        """None: nothing to return."""
        fetch = part.fetch
        replica = part.replica = self._leaders.leader(fetch.ref)
        answer = diverging(fetch, replica)
        if answer is not None:
            part.readable_bytes = 1
            self._must_respond = True
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
        """Until enough bytes are readable, estimated without reading all partitions, or until the timeout."""
        wake = asyncio.Event()
        woken: list[_Part] = []
        watches: list[tuple[LeaderReplica, _Watch]] = []
        found_bytes = sum(part.readable_bytes for part in parts)
        try:
            async with timeout_at(until):
                for part in parts:
                    self._watch(part, _Watch(part, woken, wake), watches)
                while found_bytes < self._settings.bytes_min:
                    await wake.wait()
                    wake.clear()
                    for part in woken:
                        part.is_woken = False
                        if not part.readable_bytes:
                            found_bytes += await self._read_again(part)
                    woken.clear()
        except TimeoutError:
            pass  # respond with what there is
        finally:
            for replica, watch in watches:
                replica.unwatch(watch)

    def _watch(self, part: _Part, watch: _Watch, watches: list[tuple[LeaderReplica, _Watch]]) -> None:
        replica = part.replica
        if replica is None:
            return
        try:
            replica.watch(watch)
        except StreamlogError:  # the leadership has ended since: reading again returns why
            watch.wake()
            return
        watches.append((replica, watch))
        is_behind = replica.readable_end(self._settings.isolation_level) > part.fetch.fetch_offset
        if is_behind and not part.readable_bytes:
            watch.wake()

    async def _read_again(self, part: _Part) -> int:
        """How many readable bytes a woken partition adds; `bytes_min` for an error or a divergence, which end the wait.
        The bytes are not kept.
        """
        enough, fetch, replica = self._settings.bytes_min, part.fetch, part.replica
        try:
            if replica is None or replica is not self._leaders.leader(fetch.ref) or diverging(fetch, replica):
                part.readable_bytes = 1
                return enough
            if enough <= 1:
                is_behind = replica.readable_end(self._settings.isolation_level) > fetch.fetch_offset
                part.readable_bytes = int(is_behind)
                return part.readable_bytes
            size_max = min(fetch.bytes_max, self._room_max)
            measured = self._measured(part, size_max)
            if measured is None:
                found = await read_batches(replica, fetch.fetch_offset, fetch.end_offset, size_max, self._settings)
                measured = len(found.data)
            part.readable_bytes = measured
        except StreamlogError:
            part.readable_bytes = 1
            return enough
        return part.readable_bytes

    def answers(self, parts: Sequence[_Part]) -> list[Fetched]:
        """Partitions with batches, errors or divergences; if there are none, all that fit, with their high
        watermarks.
        """
        found = [part.answer for part in parts if part.answer is not None]
        if found:
            return found
        for part in parts:
            self._room -= PARTITION_OVERHEAD + len(part.fetch.ref.topic)
            if self._room < 0 and found:
                break
            if part.replica is not None:
                found.append(fetched(part.fetch, part.replica, NOTHING))
        return found
