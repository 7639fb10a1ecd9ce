"""A real file system that can lose its power: ext4 in an image file on a loop device. Needs root."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

from streamlog.ports import File
from streamlog.ports.posix_disk import PosixFile, PosixFileSystem

from .disks import PosixDisk

EXT4_IOC_SHUTDOWN: Final = 0x8004587D
NO_LOG_FLUSH: Final = 2
"""The file system stops where it is: what stands in no committed transaction is gone."""
TOOLS: Final = ("mkfs.ext4", "mount", "umount", "losetup")


def unavailable() -> str:
    """Why there can be no loop device here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root for a loop device"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    found = subprocess.run(["losetup", "-f"], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else f"no loop device: {found.stderr.strip()}"


def run_tool(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


class TrackedFileSystem(PosixFileSystem):
    """Knows its open files, for a file system with open files cannot be unmounted."""

    def __init__(self) -> None:
        super().__init__(sync_threads=2, read_threads=2)
        self.files: list[File] = []

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        file = super().open(path, create=create)
        self.files.append(file)
        return file


class LoopDisk(PosixDisk):
    """Mounted from the start; close it even when the test fails."""

    def __init__(self, base: Path, *, size_bytes: int = 16 << 20, image: Path | None = None) -> None:
        mountpoint = base / "mnt"
        mountpoint.mkdir()
        super().__init__(mountpoint)
        self._system.close()
        self._tracked = self._system = TrackedFileSystem()
        self._mountpoint = mountpoint
        self.image = image or base / "disk.img"
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        run_tool("mkfs.ext4", "-q", "-F", self.image)
        self._mount()

    def _mount(self) -> None:
        run_tool("mount", "-o", "loop", self.image, self._mountpoint)

    def _unmount(self) -> None:
        for file in self._tracked.files:
            file.close()
        self._tracked.files.clear()
        self._tracked.close_syncfs_descriptors()
        run_tool("umount", self._mountpoint)

    def power_cut(self) -> None:
        descriptor = os.open(self._mountpoint, os.O_RDONLY)
        fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(descriptor)
        self._unmount()
        if self._is_held():
            self.image = Path(shutil.copyfile(self.image, self.image.with_name(f"{self.image.name}+")))
        self._mount()

    def _is_held(self) -> bool:
        """A mount namespace that began meanwhile (a nemesis test's) has the mount too.

        The image, mounted again, would be as it is there: stopped.
        """
        listed = subprocess.run(["losetup", "-j", self.image], capture_output=True, text=True, check=True)
        return bool(listed.stdout)

    def close(self) -> None:
        self._unmount()
        super().close()
