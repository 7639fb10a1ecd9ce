"""Checkpoints, producer snapshots, transaction indexes: files that are read as a whole.

The parsers of `storage` refuse a damaged file as a whole. For a repair the rest matters: the lines of a checkpoint that
parse, the complete entries of a transaction index. A snapshot is covered by one CRC, so nothing in a damaged one can be
trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from streamlog.errors import DamagedFileError
from streamlog.model import NO_OFFSET, LeaderEpoch, Offset, PartitionId
from streamlog.storage.dump.items import Damage, EpochStartOffset, Item, PartitionOffset, ProducerEntry
from streamlog.storage.files.checkpoints import parse_epochs, parse_offsets
from streamlog.storage.producers.producer_states import ProducerStateEntry
from streamlog.storage.producers.snapshot_format import parse_snapshot
from streamlog.storage.segments.transaction_index import ENTRY_SIZE, VERSION, parse_entry

_HEAD_LINES: Final = 2  # version and count
_INT64: Final = re.compile(r"-?[0-9]{1,19}")
_OVERLONG: Final = re.compile(rb"[0-9]{20,}")  # not a 64-bit number, and int() refuses thousands of digits


def read_offset_checkpoint(path: str, content: bytes) -> Iterator[Item]:
    yield from _damage(path, content, parse_offsets)
    for fields in _fields(content):
        match fields:
            case [topic, partition, offset] if _INT64.fullmatch(partition) and _INT64.fullmatch(offset):
                yield PartitionOffset(topic=topic, partition=PartitionId(int(partition)), offset=Offset(int(offset)))


def read_epoch_checkpoint(path: str, content: bytes) -> Iterator[Item]:
    yield from _damage(path, content, parse_epochs)
    for fields in _fields(content):
        match fields:
            case [epoch, offset] if _INT64.fullmatch(epoch) and _INT64.fullmatch(offset):
                yield EpochStartOffset(epoch=LeaderEpoch(int(epoch)), start_offset=Offset(int(offset)))


def _damage(path: str, content: bytes, parse: Callable[[str, bytes], object]) -> Iterator[Damage]:
    """Why the strict parser refuses the file, if it does."""
    overlong = _OVERLONG.search(content)
    if overlong is not None:
        yield Damage(position=overlong.start(), reason=f"a number of {len(overlong[0])} digits")
        return
    try:
        parse(path, content)
    except DamagedFileError as e:
        yield Damage(position=e.position, reason=e.reason)


def _fields(content: bytes) -> list[list[str]]:
    lines = [line for line in content.decode("ascii", errors="replace").split("\n") if line]
    return [line.split(" ") for line in lines[_HEAD_LINES:]]


def read_producer_snapshot(path: str, content: bytes) -> Iterator[Item]:
    try:
        producers = parse_snapshot(path, content)
    except DamagedFileError as e:
        yield Damage(position=e.position, reason=e.reason)
        return
    yield from (_producer_entry(producer) for producer in producers)


def _producer_entry(producer: ProducerStateEntry) -> ProducerEntry:
    last = producer.batches[-1] if producer.batches else None
    return ProducerEntry(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        coordinator_epoch=producer.coordinator_epoch,
        transaction_start=None if producer.transaction_start == NO_OFFSET else producer.transaction_start,
        last_timestamp_ms=producer.timestamp_ms,
        first_sequence=last.first_sequence if last else None,
        last_sequence=last.last_sequence if last else None,
        last_offset=last.last_offset if last else None,
        offset_delta=last.offset_delta if last else None,
    )


def read_transaction_index(content: bytes) -> Iterator[Item]:
    last_offset = NO_OFFSET
    whole = len(content) - len(content) % ENTRY_SIZE
    for position in range(0, whole, ENTRY_SIZE):
        entry = parse_entry(content, position)
        if entry.version != VERSION:
            yield Damage(position=position, reason=f"entry of version {entry.version}, only {VERSION} is known")
            continue
        if entry.last_offset <= last_offset:
            reason = f"last offset {entry.last_offset} comes after {last_offset}: they must rise"
            yield Damage(position=position, reason=reason)
        yield entry
        last_offset = entry.last_offset
    if whole != len(content):
        yield Damage(position=whole, reason=f"the last {len(content) - whole} bytes are not a whole entry")
