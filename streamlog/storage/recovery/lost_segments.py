"""Closed segments whose `.log` is missing, while their index of aborted transactions is there.

The records of a transaction may be in the segment before the one that holds its marker. If the index were removed with
what remains of a lost segment, consumers that read committed records only would be given records of aborted
transactions. So the segment remains, as one that is damaged from its beginning on: reads within it fail until it is
repaired, and the index is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamlog.errors import CorruptMessageError
from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.storage.files import names
from streamlog.storage.segments.header_scan import scan_file
from streamlog.storage.segments.transaction_index import TransactionIndex


async def keep_lost_segments(
    fs: FileSystem, directory: str, files: Sequence[str], sums: Mapping[Offset, int]
) -> list[str]:
    """Makes an empty `.log` for each of them; returns their names. `files`: the names in `directory`; `sums`: checksums
    of the indexes of closed segments, by base offset. OSError.

    Not for one that a crash during a deletion or a truncation has left: that is at an end of the log, has another
    checksum, or none, or other records are at its offsets.
    """
    present = set(files)
    lost = [
        base
        for base, value in sums.items()
        if value
        and names.file_name(base, names.TXN_INDEX) in present
        and names.file_name(base, names.LOG) not in present
        and TransactionIndex(fs, _path(directory, base, names.TXN_INDEX)).checksum() == value
    ]
    if not lost:
        return []
    logs = sorted(parsed[0] for parsed in map(names.parse_file_name, files) if parsed and parsed[1:] == (names.LOG, ""))
    made = []
    for base in lost:
        before = [other for other in logs if other < base]
        if before and base < logs[-1] and await _ends_by(fs, _path(directory, before[-1], names.LOG), base):
            fs.open(_path(directory, base, names.LOG), create=True).close()
            made.append(names.file_name(base, names.LOG))
    return made


async def _ends_by(fs: FileSystem, path: str, offset: Offset) -> bool:
    """Whether all batches of this file are intact, and below `offset`."""
    file = fs.open(path)
    try:
        async for batches in scan_file(file, 0, file.size(), check_crc=False):
            if batches[-1].header.next_offset > offset:
                return False
    except CorruptMessageError:
        return False
    finally:
        file.close()
    return True


def _path(directory: str, base: Offset, kind: str) -> str:
    return names.join(directory, names.file_name(base, kind))
