"""A reader of the batch tier as anybody could write one with a stock gRPC client: one Fetch at a time of each leader.

It shares nothing with the client library's consumer but who leads what, so a mistake in that one cannot hide a record
from the last look at a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.metadata import MetadataCache
from streamlog.errors import OffsetOutOfRangeError, StreamlogError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import Ports
from streamlog.records import iter_batch, scan_headers

from ..clients.workload import Polled

FETCH: Final = calls.unary("streamlog.v1.Batches/Fetch", pb.FetchResponse)
TIMEOUT_S: Final = 2.0
WAIT_S: Final = 0.1


class PlainReader:
    """Implements `workload.Reader`, from the beginning of each partition."""

    def __init__(self, ports: Ports, bootstrap: Sequence[str], partitions: Sequence[TopicPartition]) -> None:
        backoff = Backoff(ports.random)
        self._connections = Connections(ports.network, ports.clock, ports.random, bootstrap, backoff=backoff)
        self._metadata = MetadataCache(self._connections, ports.clock, backoff)
        self._positions = dict.fromkeys(partitions, Offset(0))
        self._doubtful = True  # who leads

    async def poll(self) -> Sequence[Polled]:
        """The partition's leader is asked once; one that does not answer well is asked again at the next poll.
        Raises where no metadata could be had.
        """
        if self._doubtful:
            await self._look_up()
        polled: list[Polled] = []
        for partition in self._positions:
            try:
                polled += await self._fetch(partition)
            except StreamlogError:
                self._doubtful = True
        if not polled:
            await asyncio.sleep(WAIT_S)
        return polled

    async def _look_up(self) -> None:
        self._doubtful = False
        topics = sorted({partition.topic for partition in self._positions})
        for topic in topics:
            self._metadata.forget(topic)  # it is not watched here
        await self._metadata.look_up(topics, timeout_s=TIMEOUT_S)

    async def _fetch(self, partition: TopicPartition) -> list[Polled]:
        leader = self._metadata.leader(partition)
        if leader is None:
            self._doubtful = True
            return []
        wanted = pb.FetchPartition(
            topic=partition.topic, partition=partition.partition, fetch_offset=self._positions[partition]
        )
        response = await self._connections.ask(
            FETCH,
            pb.FetchRequest(settings=pb.FetchSettings(wait_ms_max=0), partitions=[wanted]),
            address=leader.address,
            timeout_s=TIMEOUT_S,
        )
        return [record for part in response.partitions for record in self._records(partition, part)]

    def _records(self, partition: TopicPartition, part: pb.FetchedPartition) -> list[Polled]:
        if part.HasField("error"):
            error = from_message(part.error)
            start = error.details.get("log_start")
            if isinstance(error, OffsetOutOfRangeError) and isinstance(start, int):  # what was there is deleted
                self._positions[partition] = max(self._positions[partition], Offset(start))
            raise error
        found: list[Polled] = []
        for position, header in scan_headers(part.batches, 0, len(part.batches)):
            if not header.is_control:
                found += [
                    Polled(partition, record.offset, record.value)
                    for record in iter_batch(part.batches, position)
                    if record.offset >= self._positions[partition]
                ]
            self._positions[partition] = max(self._positions[partition], header.next_offset)
        return found

    async def close(self) -> None:
        await self._connections.close()
