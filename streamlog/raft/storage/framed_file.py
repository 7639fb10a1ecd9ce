"""Small files that are replaced atomically and checked by magic number, version, length and CRC.

magic (4 bytes) | format version (u16) | payload length (u32) | CRC-32 of the payload (u32) | payload
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from streamlog.errors import DamagedFileError, UnsupportedVersionError
from streamlog.ports import FileSystem

_HEADER: Final = struct.Struct("<4sHII")
VERSION: Final = 1
PAYLOAD_BYTES_MAX: Final = 1 << 16


def frame(magic: bytes, payload: bytes) -> bytes:
    return _HEADER.pack(magic, VERSION, len(payload), zlib.crc32(payload)) + payload


async def write_framed(fs: FileSystem, path: str, magic: bytes, payload: bytes) -> None:
    """Durable when it returns."""
    temporary = f"{path}.tmp"
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwritev((frame(magic, payload),), 0)
        await file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    await fs.sync_dir(path.rpartition("/")[0])


def read_framed(fs: FileSystem, path: str, magic: bytes, *, remedy: str) -> bytes:
    """The payload. DamagedFileError, UnsupportedVersionError, FileNotFoundError."""
    file = fs.open_readonly(path)
    try:
        data = file.pread(_HEADER.size + PAYLOAD_BYTES_MAX + 1, 0)
    finally:
        file.close()
    if len(data) < _HEADER.size:
        raise DamagedFileError(path, len(data), f"has {len(data)} bytes, fewer than its header", remedy)
    found, version, length, crc = _HEADER.unpack_from(data)
    if found != magic:
        raise DamagedFileError(path, 0, f"begins with {found!r} instead of {magic!r}", remedy)
    if version != VERSION:
        raise UnsupportedVersionError(f"{path}: format version {version}; this release reads {VERSION}")
    payload = data[_HEADER.size :]
    if len(payload) != length:
        raise DamagedFileError(path, len(data), f"{len(payload)} bytes of payload instead of {length}", remedy)
    if zlib.crc32(payload) != crc:
        raise DamagedFileError(path, _HEADER.size, "the payload does not match its CRC", remedy)
    return payload
