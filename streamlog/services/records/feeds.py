"""Batches of many partitions from their leaders, for Subscribe: one fetch stream for each node that leads.

A feed is a FetchStream, to another node over the network, or to this node in process. It passes messages to one
receiver, and reads no further until the receiver is done with one; so to the leader a slow client is a stream that is
not read. A message counts against `queued.max.response.bytes` (`services.common.outgoing`), as bytes of the feed's
reader, until the receiver has passed on all of it. The receiver is notified once of the end of a feed.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from streamlog.aio.call_time import counted
from streamlog.api import calls, fetched
from streamlog.api.fetched import Fetched
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.service import Requests, Responses
from streamlog.errors import BrokerNotAvailableError, StreamlogError, clear_tracebacks
from streamlog.model import BrokerId
from streamlog.services.batches.fetch_stream import FetchStreams
from streamlog.services.common.forwarding import Peers
from streamlog.services.common.outgoing import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_FETCH_STREAM: Final = "streamlog.v1.Batches/FetchStream"
_ADD_MAX: Final = 1_000  # partitions in one message


class _Exchange(Protocol):
    async def send(self, request: pb.FetchStreamRequest, /) -> None: ...

    async def recv(self) -> list[Fetched] | None: ...


class FeedReceiver(Protocol):
    async def on_fetched(self, answer: list[Fetched]) -> None:
        """Returns once all of it has been passed on."""
        ...

    def on_feed_lost(self, leader: BrokerId, error: StreamlogError) -> None: ...


class FeedSource:
    def __init__(self, node_id: BrokerId, fetch_streams: FetchStreams, peers: Peers) -> None:
        self._me = node_id
        self._fetch_streams = fetch_streams
        self._peers = peers

    def open(self, leader: BrokerId, reader: Reader) -> AbstractAsyncContextManager[_Exchange]:
        """Leaving the block ends the stream. StreamlogError."""
        return self._here(reader) if leader == self._me else self._there(leader, reader)

    @asynccontextmanager
    async def _there(self, leader: BrokerId, reader: Reader) -> AsyncIterator[_Exchange]:
        channel = await self._peers.channel(leader)
        async with calls.decoded_stream(channel, _FETCH_STREAM, fetched.decode) as stream:
            yield _Counted(stream, reader)

    @asynccontextmanager
    async def _here(self, reader: Reader) -> AsyncIterator[_Exchange]:
        pipe = _Pipe()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(counted(self._serve(pipe, reader)))
            try:
                yield pipe
            finally:
                serving.cancel()

    async def _serve(self, pipe: _Pipe, reader: Reader) -> None:
        try:
            await self._fetch_streams.serve(_PipeRequests(pipe), _PipeResponses(pipe), reader)
        except asyncio.CancelledError as error:
            clear_tracebacks(error)
            raise
        except StreamlogError:
            pass
        except ExceptionGroup as group:
            _, others = group.split(StreamlogError)
            if others is not None:
                raise
            clear_tracebacks(group)
        # `close` ends the feed's `recv`; its partitions are placed again.
        finally:
            pipe.close()


class Feed:
    """Of one node. `run` it; `add` partitions at any time."""

    def __init__(
        self, leader: BrokerId, source: FeedSource, settings: pb.FetchSettings, receiver: FeedReceiver, reader: Reader
    ) -> None:
        self._leader = leader
        self._source = source
        self._settings = settings
        self._receiver = receiver
        self._reader = reader
        self._wanted: list[pb.FetchPartition] = []
        self._wake = asyncio.Event()

    def add(self, part: pb.FetchPartition) -> None:
        """Start to read it; one that is read already continues at its new offset."""
        self._wanted.append(part)
        self._wake.set()

    async def run(self) -> None:
        try:
            async with self._source.open(self._leader, self._reader) as exchange, asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(counted(self._send(exchange)))
                while (answer := await exchange.recv()) is not None:
                    await self._receiver.on_fetched(answer)
                sending.cancel()
            trouble: StreamlogError = BrokerNotAvailableError(f"node {self._leader} ended the fetch stream")
        except StreamlogError as error:
            trouble = error
            clear_tracebacks(error)
        except asyncio.CancelledError as error:
            clear_tracebacks(error)
            raise
        except ExceptionGroup as group:
            ours, others = group.split(StreamlogError)
            if others is not None or ours is None:
                raise
            trouble = BrokerNotAvailableError(f"the fetch stream to node {self._leader} failed: {ours.exceptions[0]}")
            clear_tracebacks(group)
            del ours, others
        finally:
            self._reader.close()
        self._receiver.on_feed_lost(self._leader, trouble)

    async def _send(self, exchange: _Exchange) -> None:
        settings: pb.FetchSettings | None = self._settings
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                parts, self._wanted = self._wanted[:_ADD_MAX], self._wanted[_ADD_MAX:]
                await exchange.send(pb.FetchStreamRequest(settings=settings, add=parts))
                settings = None


class _Counted:
    """The stream to another node. A message is counted until the next one is requested."""

    def __init__(self, stream: calls.CallStream[list[Fetched]], reader: Reader) -> None:
        self._stream = stream
        self._reader = reader

    async def send(self, request: pb.FetchStreamRequest, /) -> None:
        await self._stream.send(request)

    async def recv(self) -> list[Fetched] | None:
        self._reader.release()
        if self._reader.pace is not None and self._reader.pace.active:
            await self._reader.pace.wait()
        answer = await self._stream.recv()
        if answer is not None:
            size = sum(len(got.batches) for got in answer)
            await self._reader.reserve(size, size)
        return answer


class _Pipe:
    """Both directions between a feed and a handler in this process. A message is taken once the next one is
    requested.
    """

    def __init__(self) -> None:
        self.up: asyncio.Queue[pb.FetchStreamRequest] = asyncio.Queue()  # bounded by the partitions of a call
        self.down: asyncio.Queue[list[Fetched] | None] = asyncio.Queue()  # one at most, and None: the handler has ended
        self.taken = asyncio.Semaphore(0)
        self._has_one = False

    async def send(self, request: pb.FetchStreamRequest, /) -> None:
        self.up.put_nowait(request)

    async def recv(self) -> list[Fetched] | None:
        """None once the handler has ended, after all that it sent."""
        if self._has_one:
            self.taken.release()
        answer = await self.down.get()
        self._has_one = answer is not None
        return answer

    def close(self) -> None:
        self.down.put_nowait(None)


class _PipeRequests(Requests[pb.FetchStreamRequest]):
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def recv(self) -> pb.FetchStreamRequest | None:
        return await self._pipe.up.get()


class _PipeResponses(Responses[pb.FetchStreamResponse]):
    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe

    async def send_encoded(self, data: bytes) -> None:
        self._pipe.down.put_nowait(fetched.decode(data))
        await self._pipe.taken.acquire()
