"""Large blocks of memory are kept by the process, and not given back to the kernel each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamlog.ports import malloc
from streamlog.ports.malloc import HeapTrimmer

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


class Process:
    """Sizes in MB."""

    def __init__(self, resident: int) -> None:
        self.resident = resident
        self.in_use = 10
        self.trims_to = resident
        self.trimmer = HeapTrimmer(lambda: self.resident << 20, lambda: self.in_use << 20)

    def trimmed(self, resident: int, in_use: int, *, to: int | None = None) -> bool:
        """Whether a check trims."""
        self.resident, self.in_use = resident, in_use
        self.trims_to = resident if to is None else to
        count = self.trimmer.count
        self.trimmer.check()
        return self.trimmer.count > count


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    found = Process(100)

    def trim() -> bool:
        found.resident = found.trims_to
        return True

    monkeypatch.setattr(malloc, "trim_heap", trim)
    return found


def test_it_is_given_back_when_the_process_has_grown_and_grows_no_more(process: Process) -> None:
    assert [process.trimmed(size, 60) for size in (110, 150, 200)] == [False, False, False]
    assert process.trimmed(201, 60, to=180)  # a megabyte more is no growth
    assert not process.trimmed(185, 60)
    assert not any(process.trimmed(185, 60) for _ in range(100))


def test_what_was_in_use_at_the_last_trim_is_given_back_later(process: Process) -> None:
    """The size of the process does not show that a crowd of readers has left."""
    assert [process.trimmed(250, 150, to=245) for _ in range(2)] == [False, True]
    assert not any(process.trimmed(245, used) for used in (150, 140, 150, 145))
    assert not process.trimmed(245, 30)  # for a moment?
    assert process.trimmed(245, 30, to=110)
    assert not any(process.trimmed(115, 30) for _ in range(100))


def test_what_is_used_and_freed_all_the_time_is_kept(process: Process) -> None:
    assert [process.trimmed(250, 150) for _ in range(2)] == [False, True]
    assert not any(process.trimmed(250, used) for used in (150, 20) * 50)


def test_a_process_as_small_as_it_has_been_is_not_looked_into() -> None:
    def in_use() -> int:
        raise AssertionError

    trimmer = HeapTrimmer(lambda: 100 << 20, in_use)
    for _ in range(10):
        trimmer.check()


IN_USE = """
from streamlog.ports.malloc import bytes_in_use, keep_large_blocks

keep_large_blocks()
before = bytes_in_use()
blocks = [b"x" * 300_000 for _ in range(200)]
held = bytes_in_use() - before
del blocks
print(55_000_000 < held < 65_000_000, bytes_in_use() - before < 5_000_000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_what_is_in_use_is_without_what_is_free() -> None:
    ran = subprocess.run([sys.executable, "-c", IN_USE], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "True True", ran.stderr
