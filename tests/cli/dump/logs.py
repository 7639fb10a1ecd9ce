"""Log files for the tests of the dump tool, made with the record library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamlog.model import Offset
from streamlog.records import BatchFields, Codec, encode_batch

LOG = "00000000000000000000.log"
START_MS = 1_557_393_691_677


def one(offset: int, codec: Codec = Codec.NONE) -> bytes:
    """The batch of one record at this offset that REQUIREMENTS' known answer has: 86 bytes, uncompressed."""
    fields = BatchFields(base_offset=Offset(offset), base_sequence=0, codec=codec)
    return encode_batch([b'{"id":%d}' % offset], [b"group_demo"], timestamps=START_MS, fields=fields)


def write_log(directory: Path, batches: Sequence[bytes], name: str = LOG) -> Path:
    path = directory / name
    path.write_bytes(b"".join(batches))
    return path
