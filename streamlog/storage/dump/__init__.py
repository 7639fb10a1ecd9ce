"""Reads any file of a log for inspection: `read` yields values, formatting them is left to the command line.

    files         from a name to its reader; opens, closes
    log_file      records or batches of a `.log`, by way of `framing`
    framing       positions of batches, and how to continue after damage
    index_files   `.index`, `.timeindex`, checked against the log beside them
    small_files   checkpoints, `.snapshot`, `.txnindex`
    items         what is found: a closed union of values, damage among them

Unlike the rest of `storage` it does not stop at damage: that is a value in the stream, followed by what is intact
after it. It changes no file, needs no lock, and can read the files of a running node: batches appended after it
started are not included. Memory is bounded by one batch, however long the file is.
"""

from streamlog.storage.dump.files import FileKind, IndexMode, kind_of, read
from streamlog.storage.dump.items import (
    Batch,
    ControlMarker,
    Damage,
    EmptyIndex,
    EpochStartOffset,
    Item,
    LogRecord,
    LogStart,
    OffsetIndexEntry,
    PartitionOffset,
    ProducerEntry,
    SanityPassed,
    TimeIndexEntry,
)
from streamlog.storage.segments.transaction_index import AbortedTransaction

__all__ = [
    "AbortedTransaction",
    "Batch",
    "ControlMarker",
    "Damage",
    "EmptyIndex",
    "EpochStartOffset",
    "FileKind",
    "IndexMode",
    "Item",
    "LogRecord",
    "LogStart",
    "OffsetIndexEntry",
    "PartitionOffset",
    "ProducerEntry",
    "SanityPassed",
    "TimeIndexEntry",
    "kind_of",
    "read",
]
