"""How malloc handles large blocks of memory. It is set for a whole process: the daemon's choice, not a client's.

A record batch is some hundred KiB to 1 MiB large: above glibc's threshold of 128 KiB, so each one would be mapped,
zeroed by the kernel and unmapped again. If malloc keeps the memory, the process stays as large as its peak demand.
So free memory of the heap is returned to the kernel now and then (`HeapTrimmer`): after a crowd of readers a node is as
small as before.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from typing import Final

# mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_THRESHOLD_BYTES: Final = 32 << 20  # glibc's greatest
_TRIM_THRESHOLD_BYTES: Final = 64 << 20  # of free memory at the top of the heap, before it is given back


def keep_large_blocks() -> bool:
    """Doubled a node's throughput of 1 KB records when measured. False if the C library has no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES), (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES))
    results = [mallopt(option, value) for option, value in wanted]
    return results == [1] * len(wanted)


INTERVAL_S: Final = 10.0
GROWTH_BYTES: Final = 16 << 20
RETRY_CHECKS: Final = 6
"""After a minute a trim is tried again. Its pause doubles while that returns little, up to RETRY_CHECKS_MAX."""
RETRY_CHECKS_MAX: Final = 12
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def trim_heap() -> bool:
    """Return free memory of all heaps to the kernel. False if the C library has no malloc_trim."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and trim(0) == 1


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES


class HeapTrimmer:
    """`run` it in a process that keeps large blocks. It trims only while the process does not grow: memory that is used
    and freed all the time is better kept. Trimming takes milliseconds, in another thread.

    It trims once the process has grown since the last trim; and again, now and then, while the process is larger than
    it has been: what was in use at the last trim may be free by now, and does not show in the size of the process.
    """

    def __init__(self) -> None:
        self.count = 0
        self._after_bytes = resident_bytes()  # the last trim
        self._least_bytes = self._after_bytes  # after any trim
        self._before_bytes = 0  # at the last check
        self._checks = 0  # since the last trim
        self._retry_checks = RETRY_CHECKS

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self.is_due(resident_bytes()):
                await asyncio.to_thread(trim_heap)
                self.trimmed(resident_bytes())

    def is_due(self, now_bytes: int) -> bool:
        before, self._before_bytes = self._before_bytes, now_bytes
        self._checks += 1
        if now_bytes > before:
            return False
        if now_bytes > self._after_bytes + GROWTH_BYTES:
            self._retry_checks = RETRY_CHECKS
            return True
        return self._checks >= self._retry_checks and now_bytes > self._least_bytes + GROWTH_BYTES

    def trimmed(self, now_bytes: int) -> None:
        returned_little = now_bytes > self._before_bytes - GROWTH_BYTES
        self._retry_checks = min(2 * self._retry_checks, RETRY_CHECKS_MAX) if returned_little else RETRY_CHECKS
        self.count += 1
        self._checks = 0
        self._after_bytes = now_bytes
        self._least_bytes = min(self._least_bytes, now_bytes)
