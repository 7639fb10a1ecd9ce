"""Logs of magic 0 and 1, encoded by kafka-python; the offsets that a broker assigns are put in afterwards."""

from __future__ import annotations

from typing import Final

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tests.cli.dump.logs import START_MS

CODECS: Final = {"none": 0, "gzip": 1, "lz4": 3}
RECORDS: Final = (
    (b"key-0", b"value-0"),
    (None, b"value-1"),
    (b"key-2", None),
)


def messages(magic: int, codec: str, first_offset: int) -> bytes:
    """RECORDS as a broker stores them: one entry each, or one wrapper whose offset is the last one's."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=CODECS[codec], batch_size=1 << 16)
    for index, (key, value) in enumerate(RECORDS):
        # Behind magic 1 the offsets in a wrapper are relative; in magic 0 they are absolute.
        offset = index if magic == 1 and codec != "none" else first_offset + index
        builder.append(offset, timestamp=START_MS + index, key=key, value=value)
    entries = bytes(builder.build())
    if codec == "none":
        return entries
    return (first_offset + len(RECORDS) - 1).to_bytes(8, "big") + entries[8:]


def every_kind() -> bytes:
    """One after another: magic 0 and 1, each codec that they have and kafka-python can write."""
    log = b""
    for number, (magic, codec) in enumerate((magic, codec) for magic in (0, 1) for codec in CODECS):
        log += messages(magic, codec, number * len(RECORDS))
    return log
