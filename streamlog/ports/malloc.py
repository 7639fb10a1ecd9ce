"""What malloc does with large blocks of memory. It is for a whole process, so its owner's choice and never a client's.

A record batch on its way is some hundred KiB to 1 MiB: above glibc's threshold of 128 KiB, so that each one would be
mapped, zeroed by the kernel and unmapped again. Kept instead, the process is larger by what it once needed at a time.
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
    """Doubled a node's throughput of 1 KB records when measured. False where the C library has no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES), (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES))
    results = [mallopt(option, value) for option, value in wanted]
    return results == [1] * len(wanted)


INTERVAL_S: Final = 10.0
GROWTH_BYTES: Final = 16 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def trim_heap() -> bool:
    """What is free in all of malloc's heaps, to the kernel. False where the C library has no malloc_trim."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and trim(0) == 1


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES


class HeapTrimmer:
    """`run` it in a process that keeps large blocks. It does something only once the process has stopped growing: what
    is in use and freed all the time had better stay. It takes milliseconds, and a thread of its own.
    """

    def __init__(self) -> None:
        self.count = 0
        self._least_bytes = resident_bytes()  # after the last time
        self._before_bytes = 0  # at the last look

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            if self.is_due(resident_bytes()):
                await asyncio.to_thread(trim_heap)
                self.trimmed(resident_bytes())

    def is_due(self, now_bytes: int) -> bool:
        before, self._before_bytes = self._before_bytes, now_bytes
        return before >= now_bytes > self._least_bytes + GROWTH_BYTES

    def trimmed(self, now_bytes: int) -> None:
        self.count += 1
        self._least_bytes = now_bytes
