"""The records of one `send_many`: split by partition, and how many of them fit a batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from streamlog.client.producer.batches.producer_batch import RECORD_OVERHEAD
from streamlog.client.producer.batches.topic_table import TopicTable
from streamlog.client.producer.partitioner import HashPartitioner, Partitioner, hash_partitions
from streamlog.errors import InvalidRequestError


class Columns(NamedTuple):
    """Records for one partition, in order."""

    partition: int | None  # None: the sticky choice
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None  # None: no record has one


def by_partition(
    table: TopicTable,
    partitioner: Partitioner,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
) -> list[Columns]:
    """The records of each partition. Errors as TopicTable.choose."""
    if keys is None and not table.asks_without_key:
        return [Columns(None, values, None)]
    keys = keys if keys is not None else [None] * len(values)
    choices: Sequence[int | None]
    present = [key for key in keys if key is not None]
    if isinstance(partitioner, HashPartitioner) and len(present) == len(keys):
        choices = hash_partitions(present, len(table.queues))
    else:
        choices = [table.choose(key, value) for key, value in zip(keys, values, strict=True)]
    rows: dict[int | None, list[int]] = {}
    for row, choice in enumerate(choices):
        rows.setdefault(choice, []).append(row)
    return [
        Columns(partition, [values[row] for row in mine], [keys[row] for row in mine])
        for partition, mine in rows.items()
    ]


def check_types(values: object, keys: object) -> None:
    """InvalidRequestError for what is not bytes."""
    for name, column in (("values", values), ("keys", () if keys is None else keys)):
        if not isinstance(column, Sequence) or isinstance(column, str | bytes):
            raise InvalidRequestError(
                f"{name} must be a list or tuple of bytes, not {type(column).__name__}", field=name
            )
        if not {one.__class__ for one in column} <= {bytes, type(None)}:
            raise InvalidRequestError(f"all {name} must be bytes or None", field=name)


class Sizes:
    """About how many bytes the records of some columns take in a batch."""

    def __init__(self, columns: Columns, header_bytes: int = 0) -> None:
        """`header_bytes`: of the headers of each record."""
        overhead = RECORD_OVERHEAD + header_bytes
        sizes = [overhead + len(value or b"") for value in columns.values]
        if columns.keys is not None:
            sizes = [size + len(key or b"") for size, key in zip(sizes, columns.keys, strict=True)]
        self._ends = list(accumulate(sizes, initial=0))

    def between(self, start: int, stop: int) -> int:
        return self._ends[stop] - self._ends[start]

    def fitting(self, start: int, free_bytes: int) -> int:
        """One past the last record from `start` on that still fits; at least one does."""
        return max(start + 1, bisect_right(self._ends, self._ends[start] + free_bytes) - 1)
