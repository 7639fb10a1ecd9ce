"""One record batch as it is sent: the records of several ProducerBatches, of one, or of a piece of one.

Small batches that had to wait are merged, up to batch.size; a batch that is too large for the topic is sent in halves.
The promises given by `send` do not change: each Slice refers to the ProducerBatch of its records.

With idempotence a batch gets its sequence when it is first sent, and keeps it until the partition starts a new epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from streamlog.client.producer.batches.producer_batch import ProducerBatch
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.model import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Offset, ProducerEpoch, ProducerId
from streamlog.records import BatchFields, Codec, Headers, encode_batch
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.varint import Int64Array

T = TypeVar("T")
_run_start: Final = itemgetter(0)


class Encoding(Struct, frozen=True, kw_only=True):
    """How a producer's batches are encoded."""

    codec: Codec = Codec.NONE
    level: int | None = None
    transactional: bool = False


class ProducerIdAndEpoch(NamedTuple):
    """The identity under which the batches of a partition are sent."""

    producer_id: ProducerId = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class Slice(NamedTuple):
    batch: ProducerBatch
    start: int  # index of its first record in the batch
    stop: int


class WireBatch:
    __slots__ = ("_data", "attempts", "correlation", "identity", "last_error", "order", "sequence", "size", "slices")

    def __init__(self, slices: Sequence[Slice], order: tuple[int, ...], size: int) -> None:
        self.slices = tuple(slices)  # not empty
        self.order = order  # among the partition's batches; halves sort where the whole did
        self.size = size  # in bytes, estimated, before compression
        self.identity = ProducerIdAndEpoch()
        self.sequence = NO_SEQUENCE
        self.attempts = 0  # how often it was sent
        self.correlation: int | None = None  # while it is in flight: its number on its stream
        self.last_error: StreamlogError | None = None
        self._data: bytes | None = None

    def __len__(self) -> int:
        return sum(part.stop - part.start for part in self.slices)

    @property
    def done(self) -> bool:
        """All its batches are settled: they have failed."""
        return all(part.batch.done for part in self.slices)

    @property
    def opened_at(self) -> float:
        return self.slices[0].batch.opened_at

    def number(self, identity: ProducerIdAndEpoch, sequence: int) -> None:
        if (identity, sequence) != (self.identity, self.sequence):
            self.identity, self.sequence, self._data = identity, sequence, None

    @property
    def encoded(self) -> bool:
        return self._data is not None

    def encode(self, encoding: Encoding) -> bytes:
        """The encoded batch, cached while its sequence stays. InvalidRecordError, MessageTooLargeError."""
        if self._data is None:
            self._data = self._encoded(encoding)
        return self._data

    def _encoded(self, encoding: Encoding) -> bytes:
        fields = BatchFields(
            codec=encoding.codec,
            compression_level=encoding.level,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
            is_transactional=encoding.transactional,
        )
        try:
            return encode_batch(
                self._values(), self._keys(), self._headers(), timestamps=self._timestamps(), fields=fields
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise InvalidRequestError(
                f"a record of {self.slices[0].batch.partition} cannot be encoded: {error}"
            ) from error

    def _values(self) -> Sequence[bytes | None]:
        if len(self.slices) == 1:
            return _cut(self.slices[0].batch.values, self.slices[0])
        return [value for part in self.slices for value in _cut(part.batch.values, part)]

    def _keys(self) -> Sequence[bytes | None] | None:
        if all(part.batch.keys is None for part in self.slices):
            return None
        keys: list[bytes | None] = []
        for part in self.slices:
            keys += _cut_sparse(part.batch.keys, part, None)
        return keys

    def _headers(self) -> Sequence[Headers] | None:
        if all(part.batch.headers is None for part in self.slices):
            return None
        headers: list[Headers] = []
        nothing: Headers = ()
        for part in self.slices:
            headers += _cut_sparse(part.batch.headers, part, nothing)
        return headers

    def _timestamps(self) -> int | Int64Array:
        """One for all records, or of each."""
        times: list[int] = []
        counts: list[int] = []
        for batch, start, stop in self.slices:
            at = bisect_right(batch.runs, start, key=_run_start) - 1
            while start < stop:
                end = batch.runs[at + 1][0] if at + 1 < len(batch.runs) else stop
                times.append(batch.runs[at][1])
                counts.append(min(end, stop) - start)
                start, at = end, at + 1
        if times.count(times[0]) == len(times):
            return times[0]
        return np.repeat(np.array(times, np.int64), counts)

    def halves(self) -> tuple[WireBatch, WireBatch] | None:
        """The same records in two batches, without sequences; None where it is a single record."""
        count = len(self)
        if count < 2:
            return None
        first: list[Slice] = []
        left = count // 2
        rest = list(self.slices)
        while left > 0:
            part = rest.pop(0)
            size = part.stop - part.start
            if size > left:
                middle = part.start + left
                rest.insert(0, part._replace(start=middle))
                part.batch.cuts += 1
                part = part._replace(stop=middle)
                size = left
            first.append(part)
            left -= size
        half = self.size // 2
        return WireBatch(first, (*self.order, 0), half), WireBatch(rest, (*self.order, 1), half)

    def succeed(self, base_offset: Offset, log_append_time_ms: int) -> None:
        """`base_offset`: NO_OFFSET with acks=0."""
        offset = base_offset
        for batch, start, stop in self.slices:
            batch.settle(start, stop, offset, log_append_time_ms)
            batch.release()
            if offset != NO_OFFSET:
                offset = Offset(offset + stop - start)

    def fail(self, error: StreamlogError) -> None:
        for batch, start, stop in self.slices:
            batch.settle_failed(start, stop, error)
            batch.release()

    def leave_out_done(self) -> None:
        """Drop what has failed meanwhile. Only where nothing of it was appended, before it gets new sequences."""
        left = tuple(part for part in self.slices if not part.batch.done)
        if len(left) < len(self.slices):
            for part in self.slices:
                if part.batch.done:
                    part.batch.release()
            self.slices, self._data, self.sequence = left, None, NO_SEQUENCE


def _cut(column: list[T], part: Slice) -> list[T]:
    return column if part.stop - part.start == len(column) else column[part.start : part.stop]


def _cut_sparse(column: list[T] | None, part: Slice, nothing: T) -> list[T]:
    """Of a column that may be shorter or longer than the batch: records after its last entry have none."""
    found = [] if column is None else column[part.start : part.stop]
    missing = part.stop - part.start - len(found)
    return found + [nothing] * missing if missing else found
