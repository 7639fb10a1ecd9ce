"""Large blocks of memory are kept by the process, and not given back to the kernel each time."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
@pytest.mark.parametrize(("how", "told"), [("plain", "False 1"), ("kept", "True 0")])
def test_a_large_block_is_not_mapped(how: str, told: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == told, ran.stderr
