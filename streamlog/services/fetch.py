"""Fetch: a read of some partitions, which waits for data if need be (long poll).

    read all --enough, an error, or no wait asked for--> answer
             --too little--> watch them; when one moves, read that one again --enough, or the time is over--> answer

A poll that waits costs nothing: it is woken by the partitions that it waits for. Answers are filled in the order of
the request. A response is bounded; its first batch comes whole, however large, or nobody could ever read it.
"""

from __future__ import annotations

import asyncio

from streamlog.api.convert.fetch import fetch_request
from streamlog.api.fetched import Fetched, encode
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import FetchSettings, PartitionFetch
from streamlog.api.service import Call
from streamlog.broker.leader_replica import LeaderReplica
from streamlog.config.node_settings import FETCH_MAX_BYTES
from streamlog.errors import StreamlogError
from streamlog.metadata.node_configs import NodeConfigs
from streamlog.services.leading import Leaders, within
from streamlog.services.reading import NOTHING, PARTITION_OVERHEAD, diverging, fetched, not_fetched, read_batches
from streamlog.storage.log import Appended


class Fetch:
    def __init__(self, leaders: Leaders, configs: NodeConfigs) -> None:
        self._leaders = leaders
        self._configs = configs

    async def fetch(self, request: pb.FetchRequest, call: Call) -> bytes:
        """A FetchResponse."""
        wanted = fetch_request(request)
        room = min(wanted.settings.response_bytes_max, self._configs.node[FETCH_MAX_BYTES])
        poll = _Poll(self._leaders, wanted.settings, room)
        wait_s = within(wanted.settings.wait_ms_max, call)
        try:
            parts = [_Part(poll, fetch) for fetch in wanted.fetches]
            await poll.read(parts)
            if not poll.is_enough and wait_s > 0:
                await poll.wait(parts, wait_s)
            return encode(poll.answers(parts))
        finally:
            poll.forget()


class _Part:
    """One partition of the poll. It is a `broker.Watcher` of its leader while the poll waits."""

    __slots__ = ("answer", "fetch", "has_news", "poll", "replica")

    def __init__(self, poll: _Poll, fetch: PartitionFetch) -> None:
        self.poll = poll
        self.fetch = fetch
        self.replica: LeaderReplica | None = None
        self.answer: Fetched | None = None  # with something to tell
        self.has_news = False  # to be read again

    def on_appended(self, replica: LeaderReplica, appended: Appended) -> None:
        """Not readable yet."""

    def on_readable(self, replica: LeaderReplica) -> None:
        if self.answer is None:
            self.poll.wake(self)

    def on_ended(self, replica: LeaderReplica, error: StreamlogError) -> None:
        self.poll.wake(self)


class _Poll:
    def __init__(self, leaders: Leaders, settings: FetchSettings, room: int) -> None:
        self._leaders = leaders
        self._settings = settings
        self._room = room  # bytes that the response may still take
        self._read_bytes = 0
        self._must_tell = False  # an error, a divergence
        self._watched: list[_Part] = []
        self._woken: list[_Part] = []
        self._news = asyncio.Event()

    @property
    def is_enough(self) -> bool:
        return self._must_tell or self._read_bytes >= self._settings.bytes_min

    async def read(self, parts: list[_Part]) -> None:
        for part in parts:
            if self._room <= 0:
                return
            try:
                part.answer = await self._read(part)
            except StreamlogError as error:
                part.answer = not_fetched(part.fetch, error)
                self._must_tell = True
            if part.answer is not None:
                self._room -= PARTITION_OVERHEAD + len(part.fetch.ref.topic)

    async def _read(self, part: _Part) -> Fetched | None:
        """None where there is nothing to tell."""
        fetch = part.fetch
        replica = part.replica = self._leaders.leader(fetch.ref)
        answer = diverging(fetch, replica)
        if answer is not None:
            self._must_tell = True
            return answer
        size_max = min(fetch.bytes_max, self._room)
        batches = await read_batches(replica, fetch.fetch_offset, fetch.end_offset, size_max, self._settings)
        if not batches.data or (batches.size_bytes > self._room and self._read_bytes):
            return None
        self._read_bytes += len(batches.data)
        self._room -= batches.size_bytes
        return fetched(fetch, replica, batches)

    async def wait(self, parts: list[_Part], wait_s: float) -> None:
        """Until there is enough, or the time is over."""
        try:
            async with asyncio.timeout(wait_s):
                for part in parts:
                    self._watch(part)
                while not self.is_enough and self._room > 0:
                    await self._news.wait()
                    self._news.clear()
                    woken, self._woken = self._woken, []
                    for part in woken:
                        part.has_news = False
                    await self.read([part for part in woken if part.answer is None])
        except TimeoutError:
            pass  # what there is is the answer

    def _watch(self, part: _Part) -> None:
        replica = part.replica
        if replica is None:
            return
        try:
            replica.watch(part)
        except StreamlogError:  # it has ended since it was read: reading again tells why
            self.wake(part)
            return
        self._watched.append(part)
        if part.answer is None and replica.readable_end(self._settings.isolation_level) > part.fetch.fetch_offset:
            self.wake(part)

    def wake(self, part: _Part) -> None:
        if not part.has_news:
            part.has_news = True
            self._woken.append(part)
            self._news.set()

    def answers(self, parts: list[_Part]) -> list[Fetched]:
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

    def forget(self) -> None:
        for part in self._watched:
            if part.replica is not None:
                part.replica.unwatch(part)
