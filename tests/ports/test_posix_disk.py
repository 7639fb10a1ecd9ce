"""PosixFileSystem alone: modes, threads, and a kernel whose disk is full or fails."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.ports import posix_disk
from streamlog.ports.posix_disk import LARGE_BYTES, PosixFileSystem
from streamlog.ports.threads.syncs import Ended, ThreadSyncs

from .loopdev import LoopDisk, run_tool, unavailable

MIB = 1 << 20


@pytest.fixture
def fs() -> Iterator[PosixFileSystem]:
    made = PosixFileSystem(sync_threads=1, read_threads=1)
    yield made
    made.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_read(fs: PosixFileSystem, tmp_path: Path) -> None:
    fs.mkdir(f"{tmp_path}/x/y", parents=True)
    fs.mkdir(f"{tmp_path}/x/z")
    fs.open(f"{tmp_path}/x/file", create=True).close()
    fs.lock(f"{tmp_path}/x/.lock").release()
    assert [mode(tmp_path / "x" / name) for name in ("", "y", "z", "file", ".lock")] == [0o700] * 3 + [0o600] * 2


def test_a_lock_keeps_other_processes_out_until_the_holder_dies(fs: PosixFileSystem, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    program = (
        "import sys; from streamlog.ports.posix_disk import PosixFileSystem; "
        "lock = PosixFileSystem().lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError):
            fs.lock(path)
        holder.kill()
    fs.lock(path).release()


def test_a_descriptor_outlives_its_close_while_a_thread_works_on_it(fs: PosixFileSystem, tmp_path: Path) -> None:
    async def work() -> None:
        file = fs.open(f"{tmp_path}/a", create=True)
        file.pwritev([b"x"], 0)
        gate = threading.Event()
        file._threads.readers.submit(gate.wait)  # the only thread for reads is busy
        reading = asyncio.ensure_future(file.read(1, 0))
        await asyncio.sleep(0)
        file.close()
        still_open = f"{tmp_path}/a" in open_paths()
        gate.set()
        assert still_open
        assert await reading == b"x"

    asyncio.run(work())
    assert f"{tmp_path}/a" not in open_paths()


MEMORY = Path("/dev/shm")


@pytest.mark.skipif(
    not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK) or MEMORY.stat().st_dev == Path("/tmp").stat().st_dev,
    reason="needs a second file system: /dev/shm",
)
def test_a_device_that_hangs_does_not_hold_up_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, sync = threading.Event(), os.fdatasync
    monkeypatch.setattr(posix_disk, "new_syncs", ThreadSyncs)
    fs = PosixFileSystem(sync_threads=1, read_threads=1)
    other = f"{MEMORY}/streamlog-{os.getpid()}"
    hung, healthy = fs.open(f"{tmp_path}/a", create=True), fs.open(other, create=True)

    def hang(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == hung.path:
            gate.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", hang)

    async def work() -> None:
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(hung.sync())]
        hung._threads.readers.submit(gate.wait)
        waiting.append(asyncio.ensure_future(hung.read(1, 0)))
        async with asyncio.timeout(60):
            await healthy.sync()
            await fs.sync_dir(str(MEMORY))
            assert await healthy.read(1, 0) == b""
        assert not any(one.done() for one in waiting)
        gate.set()
        await asyncio.gather(*waiting)

    try:
        asyncio.run(work())
    finally:
        gate.set()
        os.unlink(other)
        hung.close()
        healthy.close()
        fs.close()


def open_paths() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the descriptor of this very listing
            continue
    return found


def test_a_large_file_goes_at_once_and_is_given_back_by_a_thread(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where too many wait for the thread, as any other file."""
    monkeypatch.setattr(fs, "_unlinked_open", threading.Semaphore(2))
    held = threading.Event()
    fs._closers.submit(held.wait)
    for number, size in enumerate((LARGE_BYTES, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES)):
        path = tmp_path / str(number)
        file = fs.open(f"{path}", create=True)
        file.truncate(size)
        file.close()
        fs.unlink(f"{path}")
        assert not path.exists()

    def kept() -> list[str]:
        links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.islink(entry.path)]
        return sorted(link for link in links if link.startswith(f"{tmp_path}/"))

    assert kept() == [f"{tmp_path}/0 (deleted)", f"{tmp_path}/2 (deleted)"]
    held.set()
    fs.close()
    assert kept() == []


