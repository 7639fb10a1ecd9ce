"""The record formats, as a pure library: bytes in, values out, and back.

One subject a file: `header` (layout of a batch, what a broker may touch), `validation` (what a producer may send).
"""

from streamlog.records.header import (
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
    check_crc,
    codec_of,
    read_header,
    restamp_log_append_time,
    scan_headers,
    stamp,
)
from streamlog.records.validation import ProduceLimits, validate

__all__ = [
    "BatchHeader",
    "Buffer",
    "Codec",
    "ProduceLimits",
    "TimestampType",
    "check_crc",
    "codec_of",
    "read_header",
    "restamp_log_append_time",
    "scan_headers",
    "stamp",
    "validate",
]
