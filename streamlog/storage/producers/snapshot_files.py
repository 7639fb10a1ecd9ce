"""The producer snapshots of a log, files beside its segments, named by the offset up to which they cover the log.

A snapshot is valid for one history only. Where the log is truncated, or was found shorter, those above the new end are
deleted before anything is appended: other batches may follow there.
"""

from __future__ import annotations

from streamlog.errors import DamagedFileError
from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.storage.files import names
from streamlog.storage.files.replace_file import install, read_file, write_temporary
from streamlog.storage.producers.producer_states import ProducerStates
from streamlog.storage.producers.snapshot_format import SIZE_MAX, format_snapshot, parse_snapshot


def save_snapshot(fs: FileSystem, directory: str, producers: ProducerStates, end_offset: Offset) -> None:
    """The state at `end_offset`; not durable yet."""
    path = names.join(directory, names.file_name(end_offset, names.SNAPSHOT))
    write_temporary(fs, path, format_snapshot(producers))
    install(fs, path)


def load_snapshot(fs: FileSystem, directory: str, upto: Offset) -> ProducerStates | None:
    """The newest intact snapshot at or below `upto`."""
    for offset in sorted(_offsets(fs, directory), reverse=True):
        if offset > upto:
            continue
        path = names.join(directory, names.file_name(offset, names.SNAPSHOT))
        try:
            content = read_file(fs, path, SIZE_MAX)
            if content is not None:
                return ProducerStates(parse_snapshot(path, content), offset)
        except (DamagedFileError, ValueError):
            continue  # derived: an older one and more batches give the same state
    return None


def drop_snapshots_above(fs: FileSystem, directory: str, offset: Offset) -> None:
    """Durable once the directory is synced."""
    for above in _offsets(fs, directory):
        if above > offset:
            fs.unlink(names.join(directory, names.file_name(above, names.SNAPSHOT)))


def _offsets(fs: FileSystem, directory: str) -> list[Offset]:
    parsed = map(names.parse_file_name, fs.list(directory))
    return [one[0] for one in parsed if one is not None and one[1:] == (names.SNAPSHOT, "")]
