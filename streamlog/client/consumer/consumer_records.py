"""What a consumer returns: records, or whole batches, which are faster.

A batch is decompressed and decoded when its records are first read. Records before the position are left out: the first
batch of a fetch may begin before the offset that was requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import dropwhile, repeat
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from streamlog.client.consumer.corrupt_batches import UNREADABLE, CorruptBatches, corrupt_batch
from streamlog.errors import StreamlogError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import Buffer, Workers
from streamlog.records import (
    BatchHeader,
    Codec,
    Headers,
    Record,
    RecordColumns,
    TimestampType,
    check_crc,
    decode_columns,
    iter_fields,
)
from streamlog.records.columns.columnar import columns_of
from streamlog.records.columns.lazy_numpy import np
from streamlog.records.decode import Fields, iter_rows
from streamlog.records.header import CODEC_MASK

_new: Final = tuple.__new__
"""Without a named tuple's own constructor, which is a Python function: `map` calls this one inside the interpreter."""

T = TypeVar("T")


class ConsumerRecord(NamedTuple):
    """One record, and its position. Times are ms since 1970; a key or value of None is null. They are bytes, unless the
    consumer has deserializers.
    """

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers


class ConsumerBatch:
    """The records of one batch, from the consumer's position on; at least one, unless compaction removed them all."""

    def __init__(
        self,
        partition: TopicPartition,
        data: Buffer,
        at: int,
        header: BatchHeader,
        *,
        first: Offset,
        check: bool,
        corrupt: CorruptBatches | None = None,
    ) -> None:
        """`first`: the position. `corrupt`: whether it is skipped if it cannot be decoded; None: it is an error."""
        self.topic = partition.topic
        self.partition = partition.partition
        self.header = header
        self._topic_partition = partition
        self._data = data
        self._at = at
        self._first = first
        self._check = check
        self._corrupt = corrupt

    @property
    def next_offset(self) -> Offset:
        """Where reading continues after it."""
        return self.header.next_offset

    @property
    def first_offset(self) -> Offset:
        """No record of it has a smaller one."""
        return self._first

    def from_offset(self, first: Offset) -> ConsumerBatch:
        """The same from a later offset on."""
        return ConsumerBatch(
            self._topic_partition,
            self._data,
            self._at,
            self.header,
            first=first,
            check=self._check,
            corrupt=self._corrupt,
        )

    @property
    def timestamp_type(self) -> TimestampType:
        return self.header.timestamp_type

    def fields(self) -> Iterator[Fields]:
        """(offset, timestamp, key, value, headers) of each record: the fastest way to all of them, one by one.

        CorruptBatchError; with on.corrupt.batch=skip the iterator is empty instead.
        """
        return self._from_first(self._checked(iter_fields))

    async def fields_by(self, workers: Workers) -> Iterator[Fields]:
        """As `fields`. A compressed batch is decoded by a worker."""
        if self.header.attributes & CODEC_MASK == Codec.NONE:
            return self.fields()
        try:
            fields = await workers.run(self._decoded, iter_fields)
        except UNREADABLE as error:
            self._skip(error)
            return iter(())
        return self._from_first(fields)

    def _from_first(self, fields: Iterator[Fields] | None) -> Iterator[Fields]:
        if fields is None:
            return iter(())
        if self.header.base_offset >= self._first:
            return fields
        return dropwhile(lambda each: each[0] < self._first, fields)

    def records(self) -> list[Record]:
        """As `fields`."""
        return list(map(_new, repeat(Record), self.fields()))

    def consumer_records(self) -> Iterator[ConsumerRecord]:
        """As `fields`. Each is created when it is taken, which is faster than a list of them: for one that is freed
        before the next is taken, the interpreter uses the same memory again, and its garbage collector sees one.
        """
        found = self._checked(partial(iter_rows, ConsumerRecord, (self.topic, int(self.partition))))
        if found is None:
            return iter(())
        if self.header.base_offset >= self._first:
            return found
        return dropwhile(lambda each: each.offset < self._first, found)

    def columns(self) -> RecordColumns:
        """By the column, for Arrow and numpy. As `fields`."""
        columns = self._checked(decode_columns)
        if columns is None:
            return columns_of(b"", self.header._replace(record_count=0))
        row = int(np.searchsorted(columns.offsets, self._first))
        if row == 0:
            return columns
        return replace(
            columns,
            offsets=columns.offsets[row:],
            timestamps=columns.timestamps[row:],
            key_starts=columns.key_starts[row:],
            key_sizes=columns.key_sizes[row:],
            value_starts=columns.value_starts[row:],
            value_sizes=columns.value_sizes[row:],
            headers=None if columns.headers is None else columns.headers[row:],
        )

    def _checked(self, decode: Callable[[Buffer, int], T]) -> T | None:
        """None: it cannot be decoded, and is skipped. CorruptBatchError."""
        try:
            return self._decoded(decode)
        except UNREADABLE as error:
            self._skip(error)
            return None

    def _decoded(self, decode: Callable[[Buffer, int], T]) -> T:
        if self._check:
            check_crc(self._data, self._at, self.header)
            self._check = False
        return decode(self._data, self._at)

    def _skip(self, error: StreamlogError) -> None:
        """CorruptBatchError where it is not to be skipped."""
        found = corrupt_batch(self._topic_partition, self.header.base_offset, self.next_offset, error)
        if self._corrupt is None or not self._corrupt.skips(found):
            raise found from error
