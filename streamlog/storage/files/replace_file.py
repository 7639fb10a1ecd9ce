"""Small files that are replaced atomically: after a crash they have the old content or the new one."""

from __future__ import annotations

from streamlog.ports import FileSystem
from streamlog.storage.files import names


def write_temporary(fs: FileSystem, path: str, content: bytes) -> None:
    """Write `path`.tmp, not durable yet: for callers who sync many files at once before `install`."""
    file = fs.open(path + names.TEMPORARY, create=True)
    try:
        file.truncate(0)
        file.pwritev((content,), 0)
    finally:
        file.close()


def install(fs: FileSystem, path: str) -> None:
    """Put the temporary file in place. Durable once its directory is synced; its data must be durable before."""
    fs.rename(path + names.TEMPORARY, path)


async def replace_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Write, sync, rename, sync the directory. Durable when it returns."""
    file = fs.open(path + names.TEMPORARY, create=True)
    try:
        file.truncate(0)
        file.pwritev((content,), 0)
        await file.sync()
    finally:
        file.close()
    install(fs, path)
    await fs.sync_dir(path.rpartition("/")[0])


def read_file(fs: FileSystem, path: str, size_max: int) -> bytes | None:
    """The content, None where there is no such file. ValueError where it is longer than `size_max`."""
    try:
        file = fs.open_readonly(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        if size > size_max:
            raise ValueError(f"{path} has {size} bytes, more than the {size_max} that such a file can have")
        return file.pread(size, 0)
    finally:
        file.close()
