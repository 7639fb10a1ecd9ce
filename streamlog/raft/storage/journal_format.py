"""The journal's bytes: consecutive records, and how a torn tail is distinguished from damage.

    record   magic (u8, 0x5A) | kind (u8) | zero (u16) | payload length (u32) | position (u64) | durable (u64)
             | CRC-32 of the payload (u32) | CRC-32 of the header before it (u32) | payload | trailer (u8, 0xA5)

The header has its own CRC, which validates the length. `position` is the record's own position in the file. `durable`
is the position up to which the file was on stable storage when the record was written.

The file is only appended to, so after a power cut everything up to the last sync is present, and behind it any subset
of 512-byte sectors: a lost sector is zeros, or beyond the end of the file. Nothing behind the last sync was
acknowledged. A record with an invalid CRC is therefore

- *a torn tail*, if a part of it within one sector is missing (zeros, or beyond the end), and no later record states
  that the file was durable beyond it: it and everything behind it are truncated;
- *damage* otherwise: nothing is truncated, and the node does not start.

Magic and trailer are not zero, so no part of a complete record is all zeros, unless a command contains a sector of
zeros.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from streamlog.errors import DamagedFileError

MAGIC: Final = 0x5A
TRAILER: Final = b"\xa5"
SECTOR_BYTES: Final = 512
"""What a device writes atomically."""
PAYLOAD_BYTES_MAX: Final = 64 << 20
"""A length above this is damage; the largest command is far below it."""

_FIELDS: Final = struct.Struct("<BBHIQQI")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _CRC.size
OVERHEAD_BYTES: Final = HEADER_BYTES + len(TRAILER)


class RecordKind(enum.IntEnum):
    FILE = 1  # the first record: format version (u16), directory id (16 bytes)
    BASE = 2  # index (u64), term (u64): the log restarts behind this entry; all entries before the record are void
    ENTRY = 3  # index (u64), term (u64), data: the next entry
    STATE = 4  # term (u64), vote (i64, -1: none)
    TRUNCATE = 5  # index (u64): this entry and everything behind it are void
    SEAL = 6  # no payload: written when the journal is idle, for its `durable`
    PEER = 7  # node id (u32), directory id (16 bytes): the directory that a voter showed first


FILE_PAYLOAD: Final = struct.Struct("<H16s")
BASE_PAYLOAD: Final = struct.Struct("<QQ")
ENTRY_PAYLOAD: Final = struct.Struct("<QQ")
STATE_PAYLOAD: Final = struct.Struct("<Qq")
TRUNCATE_PAYLOAD: Final = struct.Struct("<Q")
PEER_PAYLOAD: Final = struct.Struct("<I16s")


class JournalRecord(Struct, frozen=True):
    kind: int
    position: int
    durable: int
    payload: bytes

    @property
    def end(self) -> int:
        return self.position + OVERHEAD_BYTES + len(self.payload)


def encode(kind: RecordKind, position: int, durable: int, payload: bytes) -> bytes:
    fields = _FIELDS.pack(MAGIC, kind, 0, len(payload), position, durable, zlib.crc32(payload))
    return b"".join((fields, _CRC.pack(zlib.crc32(fields)), payload, TRAILER))


def scan(data: bytes, path: str, remedy: str) -> tuple[list[JournalRecord], int]:
    """The records of a journal's bytes, and where they end: before `len(data)` if there is a torn tail.

    DamagedFileError if a record is invalid and not provably part of a torn tail.
    """
    records = []
    position = 0
    while position < len(data):
        record = _read(data, position)
        if record is None:
            reason = _why_not_torn(data, position)
            if reason is not None:
                raise DamagedFileError(path, position, reason, remedy)
            break
        records.append(record)
        position = record.end
    return records, position


def _header(data: bytes, position: int) -> tuple[int, int, int, int] | None:
    """(kind, payload length, durable, CRC of the payload) of the complete header at `position`, if it is valid."""
    magic, kind, zero, length, own, durable, payload_crc = _FIELDS.unpack_from(data, position)
    (crc,) = _CRC.unpack_from(data, position + _FIELDS.size)
    if magic != MAGIC or zero or own != position or durable > position or length > PAYLOAD_BYTES_MAX:
        return None
    if zlib.crc32(data[position : position + _FIELDS.size]) != crc:
        return None
    return kind, length, durable, payload_crc


def _read(data: bytes, position: int) -> JournalRecord | None:
    """The record at `position` if it is valid."""
    header = _header(data, position) if position + HEADER_BYTES <= len(data) else None
    if header is None:
        return None
    kind, length, durable, crc = header
    body, end = position + HEADER_BYTES, position + OVERHEAD_BYTES + length
    payload = data[body : end - len(TRAILER)]
    if end > len(data) or zlib.crc32(payload) != crc or data[end - len(TRAILER) : end] != TRAILER:
        return None
    return JournalRecord(kind, position, durable, payload)


def _why_not_torn(data: bytes, position: int) -> str | None:
    """Why the invalid record at `position` is damage; None if it is a torn tail."""
    for later in _later_records(data, position + 1):
        if later.durable > position:
            return f"the record is corrupt, but it was synced according to the record at {later.position}"
    if _has_hole(data, position):
        return None
    return "the record is corrupt, and no sector of it is missing as after a power cut"


def _later_records(data: bytes, position: int) -> Iterator[JournalRecord]:
    """Valid records at any position, since the chain of lengths is broken."""
    position = data.find(MAGIC, position)
    while position >= 0:
        record = _read(data, position)
        if record is not None:
            yield record
        position = data.find(MAGIC, position + 1 if record is None else record.end)


def _has_hole(data: bytes, position: int) -> bool:
    """Whether a sector's part of the record at `position` is zeros, or the file ends inside it."""
    if position + HEADER_BYTES > len(data):
        return _is_cut_header(data[position:], position) or _has_zero_sector(data, position, len(data))
    header = _header(data, position)
    if header is None:
        return _has_zero_sector(data, position, position + HEADER_BYTES)
    end = position + OVERHEAD_BYTES + header[1]
    return end > len(data) or _has_zero_sector(data, position, end)


def _is_cut_header(present: bytes, position: int) -> bool:
    """Whether these last bytes of a file are the start of a header: magic and, as far as present, the position."""
    expected = _FIELDS.pack(MAGIC, 0, 0, 0, position, 0, 0)
    place = slice(8, 16)
    own = present[place]
    return present[0] == MAGIC and own == expected[place][: len(own)]


def _has_zero_sector(data: bytes, begin: int, end: int) -> bool:
    while begin < end:
        until = min(end, begin + SECTOR_BYTES - begin % SECTOR_BYTES)
        if not any(data[begin:until]):
            return True
        begin = until
    return False
