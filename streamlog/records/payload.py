"""The records of a batch as plain bytes: unpacked within a limit, their count checked for plausibility."""

from __future__ import annotations

from streamlog.errors import CorruptMessageError, InvalidRecordError
from streamlog.records.compression.codecs import decompress
from streamlog.records.header import HEADER_SIZE, BatchHeader, Buffer, Codec
from streamlog.records.record_loop import RECORD_MIN, checked_sum


def unpacked_records(buffer: Buffer, position: int, header: BatchHeader, unpacked_bytes_max: int) -> bytes:
    """What follows the header of the batch at `position`, decompressed to at most `unpacked_bytes_max` bytes.

    The CRC is not checked. The header's counts are checked against the bytes, so that no caller makes a list of 2^31
    records for a batch of 70 bytes. Raises CorruptMessageError (incomplete, a damaged or overlong stream),
    MessageTooLargeError, UnsupportedCompressionError, InvalidRecordError (counts).
    """
    end = position + header.size_bytes
    if not HEADER_SIZE <= header.size_bytes <= len(buffer) - position:
        raise CorruptMessageError("the batch is incomplete", position=position, length=header.length)
    count = header.record_count
    codec = header.codec
    if count == 0 and header.size_bytes == HEADER_SIZE:
        return b""  # compaction left only the header, with the codec of the removed records
    packed = buffer[position + HEADER_SIZE : end]
    raw = bytes(packed) if codec is Codec.NONE else decompress(codec, packed, unpacked_bytes_max)
    if not 0 <= count <= len(raw) // RECORD_MIN:
        raise InvalidRecordError(f"{len(raw)} bytes are not {count} records", field="record_count", position=position)
    if header.last_offset_delta < count - 1:
        reason = f"last offset delta {header.last_offset_delta} is too small for {count} records"
        raise InvalidRecordError(reason, field="last_offset_delta", position=position)
    checked_sum(header.base_offset, header.last_offset_delta)
    return raw
