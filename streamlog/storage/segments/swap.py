"""Replacing segments by a compacted one, so that a crash at any point leaves either the old ones or the new one.

    1. write `<base>.log.cleaned` and its indexes, sync them
    2. rename them to `.swap`: the indexes first, the log last; sync the directory      <- the new one counts from here
    3. rename the covered segments' files to `.deleted`
    4. rename `.swap` to the plain names, the log last; sync the directory

`<base>` is that of the first covered segment. A start that finds `<base>.log.swap` was past step 2: it repeats 3 and
4. Which segments the new one covers follows from its last batch, so `finish_swaps` needs no other record: it covers
every segment whose base is at or above its own and not above its last offset, and the one with its own base.
"""

from __future__ import annotations

from streamlog.model import Offset
from streamlog.ports import FileSystem
from streamlog.records.header import HEADER_SIZE, LOG_OVERHEAD, read_header
from streamlog.storage.files import names


def finish_swaps(fs: FileSystem, directory: str, files: list[str]) -> list[str]:
    """Complete swaps whose `.log.swap` exists, and remove leftover `.swap` indexes. Returns the names that remain."""
    swaps = sorted(p[0] for p in map(names.parse_file_name, files) if p and p[1:] == (names.LOG, names.SWAP))
    for base in swaps:
        _finish(fs, directory, files, base)
    remaining = fs.list(directory)
    for name in remaining:
        if name.endswith(names.SWAP):
            fs.unlink(names.join(directory, name))
    return [name for name in remaining if not name.endswith(names.SWAP)]


def _finish(fs: FileSystem, directory: str, files: list[str], base: Offset) -> None:
    last = _last_offset(fs, names.join(directory, names.file_name(base, names.LOG) + names.SWAP), base)
    for name in files:
        parsed = names.parse_file_name(name)
        if parsed is None or parsed[2] or parsed[1] not in names.SEGMENT_FILES:
            continue
        if parsed[0] == base or base <= parsed[0] <= last:
            fs.unlink(names.join(directory, name))
    for kind in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.LOG):
        source = names.join(directory, names.file_name(base, kind) + names.SWAP)
        if fs.exists(source):
            fs.rename(source, source.removesuffix(names.SWAP))


def _last_offset(fs: FileSystem, path: str, base: Offset) -> Offset:
    """Last offset of the file's last batch. The file was synced as a whole, so its lengths can be trusted."""
    file = fs.open_readonly(path)
    try:
        position, last, size = 0, base, file.size()
        while size - position >= HEADER_SIZE:
            header = read_header(file.pread(HEADER_SIZE, position), 0)
            if header.size_bytes < HEADER_SIZE or header.length < HEADER_SIZE - LOG_OVERHEAD:
                break
            last = header.last_offset
            position += header.size_bytes
        return last
    finally:
        file.close()
