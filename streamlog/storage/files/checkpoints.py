"""Kafka's text checkpoints: a version line, a count line, then an entry a line.

    recovery-point-offset-checkpoint, log-start-offset-checkpoint,
    replication-offset-checkpoint, cleaner-offset-checkpoint:   `topic partition offset`
    leader-epoch-checkpoint (one a partition):                  `epoch start-offset`
    transaction-index-checksums (one a partition, ours alone):  `base-offset crc32c`

Written as a whole (`replace_file`), so they are never torn: what does not parse is damage, reported with file and
position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamlog.errors import DamagedFileError
from streamlog.model import INT32_MAX, INT64_MAX, LeaderEpoch, Offset, PartitionId, TopicPartition
from streamlog.ports import FileSystem
from streamlog.storage.files.replace_file import read_file

VERSION: Final = 0
SIZE_MAX: Final = 256 << 20  # about a million partitions with the longest names


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that was appended in it."""

    epoch: LeaderEpoch
    start_offset: Offset


def format_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Sorted by partition, so that equal content is equal bytes."""
    return _format(f"{p.topic} {p.partition} {offset}" for p, offset in sorted(offsets.items()))


def parse_offsets(path: str, content: bytes) -> dict[TopicPartition, Offset]:
    offsets: dict[TopicPartition, Offset] = {}
    for position, line in _lines(path, content):
        match line.split(" "):
            case [topic, partition, offset] if _is_number(partition, INT32_MAX) and _is_number(
                offset.removeprefix("-")
            ):
                offsets[TopicPartition(topic, PartitionId(int(partition)))] = Offset(int(offset))
            case _:
                raise DamagedFileError(path, position, f"not `topic partition offset`: {line[:80]!r}")
    return offsets


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, Offset]:
    """Empty where the file does not exist."""
    try:
        content = read_file(fs, path, SIZE_MAX)
    except ValueError as e:
        raise DamagedFileError(path, SIZE_MAX, str(e)) from None
    return {} if content is None else parse_offsets(path, content)


def format_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return _format(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def parse_epochs(path: str, content: bytes) -> list[EpochEntry]:
    """Entries in file order; DamagedFileError unless epochs and offsets rise."""
    entries: list[EpochEntry] = []
    for position, line in _lines(path, content):
        match line.split(" "):
            case [epoch, offset] if _is_number(epoch, INT32_MAX) and _is_number(offset):
                entry = EpochEntry(LeaderEpoch(int(epoch)), Offset(int(offset)))
            case _:
                raise DamagedFileError(path, position, f"not `epoch offset`: {line[:80]!r}")
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            raise DamagedFileError(path, position, f"epochs or offsets fall: {line!r} after {entries[-1]}")
        entries.append(entry)
    return entries


def format_sums(sums: Mapping[Offset, int]) -> bytes:
    """`base-offset crc32c`, of the index of aborted transactions of each closed segment."""
    return _format(f"{base} {value}" for base, value in sorted(sums.items()))


def parse_sums(path: str, content: bytes) -> dict[Offset, int]:
    sums: dict[Offset, int] = {}
    for position, line in _lines(path, content):
        match line.split(" "):
            case [base, value] if _is_number(base) and _is_number(value):
                sums[Offset(int(base))] = int(value)
            case _:
                raise DamagedFileError(path, position, f"not `base-offset checksum`: {line[:80]!r}")
    return sums


def _is_number(text: str, largest: int = INT64_MAX) -> bool:
    """At most 20 digits, as an int64 has: Python refuses to read much longer ones with another error."""
    return text.isdigit() and len(text) <= 20 and int(text) <= largest


def _format(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([str(VERSION), str(len(body)), *body, ""]).encode()


def _lines(path: str, content: bytes) -> list[tuple[int, str]]:
    """(position in the file, text) of each entry, after the checks of version and count."""
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as e:
        raise DamagedFileError(path, e.start, "not ASCII text") from None
    lines: list[tuple[int, str]] = []
    position = 0
    for line in text.split("\n"):
        if line:
            lines.append((position, line))
        position += len(line) + 1
    if len(lines) < 2 or not _is_number(lines[0][1]) or not _is_number(lines[1][1]):
        raise DamagedFileError(path, 0, "no version and count")
    if int(lines[0][1]) != VERSION:
        raise DamagedFileError(path, 0, f"version {lines[0][1]}, only {VERSION} is known")
    if int(lines[1][1]) != len(lines) - 2:
        reason = f"{lines[1][1]} entries announced, {len(lines) - 2} found"
        raise DamagedFileError(path, lines[1][0], reason)
    return lines[2:]
