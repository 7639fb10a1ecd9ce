"""What the process asks of the machine before it begins."""

from __future__ import annotations

import ctypes
import resource
from typing import Final

# mallopt(3). A record batch in flight is some hundred KiB to 1 MiB: above glibc's threshold of 128 KiB, so that each
# one would be mapped, zeroed by the kernel and unmapped again. Doubled the throughput of 1 KB records when measured.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MMAP_THRESHOLD_BYTES: Final = 32 << 20  # glibc's greatest
TRIM_THRESHOLD_BYTES: Final = 64 << 20  # of free memory at the top of the heap, before it is given back


def tune_malloc() -> bool:
    """Before large buffers are made. False where the C library has no mallopt."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    wanted = ((M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES), (M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES))
    results = [mallopt(option, value) for option, value in wanted]
    return results == [1] * len(wanted)


def raise_file_limit() -> int:
    """A segment has four files, a connection one: as many as the machine lets us have. The limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
