"""Large blocks of memory are kept by the process, and not given back to the kernel each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamlog.ports.malloc import RETRY_CHECKS, RETRY_CHECKS_MAX, HeapTrimmer

PROGRAM = """
import ctypes, sys
from streamlog.ports.malloc import keep_large_blocks

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d keepcost".split()]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Mallinfo2
kept = sys.argv[1] == "kept" and keep_large_blocks()
before = mallinfo().hblks
block = bytes(1 << 20)
print(kept, mallinfo().hblks - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
@pytest.mark.parametrize(("how", "printed"), [("plain", "False 1"), ("kept", "True 0")])
def test_a_large_block_is_not_mapped(how: str, printed: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == printed, ran.stderr


GIVING = """
import ctypes, sys
from streamlog.ports.malloc import trim_heap, keep_large_blocks, resident_bytes

keep_large_blocks()
blocks = [b"x" * 300_000 for _ in range(200)]
last = b"x" * 300_000  # above them in the heap
full = resident_bytes()
del blocks
kept = resident_bytes()
trim_heap()
print(full - kept < 5_000_000, full - resident_bytes() > 50_000_000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_what_is_free_is_given_back() -> None:
    ran = subprocess.run([sys.executable, "-c", GIVING], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "True True", ran.stderr


def test_it_is_given_back_when_the_process_has_grown_and_grows_no_more() -> None:
    giving = HeapTrimmer()
    giving.trimmed(100 << 20)
    sizes = [110, 150, 200, 200, 190]
    assert [giving.is_due(size << 20) for size in sizes] == [False, False, False, True, True]
    giving.trimmed(180 << 20)
    assert not giving.is_due(185 << 20)


def test_what_was_in_use_at_the_last_trim_is_given_back_later() -> None:
    """The size of the process does not show that a crowd of readers has left: it is tried, ever more rarely in vain."""
    giving = HeapTrimmer()
    giving._least_bytes = 100 << 20
    giving._after_bytes = 100 << 20

    def checks_until_due(size: int) -> int:
        return next(count for count in range(1, 200) if giving.is_due(size << 20))

    assert checks_until_due(250) == 2  # while the crowd is there
    giving.trimmed(245 << 20)
    assert checks_until_due(245) == 2 * RETRY_CHECKS  # it returned little
    giving.trimmed(245 << 20)
    assert checks_until_due(245) == RETRY_CHECKS_MAX
    giving.trimmed(110 << 20)  # the crowd has left
    assert not any(giving.is_due(115 << 20) for _ in range(100))
