"""Transaction markers: control batches that end a producer's transaction. They are the only batches whose records the
storage decodes, because their header does not contain the outcome.
"""

from __future__ import annotations

from streamlog.errors import CorruptMessageError, InvalidRecordError, MessageTooLargeError, UnsupportedCompressionError
from streamlog.ports import Buffer, File
from streamlog.records import BatchHeader, EndTransactionMarker, decode_batch, decode_control


def marker_in(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in a control batch. None: its record was compacted away, or is of another or an unknown kind: then the
    transaction stays open, which harms no reader.

    CorruptMessageError where the bytes are not a batch.
    """
    if not header.has_producer or not header.record_count:
        return None
    try:
        found = decode_control(decode_batch(batch)[0])
    except InvalidRecordError:
        return None
    return found if isinstance(found, EndTransactionMarker) else None


def read_marker(file: File, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """`marker_in` of the control batch at `position`, which has just been written or scanned, so it is in the page
    cache.
    """
    if not header.has_producer:
        return None
    try:
        return marker_in(file.pread(header.size_bytes, position), header)
    except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionError) as e:
        raise CorruptMessageError(str(e), path=file.path, position=position) from None
