"""`.txnindex`: the aborted transactions of a segment, for consumers that read committed records only (KIP-98).

An entry is 34 bytes, big-endian: version i16 (0), producer id i64, first offset i64, last offset i64, last stable
offset i64. Entries are appended when the abort marker is written, so their last offsets rise. The file exists only
where the segment holds an abort marker.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from streamlog.model import Offset, ProducerId

VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction whose records [first_offset, last_offset] of this producer must not be shown."""

    version: int
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the abort marker
    last_stable_offset: Offset  # when the marker was appended


def format_entry(aborted: AbortedTransaction) -> bytes:
    return _ENTRY.pack(*aborted)


def parse_entry(content: bytes, position: int) -> AbortedTransaction:
    """The entry at `position`, of which ENTRY_SIZE bytes must be there. Fields are not checked, nor the version."""
    return AbortedTransaction._make(_ENTRY.unpack_from(content, position))
