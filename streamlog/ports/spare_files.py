"""Descriptors that are kept for the disk, so that it has some when others have taken the rest.

gRPC's core accepts connections until the process may open no more files, and then opening a segment or a checkpoint
fails with EMFILE: no failure of the disk, and nothing that is to be taken for one. So the disk keeps a number of
descriptors that lead nowhere. When an open fails for want of one, a spare one is closed and the open tried again; the
spares are made up for as soon as there is room. ENFILE, the whole machine's limit, is met in the same way.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Final

SPARE_FILES: Final = 64
"""A log that rolls opens four, a checkpoint two, a snapshot a few; what is opened for good comes with topics."""
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class SpareFiles:
    """For any thread."""

    def __init__(self, count: int = SPARE_FILES) -> None:
        self._count = count
        self._spare: list[int] = []
        self._lock = threading.Lock()
        self.used_count = 0  # since the start: how often one had to be given up
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
        """`work`, which opens a descriptor for as long as it takes."""
        while True:
            try:
                return work()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._release_one():
                    raise

    def refill(self) -> None:
        """As many as there is room for."""
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
        """One, if there is one: whoever is first takes it, so the open is tried as often as there are any."""
        with self._lock:
            if not self._spare:
                return False
            os.close(self._spare.pop())
            self.used_count += 1
            return True
