"""The disk of a node: ext4 in an image file on a loop device, mounted in the sandbox's own mount namespace."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.ports.loopdev import EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH

SIZE_BYTES: Final = 768 << 20
ROOM_BYTES: Final = 64 << 10
"""What a full disk still takes."""
_BALLAST: Final = "ballast"
_UNMOUNT_S: Final = 10.0


class Disk:
    """Mounted from the start. `cut_power` while the node runs; it must be dead when the disk is `replaced`."""

    def __init__(self, folder: Path) -> None:
        self.mountpoint = folder / "disk"
        self._image = folder / "disk.img"
        self.mountpoint.mkdir()
        with self._image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.mountpoint))

    def unmount(self) -> None:
        """Of a process that has died, files may be open for a moment longer."""
        until = time.monotonic() + _UNMOUNT_S
        while True:
            try:
                _run("umount", str(self.mountpoint))
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, and what no committed transaction of ext4 holds is gone."""
        descriptor = os.open(self.mountpoint, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def make_read_only(self) -> None:
        """As the kernel does when it finds the file system damaged."""
        _run("mount", "-o", "remount,abort", str(self.mountpoint))

    def come_back(self) -> None:
        """As after a restart of the machine: checked, mounted, and nothing is in the page cache. The node is dead."""
        self.unmount()
        for options in (
            "-p",
            "-fy",
        ):  # a machine that starts; its operator, where that is not enough
            checked = subprocess.run(["e2fsck", options, str(self._image)], capture_output=True, text=True, check=False)
            if checked.returncode <= 1:  # 1: errors corrected
                break
        else:
            raise OSError(errno.EIO, f"e2fsck {self._image}: {checked.stdout}{checked.stderr}")
        self.mount()

    def fill(self) -> None:
        """All but ROOM_BYTES, by a file of root, who may use the reserve."""
        with (self.mountpoint / _BALLAST).open("wb") as file:
            room = os.statvfs(self.mountpoint)
            size = room.f_bfree * room.f_frsize - ROOM_BYTES
            while size > ROOM_BYTES:
                try:
                    os.posix_fallocate(file.fileno(), 0, size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size -= 1 << 20  # the blocks that say where the file is need some, too
                else:
                    return

    def free(self) -> None:
        """Durably: a power cut must not bring the file back."""
        ballast = self.mountpoint / _BALLAST
        if ballast.exists():
            ballast.unlink()
            _run("sync", "-f", str(self.mountpoint))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(errno.EIO, f"{' '.join(command)}: {done.stderr.strip()}")
