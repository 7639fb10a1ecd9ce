"""One partition as a consumer reads it: the position, and what was fetched ahead of it.

    locating: no position yet    --ListOffsets-->    reading    --pause, error-->    standing

    position <= first offset of `batches` ... <= fetch_offset      (position: next to hand out; fetch_offset: to fetch)

With each offset goes the leader epoch of the record before it, so that the leader can tell when that record is no
longer in its log (KIP-320).

Transactions (read_committed): the node tells of those aborted; their batches are passed over from the transaction's
first offset up to its abort marker, as Kafka's consumer does. Control batches are never handed out.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from streamlog.client.consumer_records import ConsumerBatch
from streamlog.client.offset_finder import Place
from streamlog.errors import StreamlogError
from streamlog.model import NO_OFFSET, LeaderEpoch, Offset, TopicPartition
from streamlog.records import BatchHeader, EndTransactionMarker, decode_batch, decode_control, scan_headers
from streamlog.records.decode import Fields

if TYPE_CHECKING:
    from streamlog.client.fetch_link import FetchLink
    from streamlog.client.metadata import Leader


class PartitionReader:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.start: Place | None = None  # while it is being located
        self.position: Offset | None = None  # None: not located yet
        self.epoch: LeaderEpoch | None = None  # of the record before the position; None: not known
        self.fetch_offset = NO_OFFSET
        self.fetch_epoch: LeaderEpoch | None = None
        self.batches: deque[ConsumerBatch] = deque()
        self.fields: Iterator[Fields] | None = None  # of batches[0], where part of it was handed out
        self.buffered_bytes = 0
        self.paused = False
        self.held = False  # it is being given up, and read no more
        self.error: StreamlogError | None = None  # told until it is sought, or assigned anew
        self.retrying = False  # in spite of its error
        self.generation = 0  # counts seeks: what was asked before one does not count after it
        self.asked_generation = -1  # as of the last search for its position
        self.correlation = 0  # of what is being fetched
        self.link: FetchLink | None = None
        self.leader: Leader | None = None  # as of the last request
        self.failures = 0
        self.high_watermark = NO_OFFSET  # as last told; NO_OFFSET: not yet
        self.last_stable_offset = NO_OFFSET
        self.log_start = NO_OFFSET
        self._aborted: list[tuple[int, int]] = []  # (first offset, producer id), a heap
        self._aborting: set[int] = set()  # producers whose transaction is being passed over

    @property
    def wants_data(self) -> bool:
        return self.position is not None and not self.paused and not self.held and self.error is None

    def locate(self, start: Place) -> None:
        """Find its position anew."""
        self._drop(None, None)
        self.start = start

    def seek(self, offset: Offset, epoch: LeaderEpoch | None) -> None:
        """Read from there on."""
        self._drop(offset, epoch)
        self.start = None

    def rewind(self) -> None:
        """Forget what was fetched ahead."""
        if self.position is not None:
            self._drop(self.position, self.epoch)

    def fail(self, error: StreamlogError) -> None:
        self.rewind()
        self.error = error

    def _drop(self, offset: Offset | None, epoch: LeaderEpoch | None) -> None:
        self.position, self.epoch = offset, epoch
        self.fetch_offset, self.fetch_epoch = NO_OFFSET if offset is None else offset, epoch
        self.batches.clear()
        self.fields = None
        self.buffered_bytes = 0
        self.error = None
        self.generation += 1
        self._aborted.clear()
        self._aborting.clear()

    # What comes in.

    def add(self, data: bytes, aborted: Iterable[tuple[int, int]], *, read_committed: bool, check_crcs: bool) -> int:
        """Batches from `fetch_offset` on; returns their bytes. CorruptMessageError."""
        before = self.buffered_bytes
        for first_offset, producer_id in aborted:
            heapq.heappush(self._aborted, (first_offset, producer_id))
        for at, header in scan_headers(data, 0, len(data)):
            if header.next_offset <= self.fetch_offset:
                continue
            if not header.is_control and not (read_committed and self._is_aborted(header)):
                first = Offset(max(self.fetch_offset, header.base_offset))
                self.batches.append(ConsumerBatch(self.partition, data, at, header, first=first, check=check_crcs))
                self.buffered_bytes += header.size_bytes
            elif header.is_control and read_committed:
                self._on_control(data, at, header)
            self.fetch_offset = header.next_offset
            self.fetch_epoch = header.leader_epoch
        if not self.batches and self.position is not None:
            self.position, self.epoch = self.fetch_offset, self.fetch_epoch
        return self.buffered_bytes - before

    def _is_aborted(self, header: BatchHeader) -> bool:
        while self._aborted and self._aborted[0][0] <= header.last_offset:
            self._aborting.add(heapq.heappop(self._aborted)[1])
        return header.is_transactional and header.producer_id in self._aborting

    def _on_control(self, data: bytes, at: int, header: BatchHeader) -> None:
        for record in decode_batch(data, at):
            marker = decode_control(record)
            if isinstance(marker, EndTransactionMarker) and not marker.commit:
                self._is_aborted(header)
                self._aborting.discard(header.producer_id)

    # What goes out.

    def finish(self) -> int:
        """The first batch has been handed out; its bytes."""
        batch = self.batches.popleft()
        self.fields = None
        self.epoch = batch.header.leader_epoch
        self.position = batch.next_offset if self.batches else self.fetch_offset
        if not self.batches:
            self.epoch = self.fetch_epoch
        self.buffered_bytes -= batch.header.size_bytes
        return batch.header.size_bytes

    def truncate(self, end: Offset, epoch: LeaderEpoch | None) -> None:
        """The log ends there where it was read: go back."""
        if self.position is not None:
            if end < self.position:
                self._drop(end, epoch)
            else:
                self.rewind()
