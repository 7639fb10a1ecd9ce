"""How malloc handles large blocks of memory. It is set for a whole process: the daemon's choice, not a client's. A
client only does what any program with a large array does (`free_one_large_block`).

A record batch is some hundred KiB to 1 MiB large: above glibc's threshold of 128 KiB, so each one would be mapped,
zeroed by the kernel and unmapped again. If malloc keeps the memory, the process stays as large as its peak demand.
So free memory of the heap is returned to the kernel now and then (`HeapTrimmer`): after a crowd of readers a node is as
small as before.

A trim returns whole pages. What is still in use keeps its pages, scattered over all heaps (arenas): the fewer heaps,
the fewer such pages. glibc makes up to eight heaps a core; two are as fast where threads take turns at the
interpreter's lock, and one is not (docs/performance.md, "Tried and not kept").
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

# mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_LARGE_BLOCK_BYTES: Final = 8 << 20
_MMAP_THRESHOLD_BYTES: Final = 32 << 20  # glibc's greatest
_TRIM_THRESHOLD_BYTES: Final = 64 << 20  # of free memory at the top of the heap, before it is given back
_ARENAS: Final = 2


def keep_large_blocks() -> bool:
    """Doubled a node's throughput of 1 KB records when measured. False if the C library has no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = (
        (_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES),
        (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    )
    results = [mallopt(option, value) for option, value in wanted]
    return results == [1] * len(wanted)


def free_one_large_block() -> None:
    """glibc learns from it: blocks up to this size come from the heap from now on, and up to twice as much free memory
    stays there. Batches and messages then are not mapped, zeroed and unmapped one by one. It learns only where the
    program has set no thresholds, and any array of this size that a program has freed has the same effect.

    The block is never touched: it takes no memory.
    """
    bytes(_LARGE_BLOCK_BYTES)


INTERVAL_S: Final = 5.0
WORTH_BYTES: Final = 16 << 20
STEADY_BYTES: Final = 1 << 20
"""A process that grows by no more from check to check does not grow."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def trim_heap() -> bool:
    """Return free memory of all heaps to the kernel. False if the C library has no malloc_trim."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and trim(0) == 1


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES


class _MallInfo(ctypes.Structure):
    """struct mallinfo2 of mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    )


def bytes_in_use() -> int:
    """What malloc has given out: neither Python's own arenas of small objects nor free memory. 0: it does not say."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc 2.33
    if mallinfo is None:
        return 0
    mallinfo.restype = _MallInfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


class HeapTrimmer:
    """`run` it in a process that keeps large blocks. It trims while the process grows no more: memory that is used and
    freed all the time is better kept. A check takes microseconds, in a large process up to some milliseconds, a trim
    some tens of them; both are made in another thread.

    It trims once WORTH_BYTES have come free since the last trim: the process has grown by so much, or it uses so much
    less than it has. The size alone does not show that a crowd of readers has left: where the heap was trimmed while
    the crowd was there, the process has not grown since.
    """

    def __init__(self, resident: Callable[[], int] = resident_bytes, in_use: Callable[[], int] = bytes_in_use) -> None:
        self.count = 0
        self._resident, self._in_use = resident, in_use
        self._before = resident()  # at the last check
        self._trimmed_to = self._least = self._before
        self._used_before = 0
        self._used_most = 0  # since the last trim

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            await asyncio.to_thread(self.check)

    def check(self) -> None:
        before, now = self._before, self._resident()
        self._before = now
        if now <= self._least + WORTH_BYTES:
            return  # nothing to be gained
        used = self._in_use()
        used_lately, self._used_before = max(self._used_before, used), used
        self._used_most = max(self._used_most, used)
        if now > before + STEADY_BYTES:
            return
        if now > self._trimmed_to + WORTH_BYTES or used_lately < self._used_most - WORTH_BYTES:
            self._trim(used_lately)

    def _trim(self, used: int) -> None:
        trim_heap()
        self.count += 1
        self._before = self._trimmed_to = self._resident()
        self._least = min(self._least, self._trimmed_to)
        self._used_most = used
