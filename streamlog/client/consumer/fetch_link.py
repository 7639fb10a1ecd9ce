"""The fetch stream from one node, for all partitions of a consumer that the node leads.

    add(reader), remove(reader) --> changes --FetchStream--> parts of partitions --> FetchListener

The stream is opened when there is a partition to read, and again, after a back-off, when it breaks. Each addition has a
correlation id, so parts that were sent before a seek are ignored. Responses are received only while the consumer's
buffer has space, which holds up the node by flow control.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Protocol

from streamlog.api import calls, fetched
from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.until_one_ends import run_until_one_ends
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.errors import NetworkError, StreamlogError
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports import Buffer

_METHOD: Final = "streamlog.v1.Batches/FetchStream"


class FetchListener(Protocol):
    """Notified by a link: the consumer's fetcher."""

    def on_part(self, reader: PartitionReader, part: pb.FetchedPartition, batches: Buffer) -> None: ...

    def on_broken(self, link: FetchLink, error: StreamlogError) -> None:
        """The stream broke; it will be opened again, for the same partitions."""
        ...

    async def wait_until_space(self) -> None:
        """In the consumer's buffer."""
        ...

    def next_correlation(self) -> int: ...


class FetchLink:
    def __init__(
        self,
        address: str,
        connections: Connections,
        listener: FetchListener,
        settings: pb.FetchSettings,
        bytes_max: int,
        backoff: Backoff,
    ) -> None:
        """`bytes_max`: of one partition in one response."""
        self.address = address
        self._connections = connections
        self._listener = listener
        self._settings = settings
        self._bytes_max = bytes_max
        self._backoff = backoff
        self._loop = asyncio.get_running_loop()
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._changes: dict[TopicPartition, None] = {}  # to be sent to the node
        self._changed = asyncio.Event()

    def add(self, reader: PartitionReader) -> None:
        """Fetch it from its fetch offset on."""
        reader.link = self
        reader.correlation = self._listener.next_correlation()
        self._readers[reader.partition] = reader
        self._change(reader.partition)

    def remove(self, reader: PartitionReader) -> None:
        """Stop fetching it."""
        reader.link = None
        self.ended(reader)
        self._change(reader.partition)

    def ended(self, reader: PartitionReader) -> None:
        """The node has stopped sending it."""
        if self._readers.get(reader.partition) is reader:
            del self._readers[reader.partition]
        if reader.link is self:
            reader.link = None

    def _change(self, partition: TopicPartition) -> None:
        self._changes[partition] = None
        self._changed.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            while not self._readers:
                self._changed.clear()
                await self._changed.wait()
            began = self._loop.time()
            try:
                await self._stream()
                error: StreamlogError = NetworkError(f"{self.address} has closed the fetch stream")
            except StreamlogError as broken:
                error = broken
            self._listener.on_broken(self, error)
            failures = 1 if self._loop.time() - began > 1.0 else failures + 1
            await self._backoff.wait(failures)

    async def _stream(self) -> None:
        channel = self._connections.channel(self.address)
        decode = partial(fetched.decode, on_throttled=self._connections.throttle_time.add)
        async with calls.decoded_stream(channel, _METHOD, decode) as stream:
            await run_until_one_ends(self._receive(stream), self._send(stream))

    async def _send(self, stream: calls.CallStream[list[fetched.Fetched]]) -> None:
        """All partitions of this link, then the changes."""
        self._changes = dict.fromkeys(self._readers)
        for reader in self._readers.values():
            reader.correlation = self._listener.next_correlation()
        settings: pb.FetchSettings | None = self._settings
        while True:
            self._changed.clear()
            if self._changes:
                changes, self._changes = self._changes, {}
                request = pb.FetchStreamRequest(settings=settings)
                for partition in changes:
                    self._put(request, partition)
                await stream.send(request)
                settings = None
            else:
                await self._changed.wait()

    def _put(self, request: pb.FetchStreamRequest, partition: TopicPartition) -> None:
        reader = self._readers.get(partition)
        if reader is None:
            removed = request.remove.add()
            removed.topic, removed.partition = partition.topic, partition.partition
            return
        part = request.add.add()
        part.topic, part.partition = partition.topic, partition.partition
        part.correlation_id = reader.correlation
        part.fetch_offset = reader.fetch_offset
        part.partition_bytes_max = self._bytes_max
        if reader.end is not None:
            part.end_offset = reader.end
        if reader.leader is not None:
            part.leader_epoch = reader.leader.epoch
        if reader.fetch_epoch is not None and reader.fetch_epoch >= 0:
            part.last_fetched_epoch = reader.fetch_epoch

    async def _receive(self, stream: calls.CallStream[list[fetched.Fetched]]) -> None:
        while True:
            await self._listener.wait_until_space()
            response = await stream.recv()
            if response is None:
                return
            for part, batches in response:
                reader = self._readers.get(TopicPartition(part.topic, PartitionId(part.partition)))
                if reader is not None and reader.correlation == part.correlation_id:
                    self._listener.on_part(reader, part, batches)
