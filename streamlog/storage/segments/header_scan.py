"""Every header of a range of a segment, read off the loop in bounded pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import CorruptMessageError
from streamlog.ports import File
from streamlog.records import BatchHeader, scan_headers
from streamlog.records.header import CRC_START, HEADER_SIZE, LOG_OVERHEAD

CHUNK_BYTES: Final = 1 << 20
_LENGTH_END: Final = LOG_OVERHEAD


class Scanned(NamedTuple):
    position: int  # in the file
    header: BatchHeader


async def scan_file(file: File, start: int, end: int, *, check_crc: bool) -> AsyncIterator[list[Scanned]]:
    """The batches in [start, end), chunk by chunk.

    Raises CorruptMessageError with the position in the file at the first that is incomplete or impossible (or, with
    `check_crc`, does not match its CRC), after all previous ones have been yielded.
    """
    position, size = start, CHUNK_BYTES
    while position < end:
        wanted = min(size, end - position)
        data = await file.read(wanted, position)
        batches, fault = _chunk(data, position, file.path, check_crc)
        if batches:
            yield batches
            last = batches[-1]
            position, size = last.position + last.header.size_bytes, CHUNK_BYTES
        if fault is not None:
            raise fault
        if batches:
            continue
        size = _needed(data)
        if size > end - position or len(data) < wanted:
            raise CorruptMessageError("the last batch is incomplete", path=file.path, position=position)


def _needed(data: bytes) -> int:
    """Size of the batch at the start of `data`, whose length is possible."""
    if len(data) < HEADER_SIZE:
        return HEADER_SIZE
    return LOG_OVERHEAD + int.from_bytes(data[8:_LENGTH_END], "big")


def _chunk(data: bytes, base: int, path: str, check: bool) -> tuple[list[Scanned], CorruptMessageError | None]:
    """The complete, intact batches of `data`, and what is wrong with the next one, if anything is."""
    found: list[Scanned] = []
    view = memoryview(data)
    try:
        for at, header in scan_headers(data, 0, len(data)):
            if check and crc32c(view[at + CRC_START : at + header.size_bytes]) != header.crc:
                return found, CorruptMessageError("CRC mismatch", path=path, position=base + at)
            found.append(Scanned(base + at, header))
    except CorruptMessageError as e:
        return found, CorruptMessageError(e.reason, path=path, position=base + (e.position or 0))
    return found, None
