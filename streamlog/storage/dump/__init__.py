"""Reads any file of a log for a person to look at: `read` gives values, nothing here knows how they are printed.

    files         from a name to its reader; opens, closes
    log_file      records or batches of a `.log`, by way of `framing`
    framing       where batches stand, and how to go on behind damage
    index_files   `.index`, `.timeindex`, checked against the log beside them
    small_files   checkpoints, `.snapshot`, `.txnindex`
    items         what is found: a closed union of values, damage among them

Unlike the rest of `storage` it stops at nothing: damage is a value in the stream, and what is intact behind it
follows. It changes no file, needs no lock, and may look at the files of a running node: what is appended after it
began is not seen. Memory stays bounded by one batch, however long the file is.
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