def test_cold_pages_are_not_waited_for(fs: PosixFileSystem, tmp_path: Path) -> None:
    file = fs.open(f"{tmp_path}/a", create=True)
    file.pwritev([os.urandom(8 * MIB)], 0)
    asyncio.run(file.sync())
    descriptor = os.open(f"{tmp_path}/a", os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if file.try_pread(4096, 4 * MIB) is not None:
        pytest.skip("this file system keeps its pages")
    expected = asyncio.run(file.read(4096, 4 * MIB))
    assert file.try_pread(4096, 4 * MIB) == expected


def kernel_says_ok(path: str) -> bool:
    """Whether one of the next syncs comes back without an error: ENOSPC, EIO, OK is what Linux does here."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        for _ in range(5):
            try:
                os.fdatasync(descriptor)
            except OSError:
                continue
            return True
        return False
    finally:
        os.close(descriptor)


needs_loopdev = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "-")


@pytest.mark.loopdev
@needs_loopdev
def test_a_full_disk_writes_short_and_refuses_to_reserve(tmp_path: Path) -> None:
    disk = LoopDisk(tmp_path)
    try:
        file = disk.fs.open(f"{disk.root}/a", create=True)
        file.pwritev([b"abc"], 0)
        for keep_size in (True, False):
            with pytest.raises(OSError, match="No space left"):
                file.fallocate(64 * MIB, keep_size=keep_size)
            assert file.size() == 3
        free = disk.fs.free_bytes(disk.root)
        assert 8 * MIB < free < 16 * MIB
        with pytest.raises(OSError, match="No space left"):
            file.pwritev([b"x" * MIB] * 32, 3)
        written = file.size()
        assert 8 * MIB < written < 17 * MIB
        assert file.pread(100, written - 100) == b"x" * 100
    finally:
        disk.close()


@pytest.mark.loopdev
@needs_loopdev
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_disk_comes_back_also_where_another_mount_namespace_has_it(tmp_path: Path) -> None:
    """As that of a nemesis test that runs beside: the file system stays mounted there, without its power."""
    disk = LoopDisk(tmp_path)
    try:
        file = disk.fs.open(f"{disk.root}/a", create=True)
        file.pwritev([b"synced"], 0)
        disk.run(file.sync())
        disk.run(disk.fs.sync_dir(disk.root))
        command = ["unshare", "--mount", "sh", "-c", "echo has it; cat"]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"has it\n"
            for _ in range(2):
                disk.power_cut()
                file = disk.fs.open(f"{disk.root}/a")
                assert file.pread(6, 0) == b"synced"
                file.pwritev([b"x"], 6)
                disk.run(file.sync())
        finally:
            holder.communicate()
    finally:
        disk.close()


@pytest.mark.loopdev
@needs_loopdev
def test_a_failed_sync_is_final_though_the_kernel_then_says_ok(tmp_path: Path) -> None:
    """A sparse image on a full tmpfs: blocks that ext4 thinks it has cannot be written."""
    small = tmp_path / "small"
    small.mkdir()
    run_tool("mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", small)
    try:
        disk = LoopDisk(tmp_path, size_bytes=64 * MIB, image=small / "disk.img")
        try:
            free = os.statvfs(small)
            (small / "ballast").write_bytes(bytes(free.f_bavail * free.f_frsize - MIB))
            file = disk.fs.open(f"{disk.root}/a", create=True)
            file.pwritev([b"x" * 4 * MIB], 0)
            with pytest.raises(OSError, match=r"Input/output|No space") as first:
                disk.run(file.sync())
            assert kernel_says_ok(f"{disk.root}/a")
            with pytest.raises(OSError, match="an earlier sync failed") as second:
                disk.run(file.sync())
            assert second.value.errno == first.value.errno
            assert first.value.errno in (errno.EIO, errno.ENOSPC)
        finally:
            (small / "ballast").unlink(missing_ok=True)
            disk.close()
    finally:
        run_tool("umount", small)


class FailingSyncs:
    """Each takes a few turns of the event loop. The results are given: an errno or None; None after the last."""

    def __init__(self, results: list[int | None]) -> None:
        self._results = iter(results)
        self._running = 0
        self.most_at_once = 0

    def start(self, descriptor: int, ended: Ended, *, file_system: bool = False) -> None:
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        code = next(self._results, None)
        self._later(3, ended, OSError(code, os.strerror(code)) if code is not None else None)

    def _later(self, turns: int, ended: Ended, error: OSError | None) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._later, turns - 1, ended, error)
        else:
            self._running -= 1
            ended(error)

    def close(self) -> None:
        """There are no threads."""


def test_a_sync_of_a_file_system_that_failed_is_final_also_for_those_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports it to one call only. Three are made at once; the second one fails."""
    syncs = FailingSyncs([None, errno.EIO, None])
    monkeypatch.setattr(posix_disk, "new_syncs", lambda threads: syncs)
    disk = PosixFileSystem()

    async def three() -> list[BaseException | None]:
        return await asyncio.gather(*(disk.sync_all(str(tmp_path)) for _ in range(3)), return_exceptions=True)

    try:
        found = sorted(str(one).partition(":")[0] for one in asyncio.run(three()))
        assert set(found) == {"None", "[Errno 5] Input/output error", "[Errno 5] an earlier sync failed"}
        with pytest.raises(OSError, match="an earlier sync failed"):
            asyncio.run(disk.sync_all(str(tmp_path)))
        assert syncs.most_at_once == 1
    finally:
        disk.close()


def test_a_cancelled_sync_of_a_file_system_keeps_the_next_one_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on, and may be the one that the kernel reports a failed write to."""
    syncs = FailingSyncs([errno.EIO, None])
    monkeypatch.setattr(posix_disk, "new_syncs", lambda threads: syncs)
    disk = PosixFileSystem()

    async def two() -> BaseException | None:
        first = asyncio.ensure_future(disk.sync_all(str(tmp_path)))
        await asyncio.sleep(0)
        first.cancel()
        return (await asyncio.gather(disk.sync_all(str(tmp_path)), return_exceptions=True))[0]

    try:
        assert str(asyncio.run(two())).startswith("[Errno 5] an earlier sync failed")
        assert syncs.most_at_once == 1
    finally:
        disk.close()


def test_two_syncs_of_a_file_beside_each_other_both_fail_though_the_kernel_reports_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = FailingSyncs([errno.EIO, None])
    monkeypatch.setattr(posix_disk, "new_syncs", lambda threads: syncs)
    disk = PosixFileSystem()
    file = disk.open(f"{tmp_path}/file", create=True)

    async def two() -> list[BaseException | None]:
        return list(await asyncio.gather(file.sync(), file.sync(), return_exceptions=True))

    try:
        assert [isinstance(one, OSError) for one in asyncio.run(two())] == [True, True]
        assert syncs.most_at_once == 1
    finally:
        file.close()
        disk.close()
