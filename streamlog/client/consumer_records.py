"""What a consumer hands out: records, or whole batches for those who are in a hurry.

A batch is unpacked when it is first looked into. Records before the position (the first batch of a fetch may begin
before the offset asked for) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import dropwhile
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from streamlog.errors import CorruptMessageError, StreamlogError
from streamlog.model import Offset, TopicPartition
from streamlog.ports import Buffer
from streamlog.records import (
    BatchHeader,
    Headers,
    Record,
    RecordColumns,
    TimestampType,
    check_crc,
    decode_columns,
    iter_fields,
)
from streamlog.records.decode import Fields
from streamlog.records.lazy_numpy import np

T = TypeVar("T")


class ConsumerRecord(NamedTuple):
    """One record, and where it stands. Times are ms since 1970; a key or value of None is null."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class ConsumerBatch:
    """The records of one batch, from the consumer's position on; at least one, unless compaction took them all."""

    def __init__(
        self, partition: TopicPartition, data: Buffer, at: int, header: BatchHeader, *, first: Offset, check: bool
    ) -> None:
        """`first`: the position."""
        self.topic = partition.topic
        self.partition = partition.partition
        self.header = header
        self._where = partition
        self._data = data
        self._at = at
        self._first = first
        self._check = check

    @property
    def next_offset(self) -> Offset:
        """Where reading goes on after it."""
        return self.header.next_offset

    @property
    def first_offset(self) -> Offset:
        """No record of it has a smaller one."""
        return self._first

    def from_offset(self, first: Offset) -> ConsumerBatch:
        """The same from a later offset on."""
        return ConsumerBatch(self._where, self._data, self._at, self.header, first=first, check=self._check)

    @property
    def timestamp_type(self) -> TimestampType:
        return self.header.timestamp_type

    def fields(self) -> Iterator[Fields]:
        """(offset, timestamp, key, value, headers) each: the fastest way to all of them, one by one.

        CorruptMessageError and the other errors of `records.decode`.
        """
        fields = self._checked(iter_fields)
        if self.header.base_offset >= self._first:
            return fields
        return dropwhile(lambda each: each[0] < self._first, fields)

    def records(self) -> list[Record]:
        """As `fields`."""
        return list(map(Record._make, self.fields()))

    def columns(self) -> RecordColumns:
        """By the column, for Arrow and numpy. As `fields`."""
        columns = self._checked(decode_columns)
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

    def _checked(self, decode: Callable[[Buffer, int], T]) -> T:
        """Errors say which batch of which partition is meant."""
        try:
            if self._check:
                check_crc(self._data, self._at, self.header)
                self._check = False
            return decode(self._data, self._at)
        except StreamlogError as error:
            # Where in the response it stood means nothing to anybody.
            reason = error.reason if isinstance(error, CorruptMessageError) else error.message
            where = f"{self._where}: the batch at offset {self.header.base_offset}: {reason}"
            details = {**error.details, "topic": self.topic, "partition": self.partition}
            raise error.restored(where, {**details, "offset": self.header.base_offset}) from error
