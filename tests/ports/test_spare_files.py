"""The disk has descriptors when the process has none left."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.spare_files import SPARE_FILES


@contextmanager
def no_descriptor_left() -> Iterator[list[int]]:
    """What took them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = [os.open("/", os.O_PATH)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    try:
        while True:
            try:
                taken.append(os.open("/", os.O_PATH))
            except OSError:
                break
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


async def test_files_are_opened_listed_locked_and_synced_when_others_have_taken_all(tmp_path: Path) -> None:
    fs = PosixFileSystem(sync_threads=1, read_threads=1)
    await fs.sync_dir(str(tmp_path))  # its thread is there
    with no_descriptor_left() as taken:
        files = [fs.open(f"{tmp_path}/{number}", create=True) for number in range(8)]
        for file in files:
            file.pwritev([b"data"], 0)
            await file.sync()
        await fs.sync_dir(str(tmp_path))
        await fs.sync_all(str(tmp_path))
        fs.lock(f"{tmp_path}/.lock").release()
        assert len(fs.list(str(tmp_path))) == 9
        assert fs.spares.used_count >= 8
        for descriptor in taken[-20:]:
            os.close(descriptor)
        del taken[-20:]
        fs.spares.refill()
        for file in files:
            file.close()
    fs.close()


async def test_with_no_spare_one_left_the_error_says_so(tmp_path: Path) -> None:
    fs = PosixFileSystem(sync_threads=1, read_threads=1)
    with no_descriptor_left():
        files = [fs.open(f"{tmp_path}/{number}", create=True) for number in range(SPARE_FILES)]
        with pytest.raises(OSError, match="Too many open files") as caught:
            fs.open(f"{tmp_path}/more", create=True)
        assert caught.value.errno == errno.EMFILE
        assert fs.spares.spare_count == 0
        for file in files:
            file.close()
        fs.open(f"{tmp_path}/last", create=True).close()
        assert fs.spares.spare_count == SPARE_FILES - 1  # made up for: the file itself was open at that time
    fs.close()
