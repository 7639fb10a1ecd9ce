"""The record formats, as a pure library: bytes in, values out, and back.

One subject a file:

    header        layout of a batch; everything that a broker may do without decoding records
    validation    what a producer may send
    batch         make batches; `builder` collects records for one
    decode        batches to Record objects
    columnar      batches to columns; `binary_column` concatenates their strings, for Arrow
    control       control batches: ends of transactions, leader changes
    legacy        messages of magic 0 and 1, read; `conversion` turns them into batches
    compression   the codecs, bounded; `snappy`: Kafka's framing of it; `repacking`: another codec for a batch

and below them `encode`, `record_loop`, `starts`, `ragged`, `payload`, `varint`: the format of a record, written and
read one at a time or many at once.
"""

from streamlog.records.batch import BatchFields, encode_batch, rebuilt_batch
from streamlog.records.binary_column import BinaryColumn, Strings, join_strings
from streamlog.records.builder import BatchBuilder
from streamlog.records.columnar import RecordColumns, decode_columns
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
from streamlog.records.conversion import convert
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
from streamlog.records.legacy import LegacyEntry, entry_records, is_legacy, read_entry, scan_entries
from streamlog.records.record import Header, Headers, Record
from streamlog.records.repacking import repacked
from streamlog.records.validation import ProduceLimits, validate

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
