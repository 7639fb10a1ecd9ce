"""Spare descriptors that are reserved for the disk, for when connections have taken all others.

Connections are accepted until the process may open no more files, and then opening a segment or a checkpoint
fails with EMFILE, which is not a failure of the disk and must not be treated as one. So the disk reserves a number of
descriptors. When an open fails for lack of one, a spare one is closed and the open is retried; spares are replaced as
soon as descriptors are free again. ENFILE, the limit of the whole machine, is handled likewise.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from typing import Final

SPARE_FILES: Final = 64
"""A log that rolls opens four, a checkpoint two, a snapshot a few; files that stay open come with new topics."""
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


def free_descriptors() -> int:
    """How many files this process may still open; the spare ones count as open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = os.stat("/dev/fd").st_size or len(os.listdir("/dev/fd"))  # the size is 0 before Linux 6.2
    except OSError:  # no descriptor is free to list them
        return 0
    return max(0, limit - used)


class SpareFiles:
    """For any thread."""

    def __init__(self, count: int = SPARE_FILES) -> None:
        self._count = count
        self._spare: list[int] = []
        self._lock = threading.Lock()
        self.used_count = 0  # since the start: how often a spare one was closed for an open
        self.refill()

    @property
    def spare_count(self) -> int:
        return len(self._spare)

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """As os.open."""
        while True:
            try:
                descriptor = os.open(path, flags, mode)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._release_one():
                    raise
                continue
            if len(self._spare) < self._count:
                self.refill()
            return descriptor

    def attempt(self, work: Callable[[], list[str]]) -> list[str]:
        """Run `work`, which opens a descriptor while it runs."""
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._release_one():
                    raise

    def refill(self) -> None:
        """Reserve as many as the limit allows."""
        with self._lock:
            while len(self._spare) < self._count:
                try:
                    self._spare.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
                except OSError:
                    return

    def close(self) -> None:
        with self._lock:
            self._count = 0
            while self._spare:
                os.close(self._spare.pop())

    def _release_one(self) -> bool:
        """Close a spare one; False if there is none. Another thread may take the freed one, so callers retry."""
        with self._lock:
            if not self._spare:
                return False
            os.close(self._spare.pop())
            self.used_count += 1
            return True
