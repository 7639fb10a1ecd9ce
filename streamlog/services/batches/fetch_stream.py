"""FetchStream: batches pushed as they become readable, as fast as the client reads.

    reader: add, remove, settings ----------------------> cursors, one for each partition
    a cursor's partition advances (ReplicaWatcher) -----> the cursor is due
    writer: due cursors in turn, up to 1 MiB a message -> send, which waits while the client does not read

A cursor is queued at most once, however much has happened to its partition, and not any more once it is removed. A
request is received once the refusals of the one before it are sent. So a slow client costs no memory, whatever it
requests. Cursors take turns, so a partition with much to read does not delay the others.

A message is read once the node has free response bytes for it (`services.common.outgoing`), and the next one when it
was taken by the transport: a stream that is not read holds one small message, since messages grow only while they are
taken.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from streamlog.aio.call_time import counted
from streamlog.api.convert.records.fetch import fetch_change
from streamlog.api.fetched import Fetched, encode
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import PARTITIONS_PER_REQUEST_MAX, FetchSettings, PartitionFetch, PartitionRef
from streamlog.api.service import Call, Requests, Responses
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.config.settings.node_settings import FETCH_MAX_BYTES
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.model import Appended, Offset, PartitionId, TopicPartition
from streamlog.services.batches.partition_fetch import (
    PARTITION_OVERHEAD,
    diverging,
    fetched,
    next_offset_after,
    not_fetched,
    read_batches,
)
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.common.outgoing import MESSAGE_BYTES_MIN, OutgoingBytes, Reader


class FetchStreams:
    def __init__(
        self, leaders: PartitionLeaders, view: MetadataView, configs: NodeConfigs, outgoing: OutgoingBytes
    ) -> None:
        self._leaders = leaders
        self._view = view
        self._configs = configs
        self._outgoing = outgoing

    async def fetch_stream(
        self,
        requests: Requests[pb.FetchStreamRequest],
        responses: Responses[pb.FetchStreamResponse],
        call: Call,
    ) -> None:
        """ThrottledError for a stream that is not read while others wait for free bytes."""
        async with self._outgoing.reader() as reader:
            reader.pace = call.info.pace
            guard = call.info.guard
            leaders = self._leaders if guard is None else self._leaders.guarded(guard, "READ")
            await self._serve(requests, responses, reader, leaders)

    async def serve(
        self,
        requests: Requests[pb.FetchStreamRequest],
        responses: Responses[pb.FetchStreamResponse],
        reader: Reader,
    ) -> None:
        """With the bytes of `reader`, for this node itself."""
        await self._serve(requests, responses, reader, self._leaders)

    async def _serve(
        self,
        requests: Requests[pb.FetchStreamRequest],
        responses: Responses[pb.FetchStreamResponse],
        reader: Reader,
        leaders: PartitionLeaders,
    ) -> None:
        stream = _Stream(leaders, self._view, self._configs, reader)
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(counted(stream.write(responses)))
                await stream.read(requests)
                writing.cancel()
        finally:
            stream.forget()


class _Cursor:
    """One partition on the stream; a `ReplicaWatcher` of its leader."""

    __slots__ = ("error", "fetch", "offset", "removed", "replica", "sent_log_start", "stream")

    def __init__(self, stream: _Stream, fetch: PartitionFetch, replica: LeaderReplica) -> None:
        self.stream = stream
        self.fetch = fetch
        self.replica = replica
        self.offset = fetch.fetch_offset  # the next one to send
        self.sent_log_start = Offset(-1)  # log start that was sent last
        self.error: StreamlogError | None = None  # why the leadership ended
        self.removed = False

    def on_appended(self, appended: Appended) -> None:
        """Not readable yet."""

    def on_readable(self) -> None:
        self.stream.due(self)

    def on_ended(self, error: StreamlogError) -> None:
        self.error = error
        self.stream.due(self)


class _Stream:
    def __init__(self, leaders: PartitionLeaders, view: MetadataView, configs: NodeConfigs, reader: Reader) -> None:
        self._leaders = leaders
        self._view = view
        self._configs = configs
        self._reader = reader
        self._least = 0  # bytes that the next message needs: of a batch that did not fit
        self._settings: FetchSettings | None = None  # None: no message received yet
        self._cursors: dict[TopicPartition, _Cursor] = {}
        self._due: OrderedDict[_Cursor, None] = OrderedDict()
        self._urgent: deque[Fetched] = deque()  # errors and divergences, sent before anything else
        self._wake = asyncio.Event()
        self._refusals_sent = asyncio.Event()  # none of those is left
        self._refusals_sent.set()

    # -- what the client requests

    async def read(self, requests: Requests[pb.FetchStreamRequest]) -> None:
        """Until the client ends its side, and has all refusals."""
        while (message := await requests.recv()) is not None:
            change = fetch_change(message, first=self._settings is None)
            if change.settings is not None:
                self._settings = change.settings
            for ref in change.remove:
                self._remove(self._partition(ref))
            for fetch in change.add:
                self._add(fetch)
            if len(self._cursors) > PARTITIONS_PER_REQUEST_MAX:
                raise InvalidRequestError(
                    f"{len(self._cursors)} partitions on one stream, at most {PARTITIONS_PER_REQUEST_MAX} are allowed: "
                    "open another stream for the rest",
                    field="add",
                    limit=PARTITIONS_PER_REQUEST_MAX,
                )
            await self._refusals_sent.wait()

    def _add(self, fetch: PartitionFetch) -> None:
        try:
            replica = self._leaders.leader(fetch.ref)
            self._remove(replica.partition)
            left = diverging(fetch, replica)
            if left is not None:
                self._enqueue(left)
                return
            cursor = _Cursor(self, fetch, replica)
            replica.watch(cursor)
        except StreamlogError as error:
            self._remove(self._partition(fetch.ref))
            self._enqueue(not_fetched(fetch, error))
            return
        self._cursors[replica.partition] = cursor
        self.due(cursor)

    def _remove(self, partition: TopicPartition | None) -> None:
        cursor = None if partition is None else self._cursors.pop(partition, None)
        if cursor is not None:
            cursor.removed = True
            cursor.replica.unwatch(cursor)
            self._due.pop(cursor, None)

    def _partition(self, ref: PartitionRef) -> TopicPartition | None:
        name = ref.topic
        if not name and ref.topic_id is not None:
            topic = self._view.image.topics.get(ref.topic_id)
            name = "" if topic is None else topic.name
        return TopicPartition(name, PartitionId(ref.partition)) if name else None

    def _enqueue(self, answer: Fetched) -> None:
        self._urgent.append(answer)
        self._refusals_sent.clear()
        self._wake.set()

    def due(self, cursor: _Cursor) -> None:
        """Once, at its place if it is due already."""
        self._due[cursor] = None
        self._wake.set()

    # -- what it gets

    async def write(self, responses: Responses[pb.FetchStreamResponse]) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._urgent or self._due:
                await self._write_some(responses)

    async def _write_some(self, responses: Responses[pb.FetchStreamResponse]) -> None:
        settings, reader = self._settings, self._reader
        assert settings is not None  # set before the first cursor
        least, self._least = max(self._least, MESSAGE_BYTES_MIN), 0
        wanted = max(least, min(settings.response_bytes_max, self._configs.node[FETCH_MAX_BYTES]))
        room = await reader.reserve_next(wanted, least)
        try:
            message = encode(await self._collect(settings, room))
            if message:
                reader.try_keep(len(message))
                await responses.send_encoded(message)
                reader.sent()
                if not self._urgent:
                    self._refusals_sent.set()
        finally:
            reader.release()

    async def _collect(self, settings: FetchSettings, room: int) -> list[Fetched]:
        """The content of one message. A cursor with more to read goes to the end of the queue."""
        partitions: list[Fetched] = []
        while self._urgent and room > 0:
            urgent = self._urgent.popleft()
            room -= urgent.size_bytes + 8
            partitions.append(urgent)
        turns = len(self._due)  # each of them once: a cursor that is due again has its turn in the next message
        while turns and room > 0 and self._due:
            turns -= 1
            cursor, _ = self._due.popitem(last=False)
            answer = await self._advance(cursor, settings, room, is_first=not partitions)
            if answer is not None:
                room -= answer.size_bytes + PARTITION_OVERHEAD
                partitions.append(answer)
            if next(iter(self._due), None) is cursor:  # its batches do not fit any more
                break
        return partitions

    async def _advance(self, cursor: _Cursor, settings: FetchSettings, room: int, *, is_first: bool) -> Fetched | None:
        """The next batches, log start or error of one partition; None: nothing new, or it does not fit any more."""
        fetch, replica = cursor.fetch, cursor.replica
        try:
            if cursor.error is not None:
                raise cursor.error
            size_max = min(fetch.bytes_max, room)
            batches = await read_batches(replica, cursor.offset, fetch.end_offset, size_max, settings)
        except StreamlogError as error:
            if cursor.removed:
                return None
            self._remove(replica.partition)
            return not_fetched(fetch, error)
        if cursor.removed:  # during the read
            return None
        data = batches.data
        if data and batches.size_bytes > room and not (is_first and self._reader.try_keep(batches.size_bytes)):
            self._least = batches.size_bytes if is_first else 0
            self._due[cursor] = None
            self._due.move_to_end(cursor, last=False)
            return None
        start = replica.log_start_offset
        if not data and start == cursor.sent_log_start:
            return None
        cursor.sent_log_start = start
        if data:
            cursor.offset = next_offset_after(data)
            if fetch.end_offset is not None and cursor.offset >= fetch.end_offset:
                self._remove(replica.partition)
            elif cursor.offset < replica.readable_end(settings.isolation_level):
                self.due(cursor)
        return fetched(fetch, replica, batches)

    def forget(self) -> None:
        for cursor in self._cursors.values():
            cursor.replica.unwatch(cursor)
        self._cursors.clear()
        self._due.clear()  # they know the stream
