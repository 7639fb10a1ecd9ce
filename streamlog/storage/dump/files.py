"""From a file's name to the reader of its kind. Opens for reading only, and closes when the reader is done."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final

from streamlog.model import Offset
from streamlog.ports import File, FileSystem
from streamlog.storage.dump.index_files import (
    check_offset_index,
    check_time_index,
    read_offset_index,
    read_time_index,
)
from streamlog.storage.dump.items import Damage, Item
from streamlog.storage.dump.log_file import read_log
from streamlog.storage.dump.small_files import (
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_producer_snapshot,
    read_transaction_index,
)
from streamlog.storage.files import names

SMALL_FILE_BYTES_MAX: Final = 256 << 20  # what is read whole: a checkpoint of a million partitions, 5 M producers


class FileKind(enum.Enum):
    LOG = enum.auto()
    OFFSET_INDEX = enum.auto()
    TIME_INDEX = enum.auto()
    TRANSACTION_INDEX = enum.auto()
    PRODUCER_SNAPSHOT = enum.auto()
    OFFSET_CHECKPOINT = enum.auto()
    EPOCH_CHECKPOINT = enum.auto()


class IndexMode(enum.Enum):
    """What to read of an index; ignored for other kinds of files."""

    ENTRIES = enum.auto()  # its entries, verified where the log is in the same directory
    VERIFY = enum.auto()  # the same, and a missing log is reported
    SANITY = enum.auto()  # only whether a start would take it as it is


_SUFFIXES: Final = {
    names.LOG: FileKind.LOG,
    ".checkpoint": FileKind.LOG,  # Kafka's metadata snapshots: record batches under another name
    names.INDEX: FileKind.OFFSET_INDEX,
    names.TIME_INDEX: FileKind.TIME_INDEX,
    names.TXN_INDEX: FileKind.TRANSACTION_INDEX,
    names.SNAPSHOT: FileKind.PRODUCER_SNAPSHOT,
}
_STATES: Final = (names.DELETED, names.CLEANED, names.SWAP, names.TEMPORARY)
_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


def kind_of(path: str) -> FileKind | None:
    """What the file is, by its name; None for unknown names. An index must have its base offset in the name."""
    name, _ = _without_state(path.rpartition("/")[2])
    if name == names.LEADER_EPOCHS:
        return FileKind.EPOCH_CHECKPOINT
    if name.endswith("-offset-checkpoint"):
        return FileKind.OFFSET_CHECKPOINT
    stem, dot, suffix = name.rpartition(".")
    kind = _SUFFIXES.get(dot + suffix)
    return None if kind in _INDEXES and _offset_of(stem) is None else kind


def read(fs: FileSystem, path: str, *, deep: bool = True, index_mode: IndexMode = IndexMode.ENTRIES) -> Iterator[Item]:
    """Everything that is intact in the file, and the damage in between, in file order.

    `deep`: the records of a log, else its batches. Raises OSError where the file cannot be read; ValueError for an
    unknown name.
    """
    kind = kind_of(path)
    if kind is None:
        raise ValueError(f"{path}: not the name of a file of a log")
    file = fs.open_readonly(path)
    try:
        if kind is FileKind.LOG:
            yield from read_log(file, _base_offset(path), deep=deep)
        elif kind in _INDEXES:
            yield from _read_index(fs, file, path, kind, index_mode)
        else:
            yield from _read_small(file, path, kind)
    finally:
        file.close()


def _read_index(fs: FileSystem, index: File, path: str, kind: FileKind, mode: IndexMode) -> Iterator[Item]:
    base = _base_offset(path)
    assert base is not None  # checked by kind_of
    log_path = _beside(path, names.LOG)
    log = fs.open_readonly(log_path) if fs.exists(log_path) else None
    try:
        if mode is IndexMode.SANITY:
            is_offset_index = kind is FileKind.OFFSET_INDEX
            yield check_offset_index(index, base, log) if is_offset_index else check_time_index(index, base)
            return
        if log is None and mode is IndexMode.VERIFY:
            yield Damage(position=0, reason=f"cannot be verified: {log_path} is missing")
            return
        reader = read_offset_index if kind is FileKind.OFFSET_INDEX else read_time_index
        yield from reader(index, base, log)
    finally:
        if log is not None:
            log.close()


def _read_small(file: File, path: str, kind: FileKind) -> Iterator[Item]:
    size = file.size()
    if size > SMALL_FILE_BYTES_MAX:
        yield Damage(position=0, reason=f"{size} bytes are more than such a file can have ({SMALL_FILE_BYTES_MAX})")
        return
    content = file.pread(size, 0)
    match kind:
        case FileKind.OFFSET_CHECKPOINT:
            yield from read_offset_checkpoint(path, content)
        case FileKind.EPOCH_CHECKPOINT:
            yield from read_epoch_checkpoint(path, content)
        case FileKind.PRODUCER_SNAPSHOT:
            yield from read_producer_snapshot(path, content)
        case _:
            yield from read_transaction_index(content)


def _without_state(name: str) -> tuple[str, str]:
    """("000.log", ".deleted") of "000.log.deleted"."""
    for state in _STATES:
        if name.endswith(state):
            return name.removesuffix(state), state
    return name, ""


def _base_offset(path: str) -> Offset | None:
    return _offset_of(_without_state(path.rpartition("/")[2])[0].partition(".")[0])


def _offset_of(stem: str) -> Offset | None:
    return Offset(int(stem)) if stem.isascii() and stem.isdigit() and len(stem) <= 20 else None


def _beside(path: str, suffix: str) -> str:
    directory, slash, name = path.rpartition("/")
    plain, state = _without_state(name)
    return f"{directory}{slash}{plain.partition('.')[0]}{suffix}{state}"
