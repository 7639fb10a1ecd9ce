"""One partition as a consumer reads it: the position, and the batches prefetched beyond it.

    locating: no position yet    --ListOffsets-->    reading    --pause, error-->    stopped

    position <= first offset of `batches` ... <= fetch_offset      (position: next to return; fetch_offset: to fetch)

While a loop is at one of its records (`looped`), the position follows from it: a loop stores a reference for each
record, and nothing is computed before the position is read.

Each offset is kept with the leader epoch of the record before it, by which the leader detects that its log has diverged
(`log_truncation`).

Control batches are never returned, nor, with read_committed, those of aborted transactions (`aborted`). A batch that
cannot be decoded is an error, or skipped (`corrupt_batches`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol

from streamlog.client.connection.metadata import Leader
from streamlog.client.consumer.aborted import AbortedTransactions
from streamlog.client.consumer.consumer_records import ConsumerBatch, ConsumerRecord
from streamlog.client.consumer.corrupt_batches import UNREADABLE, CorruptBatches, corrupt_batch
from streamlog.client.consumer.offset_finder import OffsetSpec
from streamlog.errors import CorruptBatchError, CorruptMessageError, StreamlogError
from streamlog.model import NO_OFFSET, LeaderEpoch, Offset, TopicPartition
from streamlog.ports import Buffer
from streamlog.records import BatchHeader, check_crc, scan_headers


class ReaderLink(Protocol):
    """The fetch stream to a partition's leader (`fetch_link`)."""

    @property
    def address(self) -> str: ...

    def remove(self, reader: PartitionReader) -> None:
        """Stop fetching."""
        ...

    def ended(self, reader: PartitionReader) -> None:
        """The node has stopped sending."""
        ...


class PartitionReader:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.start: OffsetSpec | None = None  # while it is being located
        self.end: Offset | None = None  # one past the last one wanted; None: no end
        self.looped: ConsumerRecord | None = None  # what a loop returned last; None: set since
        self._position: Offset | None = None
        self.epoch: LeaderEpoch | None = None  # of the record before the position; None: not known
        self.fetch_offset = NO_OFFSET
        self.fetch_epoch: LeaderEpoch | None = None
        self.batches: deque[ConsumerBatch] = deque()
        self.records: Iterator[ConsumerRecord] | None = None  # of batches[0], where part of it was returned
        self.buffered_bytes = 0
        self.paused = False
        self.held = False  # it is being revoked, and no longer read
        self.error: StreamlogError | None = None  # raised until it is sought, or assigned again
        self.retrying = False  # in spite of its error
        self.generation = 0  # counts seeks: results of requests made before a seek are ignored after it
        self.lookup_generation = -1  # as of the last lookup of its position
        self.correlation = 0  # of the fetch under way
        self.link: ReaderLink | None = None
        self.leader: Leader | None = None  # as of the last request
        self.failures = 0
        self.high_watermark = NO_OFFSET  # as of the last fetch; NO_OFFSET: none yet
        self.last_stable_offset = NO_OFFSET
        self.log_start = NO_OFFSET
        self._aborted = AbortedTransactions()

    @property
    def position(self) -> Offset | None:
        """Of the next record to return; None: not located yet."""
        looped = self.looped
        return self._position if looped is None else Offset(looped.offset + 1)

    @position.setter
    def position(self, position: Offset | None) -> None:
        self._position, self.looped = position, None

    @property
    def wants_data(self) -> bool:
        waits = self.paused or self.held or self.error is not None or self.at_end
        return self.position is not None and not waits

    @property
    def at_end(self) -> bool:
        """All offsets that are wanted have been fetched."""
        return self.end is not None and self.fetch_offset >= self.end

    def locate(self, start: OffsetSpec) -> None:
        """Look its position up again."""
        self._drop(None, None)
        self.start = start

    def seek(self, offset: Offset, epoch: LeaderEpoch | None) -> None:
        """Read from there on."""
        self._drop(offset, epoch)
        self.start = None

    def rewind(self) -> None:
        """Drop what was prefetched."""
        if self.position is not None:
            self._drop(self.position, self.epoch)

    def fail(self, error: StreamlogError) -> None:
        self.rewind()
        self.error = error

    def _drop(self, offset: Offset | None, epoch: LeaderEpoch | None) -> None:
        self.position, self.epoch = offset, epoch
        self.fetch_offset, self.fetch_epoch = NO_OFFSET if offset is None else offset, epoch
        self.batches.clear()
        self.records = None
        self.buffered_bytes = 0
        self.error = None
        self.generation += 1
        self._aborted.clear()

    # Fetched batches.
    def add(
        self,
        data: Buffer,
        aborted: Iterable[tuple[int, int]],
        *,
        read_committed: bool,
        check_crcs: bool,
        corrupt: CorruptBatches,
    ) -> int:
        """Add batches from `fetch_offset` on; returns their bytes. Where one cannot be read at all, `error` is set; it
        is raised when those before it have been returned.
        """
        before = self.buffered_bytes
        self._aborted.add(aborted)
        try:
            for at, header in scan_headers(data, 0, len(data)):
                if header.next_offset <= self.fetch_offset:
                    continue
                if read_committed:
                    skipped = self._skips(data, at, header, check_crcs=check_crcs, corrupt=corrupt)
                else:
                    skipped = header.is_control
                if not skipped:
                    first = Offset(max(self.fetch_offset, header.base_offset))
                    batch = ConsumerBatch(
                        self.partition, data, at, header, first=first, check=check_crcs, corrupt=corrupt
                    )
                    self.batches.append(batch)
                    self.buffered_bytes += header.size_bytes
                self.fetch_offset = header.next_offset
                self.fetch_epoch = header.leader_epoch
        except CorruptMessageError as error:
            self.error = corrupt_batch(self.partition, self.fetch_offset, None, error)
        except CorruptBatchError as error:
            self.error = error
        if not self.batches and self.position is not None:
            self.position, self.epoch = self.fetch_offset, self.fetch_epoch
        return self.buffered_bytes - before

    def _skips(self, data: Buffer, at: int, header: BatchHeader, *, check_crcs: bool, corrupt: CorruptBatches) -> bool:
        """As `AbortedTransactions.skips`. CorruptBatchError of a control batch that cannot be decoded."""
        try:
            if check_crcs and header.is_control:
                check_crc(data, at, header)
            return self._aborted.skips(data, at, header)
        except UNREADABLE as error:
            found = corrupt_batch(self.partition, header.base_offset, header.next_offset, error)
            if not corrupt.skips(found):
                raise found from error
            self._aborted.on_unreadable(header)
            return True

    # Returned batches.

    def finish(self) -> int:
        """Remove the first batch, which has been returned; its bytes."""
        batch = self.batches.popleft()
        self.records = None
        self.epoch = batch.header.leader_epoch
        self.position = batch.next_offset if self.batches else self.fetch_offset
        if not self.batches:
            self.epoch = self.fetch_epoch
        self.buffered_bytes -= batch.header.size_bytes
        return batch.header.size_bytes

    def truncate(self, position: Offset, epoch: LeaderEpoch | None) -> None:
        """Read again from `position`, which is not after the present one; the log has been truncated there. `epoch`: of
        the record before it, or a later one.
        """
        if position == self.position and (self.epoch is None or epoch is None or self.epoch < epoch):
            epoch = self.epoch  # the leader's may be of a record further on
        self._drop(position, epoch)
