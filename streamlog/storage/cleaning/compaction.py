"""What compaction keeps of a batch (SEMANTICS 11): pure, batches in, batches out. Offsets never change.

    record                                              kept
    a newer record of its key is in the map             no
    tombstone (null value) whose horizon has passed     no
    no key                                              no (refused at produce; appended before the topic was compacted)
    any other                                           yes

A batch whose tombstones are compacted for the first time gets a delete horizon, `delete.retention.ms` from now, written
into the batch (KIP-534): consumers have that long to read the deletion. A batch without remaining records is removed,
unless it is the last of its producer (its sequence numbers must survive, KIP-98) or the last of the group of segments
(so that the group keeps its end offset): then its header stays. Records of aborted transactions are removed, and do not
overwrite others; `cleaned_transactions` decides about the markers. Other control batches stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from streamlog.model import NO_PRODUCER_ID, Offset
from streamlog.records import BatchHeader, check_crc, decode_batch, rebuilt_batch, scan_headers
from streamlog.storage.cleaning.cleaned_transactions import CleanedTransactions
from streamlog.storage.cleaning.key_map import KeyMap
from streamlog.storage.producers.markers import marker_in


class Rules(NamedTuple):
    """One cleaning of one log."""

    map: KeyMap
    now_ms: int
    delete_retention_ms: int
    is_producers_last: Callable[[BatchHeader], bool]
    keep_offset: Offset  # the batch with this last offset is kept, if only as a header


class Cleaned(NamedTuple):
    data: bytes  # whole batches
    read_bytes: int  # how much of the input was cleaned; what follows is an incomplete batch
    records_read: int
    records_kept: int


def map_chunk(data: bytes, key_map: KeyMap, end_offset: Offset, transactions: CleanedTransactions) -> tuple[int, bool]:
    """Add the batches of `data` below `end_offset`. Returns (bytes read, whether the map is full)."""
    taken = 0
    for position, header in scan_headers(data, 0, len(data)):
        if header.next_offset > end_offset:
            return taken, True
        if header.is_control:
            transactions.releases(header, marker_in(data[position : position + header.size_bytes], header))
        elif not transactions.drops(header) and header.next_offset > key_map.start_offset:
            if not key_map.has_space_for(header.record_count):
                return taken, True
            check_crc(data, position, header)
            for record in decode_batch(data, position):
                if record.key is not None and record.offset >= key_map.start_offset:
                    key_map.put(record.key, record.offset)
        key_map.end_offset = max(key_map.end_offset, header.next_offset)
        taken = position + header.size_bytes
    return taken, False


def clean_chunk(data: bytes, rules: Rules, transactions: CleanedTransactions) -> Cleaned:
    """What remains of the whole batches in `data`. CorruptMessageError where one is damaged."""
    out: list[bytes] = []
    taken = read = kept = 0
    for position, header in scan_headers(data, 0, len(data)):
        check_crc(data, position, header)
        taken = position + header.size_bytes
        batch = data[position:taken]
        read += header.record_count
        left: bytes | None
        if header.is_control:
            left = _clean_control(batch, header, rules, transactions)
        elif transactions.drops(header):
            left = _emptied(batch, header, rules)
        else:
            left = clean_batch(batch, header, rules)
        if left is not None:
            out.append(left)
            kept += int.from_bytes(left[57:61], "big")
    return Cleaned(b"".join(out), taken, read, kept)


def clean_batch(batch: bytes, header: BatchHeader, rules: Rules) -> bytes | None:
    """The batch, the batch with fewer records, or None where nothing of it is needed."""
    records = decode_batch(batch)
    drop_tombstones = header.has_delete_horizon and header.base_timestamp <= rules.now_ms
    kept = [
        record
        for record in records
        if record.key is not None
        and (record.value is not None or not drop_tombstones)
        and rules.map.is_latest(record.key, record.offset)
    ]
    horizon = None
    if not header.has_delete_horizon and any(record.value is None for record in kept):
        horizon = rules.now_ms + rules.delete_retention_ms
    if not kept:
        return _emptied(batch, header, rules)
    if len(kept) == len(records) and horizon is None:
        return batch
    return rebuilt_batch(header, kept, delete_horizon_ms=horizon)


def _clean_control(batch: bytes, header: BatchHeader, rules: Rules, transactions: CleanedTransactions) -> bytes | None:
    if not transactions.releases(header, marker_in(batch, header)):
        return batch
    if not header.has_delete_horizon:
        horizon = rules.now_ms + rules.delete_retention_ms
        return rebuilt_batch(header, decode_batch(batch), delete_horizon_ms=horizon)
    return batch if header.base_timestamp > rules.now_ms else _emptied(batch, header, rules)


def _emptied(batch: bytes, header: BatchHeader, rules: Rules) -> bytes | None:
    """The batch without its records, or None where not even its header is needed."""
    needed = header.producer_id != NO_PRODUCER_ID and rules.is_producers_last(header)
    if not needed and header.last_offset != rules.keep_offset:
        return None
    return batch if not header.record_count else rebuilt_batch(header, ())
