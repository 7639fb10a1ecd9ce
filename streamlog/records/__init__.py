"""The record formats, as a pure library: bytes in, values out, and back.

One subject a file:

    header        layout of a batch; everything that a broker may do without decoding records
    batch         make batches; `builder` collects records for one, `encode` writes a record
    decode        batches to Record objects; `record_loop` reads them one at a time
    control       control batches: ends of transactions, leader changes
    checks/       what a producer may send
    columns/      batches by column, with numpy
    compression/  the codecs, bounded
    legacy/       messages of magic 0 and 1

and below them `payload` and `varint`: the bytes of the records, and the numbers in them. `message_reader` and
`message_writer` are for Kafka's schema-versioned messages: the records of its internal topics.
`held_batch` describes a batch for comparison with another replica's.
"""

from streamlog.records.batch import BatchFields, encode_batch, rebuilt_batch
from streamlog.records.builder import BatchBuilder
from streamlog.records.checks.validation import ProduceLimits, validate
from streamlog.records.columns.binary_column import BinaryColumn, Strings, join_strings
from streamlog.records.columns.columnar import RecordColumns, decode_columns
from streamlog.records.compression.repacking import repacked
from streamlog.records.control import (
    ControlRecord,
    ControlType,
    EndTransactionMarker,
    LeaderChange,
    OtherControl,
    decode_control,
    encode_end_transaction,
    encode_leader_change,
)
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
from streamlog.records.legacy.conversion import convert
from streamlog.records.legacy.messages import LegacyEntry, entry_records, is_legacy, read_entry, scan_entries
from streamlog.records.record import Header, Headers, Record

__all__ = [
    "BatchBuilder",
    "BatchFields",
    "BatchHeader",
    "BinaryColumn",
    "Buffer",
    "Codec",
    "ControlRecord",
    "ControlType",
    "EndTransactionMarker",
    "Header",
    "Headers",
    "LeaderChange",
    "LegacyEntry",
    "OtherControl",
    "ProduceLimits",
    "Record",
    "RecordColumns",
    "Strings",
    "TimestampType",
    "check_crc",
    "codec_of",
    "convert",
    "decode_batch",
    "decode_columns",
    "decode_control",
    "encode_batch",
    "encode_end_transaction",
    "encode_leader_change",
    "entry_records",
    "is_legacy",
    "iter_batch",
    "iter_batches",
    "iter_fields",
    "join_strings",
    "read_entry",
    "read_header",
    "rebuilt_batch",
    "repacked",
    "restamp_log_append_time",
    "scan_entries",
    "scan_headers",
    "stamp",
    "validate",
]
