"""Damage to the batches of a node's logs: one field of one batch, in a log file of a node that is down, or in a closed
segment of one that runs.

Which fields the CRC of a batch covers does not matter here: base offset, length, epoch and magic are not covered, and
are changed most often. While a node is down the last batch of a log is a likely target, since what stands before a
batch is checked more easily than what comes after it.

A running node serves what it has checked since it started from the page cache, where a disk changes nothing. So the
segment is one of which the node has checked nothing, as after a restart.

Two kinds of damage leave no trace and are not made (docs/decisions/2026-11-23-damage-on-the-disk.md): while a node is
down, a higher epoch in the last batch, as a new leader's would be; and in logs of compacted topics, which are left
alone, a base offset that moves in a gap of the compaction.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from streamlog.errors import CorruptMessageError
from streamlog.model import PartitionId, TopicPartition
from streamlog.records import BatchHeader, scan_headers
from streamlog.records.header import HEADER_SIZE
from streamlog.sim.files.disk import SimDisk
from streamlog.sim.files.inode import DirectoryNode, FileNode
from streamlog.storage.files import names
from streamlog.storage.log.log import Log

OFFSET_SHIFTS: Final = (1, 3, 1000, -1, 1 << 40)
LAST_BATCH: Final = 0.5
"""Share of damage to stopped nodes that is of the last batch of a log."""
ZEROS: Final = 64


class Harm(NamedTuple):
    """`data` is written at `position` of `path`."""

    partition: TopicPartition
    path: str
    position: int
    data: bytes
    what: str


def harm_to_files(rng: random.Random, disk: SimDisk, bearable: Callable[[TopicPartition], bool]) -> Harm | None:
    """To a node that is down. None: it has no batches of partitions that can bear it."""
    files = {path: content for path, content in _log_files(disk, bearable) if _places(content)}
    if not files:
        return None
    if rng.random() < LAST_BATCH:
        directory = rng.choice(sorted({path.rpartition("/")[0] for path in files}))
        path = max(path for path in files if path.startswith(f"{directory}/"))
        number = -1
    else:
        path = rng.choice(sorted(files))
        number = rng.randrange(len(_places(files[path])))
    return _harm(rng, _partition_of(path), path, files[path], number, is_scanned=True)


def harm_to_logs(rng: random.Random, logs: Sequence[Log], bearable: Callable[[TopicPartition], bool]) -> Harm | None:
    """To a node that runs: the node has checked nothing of the segment from then on."""
    closed = [
        (log, segment)
        for log in sorted(logs, key=lambda log: log.partition)
        for segment in list(log.segments)[:-1]
        if segment.size_bytes and bearable(log.partition)
    ]
    if not closed:
        return None
    log, segment = rng.choice(closed)
    content = segment.file.pread(segment.size_bytes, 0)
    places = _places(content)
    if not places:
        return None
    segment.verified.forget()
    return _harm(rng, log.partition, segment.path(names.LOG), content, rng.randrange(len(places)), is_scanned=False)


def _log_files(disk: SimDisk, bearable: Callable[[TopicPartition], bool]) -> Iterator[tuple[str, bytes]]:
    data = disk.root.entries.get("data")
    if not isinstance(data, DirectoryNode):
        return
    for name, node in sorted(data.entries.items()):
        if not isinstance(node, DirectoryNode) or not re.fullmatch(r".+-\d+", name):
            continue
        if not bearable(_partition_of(f"/data/{name}")):
            continue
        for file_name, file in sorted(node.entries.items()):
            if re.fullmatch(r"\d{20}\.log", file_name) and isinstance(file, FileNode):
                yield f"/data/{name}/{file_name}", file.cache.read(file.cache.size, 0)


def _partition_of(path: str) -> TopicPartition:
    topic, _, number = path.split("/")[2].rpartition("-")
    return TopicPartition(topic, PartitionId(int(number)))


def _places(content: bytes) -> list[tuple[int, BatchHeader]]:
    """The batches before the first one that is damaged already."""
    found: list[tuple[int, BatchHeader]] = []
    try:
        for place in scan_headers(content, 0, len(content)):
            found.append(place)  # what comes before the error is kept
    except CorruptMessageError:
        pass
    return found


def _harm(
    rng: random.Random, partition: TopicPartition, path: str, content: bytes, number: int, *, is_scanned: bool
) -> Harm:
    """To batch `number` of a file. `is_scanned`: the next start rebuilds the table of epochs from what it reads."""
    places = _places(content)
    begin, header = places[number]
    field = rng.choice(("base offset", "base offset", "length", "epoch", "epoch", "magic", "crc", "records", "zeros"))
    is_last = is_scanned and number in (-1, len(places) - 1)
    if field == "epoch" and is_last and header.leader_epoch == 0:
        field = "crc"
    match field:
        case "base offset":
            offset = max(0, header.base_offset + rng.choice(OFFSET_SHIFTS))
            return Harm(partition, path, begin, struct.pack(">q", offset), f"base offset {offset}")
        case "epoch":
            epoch = max(0, header.leader_epoch + (-1 if is_last else rng.choice((1, 5, -1))))
            return Harm(partition, path, begin + 12, struct.pack(">i", epoch), f"epoch {epoch}")
        case "zeros":
            return Harm(partition, path, begin, bytes(min(ZEROS, len(content) - begin)), "zeros")
    position = begin + {"length": 8, "magic": 16, "crc": 17, "records": HEADER_SIZE}[field]
    position += rng.randrange({"length": 4, "magic": 1, "crc": 4}.get(field, header.size_bytes - HEADER_SIZE))
    return Harm(partition, path, position, bytes([content[position] ^ 1 << rng.randrange(8)]), field)
