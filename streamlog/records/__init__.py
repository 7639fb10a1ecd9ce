"""The record formats, as a pure library: bytes in, values out, and back.

One subject a file:

    header        layout of a batch; all that a broker may do without looking at a record
    validation    what a producer may send
    batch         make batches; `builder` collects records for one
    decode        batches to Record objects
    columnar      batches to columns, for Arrow
    compression   the codecs, bounded; `snappy` has Kafka's framing of it

and under them `encode`, `record_loop`, `starts`, `ragged`, `payload`, `varint`: the format of a record, written and
read one at a time and many at once.
"""

from streamlog.records.batch import BatchFields, encode_batch, rebuilt_batch
from streamlog.records.builder import BatchBuilder
from streamlog.records.columnar import BinaryColumn, RecordColumns, decode_columns
from streamlog.records.decode import decode_batch, iter_batch, iter_batches, iter_fields
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
from streamlog.records.record import Header, Headers, Record
from streamlog.records.validation import ProduceLimits, validate

__all__ = [
    "BatchBuilder",
    "BatchFields",
    "BatchHeader",
    "BinaryColumn",
    "Buffer",
    "Codec",
    "Header",
    "Headers",
    "ProduceLimits",
    "Record",
    "RecordColumns",
    "TimestampType",
    "check_crc",
    "codec_of",
    "decode_batch",
    "decode_columns",
    "encode_batch",
    "iter_batch",
    "iter_batches",
    "iter_fields",
    "read_header",
    "rebuilt_batch",
    "restamp_log_append_time",
    "scan_headers",
    "stamp",
    "validate",
]
