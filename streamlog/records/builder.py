"""Collect records for a batch, up to a size.

Owned by one task, without locks. A builder is filled, built once or more (a retry under another producer epoch builds
again), and discarded.
"""

from __future__ import annotations

from typing import Final

from streamlog.model import INT64_MAX
from streamlog.records.batch import BatchFields, encode_batch
from streamlog.records.encode import encode_headers
from streamlog.records.header import HEADER_SIZE
from streamlog.records.record import Headers

# Maximum overhead of a record beside key, value and headers: length 5, attributes 1, timestamp delta 10, offset delta
# 5, sizes of key and value 5 each.
_OVERHEAD_MAX: Final = 31
# The same while key and value are under 8 KiB, the timestamps within 18 hours, the records under 2^20.
_SMALL_OVERHEAD_MAX: Final = 15
_SMALL_SIZE: Final = 8_192
_SMALL_DELTA: Final = 2**26
_SMALL_COUNT: Final = 2**20


class BatchBuilder:
    """The records of a future batch of at most `batch_bytes_max`, before compression."""

    def __init__(self, batch_bytes_max: int) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._size_bytes = HEADER_SIZE
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._headers: list[Headers] = []
        self._has_keys = False
        self._has_headers = False

    def __len__(self) -> int:
        return len(self._values)

    @property
    def size_bytes(self) -> int:
        """The batch is not larger than this, unless compression makes it so."""
        return self._size_bytes

    def try_append(
        self, value: bytes | None, key: bytes | None = None, headers: Headers = (), *, timestamp: int
    ) -> bool:
        """Take the record, or leave it and say False where the batch could become too large.

        An empty builder takes any record: whether it is too large, only the broker knows.
        """
        key_size = len(key) if key is not None else 0
        value_size = len(value) if value is not None else 0
        count = len(self._values)
        first = self._timestamps[0] if count else timestamp
        small = key_size < _SMALL_SIZE and value_size < _SMALL_SIZE and count < _SMALL_COUNT
        small = small and -_SMALL_DELTA < timestamp - first < _SMALL_DELTA
        overhead = _SMALL_OVERHEAD_MAX if small else _OVERHEAD_MAX
        tail = len(encode_headers(headers)) if headers else 1
        size = self._size_bytes + overhead + key_size + value_size + tail
        if size > self._batch_bytes_max and count:
            return False
        self._values.append(value)
        self._keys.append(key)
        self._timestamps.append(timestamp)
        self._headers.append(headers)
        self._has_keys = self._has_keys or key is not None
        self._has_headers = self._has_headers or bool(headers)
        self._size_bytes = size
        return True

    def build(self, fields: BatchFields) -> bytes:
        """Encode the records, at least one. Errors as `encode_batch`."""
        times = self._timestamps
        first = times[0]
        one_time = 0 <= first <= INT64_MAX and times.count(first) == len(times)
        return encode_batch(
            self._values,
            self._keys if self._has_keys else None,
            self._headers if self._has_headers else None,
            timestamps=first if one_time else times,  # a single record needs no columns
            fields=fields,
        )
