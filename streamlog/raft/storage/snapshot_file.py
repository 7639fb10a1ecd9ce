"""The snapshot's bytes: the state after one entry, in blocks that each have a CRC. Equal states give equal bytes.

    file    magic (4 bytes, "SLQS") | format version (u16) | block ...
    block   kind (u8) | data length (u32) | CRC-32 of kind, length and data (u32) | data

One HEAD, then SESSIONS and MACHINE blocks, then one END with the number of blocks before it: a truncated file has none.
A leader sends the same bytes to a follower, which validates them like its own.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from streamlog.errors import CorruptMessageError, DamagedFileError, UnsupportedVersionError
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.stored import Session, SnapshotHead

MAGIC: Final = b"SLQS"
FORMAT_VERSION: Final = 1
BLOCK_BYTES_MAX: Final = 1 << 20

_FILE: Final = struct.Struct("<4sH")
_BLOCK: Final = struct.Struct("<BI")
_CRC: Final = struct.Struct("<I")
_END: Final = struct.Struct("<I")
_SESSIONS_PER_BLOCK: Final = 16  # even with the largest answers a block stays below 10 MiB


class BlockKind(enum.IntEnum):
    HEAD = 1
    SESSIONS = 2
    MACHINE = 3
    END = 4


class SnapshotContent(Struct, frozen=True, kw_only=True):
    head: SnapshotHead
    sessions: Sequence[Session]
    machine: Sequence[bytes]  # the state machine's bytes, in pieces


def encode(head: SnapshotHead, sessions: Sequence[Session], machine: Iterable[bytes]) -> list[bytes]:
    """The file's bytes, in pieces. Pure; runs in a worker."""
    pieces = [_FILE.pack(MAGIC, FORMAT_VERSION), _block(BlockKind.HEAD, wire.encode_snapshot_head(head))]
    for begin in range(0, len(sessions), _SESSIONS_PER_BLOCK):
        some = sessions[begin : begin + _SESSIONS_PER_BLOCK]
        pieces.append(_block(BlockKind.SESSIONS, wire.encode_sessions(some)))
    for data in _cut(machine):
        pieces.append(_block(BlockKind.MACHINE, data))
    pieces.append(_block(BlockKind.END, _END.pack(len(pieces) - 1)))
    return pieces


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks of equal size, so the file does not depend on the machine's piece boundaries."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= BLOCK_BYTES_MAX:
            yield bytes(waiting[:BLOCK_BYTES_MAX])
            del waiting[:BLOCK_BYTES_MAX]
    if waiting:
        yield bytes(waiting)


def _block(kind: BlockKind, data: bytes) -> bytes:
    fields = _BLOCK.pack(kind, len(data))
    return b"".join((fields, _CRC.pack(zlib.crc32(data, zlib.crc32(fields))), data))


def decode(data: bytes, path: str, remedy: str) -> SnapshotContent:
    """DamagedFileError with the position, UnsupportedVersionError. Pure; runs in a worker."""
    head: SnapshotHead | None = None
    sessions: list[Session] = []
    machine: list[bytes] = []
    for position, kind, body in _blocks(data, path, remedy):
        try:
            match kind:
                case BlockKind.HEAD:
                    head = wire.decode_snapshot_head(body)
                case BlockKind.SESSIONS:
                    sessions += wire.decode_sessions(body)
                case BlockKind.MACHINE:
                    machine.append(body)
                case unknown:
                    raise UnsupportedVersionError(f"{path}: position {position}: block {unknown} is of a newer version")
        except CorruptMessageError as error:
            raise DamagedFileError(path, position, str(error), remedy) from None
    if head is None:
        raise DamagedFileError(path, 0, "has no head", remedy)
    return SnapshotContent(head=head, sessions=sessions, machine=machine)


def _blocks(data: bytes, path: str, remedy: str) -> Iterator[tuple[int, int, bytes]]:
    """(position, kind, data) of each block except the last, which is checked here."""
    if data[: len(MAGIC)] != MAGIC or len(data) < _FILE.size:
        raise DamagedFileError(path, 0, "does not begin with the magic of a snapshot", remedy)
    (_, version) = _FILE.unpack_from(data)
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(f"{path}: format version {version}; this release reads {FORMAT_VERSION}")
    position, count = _FILE.size, 0
    while True:
        kind, body = _block_at(data, position, path, remedy)
        end = position + _BLOCK.size + _CRC.size + len(body)
        if kind == BlockKind.END:
            if body != _END.pack(count):
                raise DamagedFileError(path, position, f"has {count} blocks, but its END counts another number", remedy)
            if end != len(data):
                raise DamagedFileError(path, end, f"has {len(data) - end} bytes behind its END", remedy)
            return
        yield position, kind, body
        position, count = end, count + 1


def _block_at(data: bytes, position: int, path: str, remedy: str) -> tuple[int, bytes]:
    body = position + _BLOCK.size + _CRC.size
    if body > len(data):
        raise DamagedFileError(path, position, "is truncated", remedy)
    kind, length = _BLOCK.unpack_from(data, position)
    (crc,) = _CRC.unpack_from(data, position + _BLOCK.size)
    if body + length > len(data):
        raise DamagedFileError(path, position, f"is truncated in a block of {length} bytes", remedy)
    content = data[body : body + length]
    if zlib.crc32(content, zlib.crc32(data[position : position + _BLOCK.size])) != crc:
        raise DamagedFileError(path, position, "a block does not match its CRC", remedy)
    return kind, content
