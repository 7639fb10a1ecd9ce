"""The control file of shim.c: one a node, mapped by the node and by us."""

from __future__ import annotations

import errno
import mmap
import struct
from pathlib import Path
from typing import Final

_LAYOUT: Final = struct.Struct("<qiiiiii1024s")
_MANY: Final = 1_000_000_000


class Shim:
    """What is set lasts over a restart of the node, until `clear`."""

    def __init__(self, library: Path, control: Path, under: Path) -> None:
        """`under`: only calls on files under it fail."""
        self._library = library
        self._control = control
        control.write_bytes(bytes(mmap.PAGESIZE))
        with control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._clock_ns = self._syncs = self._writes = self._reads = self._delay_ms = 0
        self._under = str(under.resolve()).encode()
        self._write()

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "NEMESIS_CONTROL": str(self._control)}

    def clock(self, ahead_s: float) -> None:
        self._clock_ns = round(ahead_s * 1e9)
        self._write()

    def slow_syncs(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._write()

    def fail_next_sync(self) -> None:
        self._syncs = 1
        self._write()

    def fail_next_read(self) -> None:
        self._reads = 1
        self._write()

    def fail_writes(self) -> None:
        """All, until `clear`."""
        self._writes = _MANY
        self._write()

    def clear(self) -> None:
        """No call fails or is slow any more. The clock stays where it is."""
        self._syncs = self._writes = self._reads = self._delay_ms = 0
        self._write()

    @property
    def failed(self) -> int:
        """Calls that have failed so far."""
        return int(_LAYOUT.unpack_from(self._memory)[6])

    def _write(self) -> None:
        counts = (self._syncs, self._writes, self._reads)
        _LAYOUT.pack_into(self._memory, 0, self._clock_ns, *counts, errno.EIO, self._delay_ms, self.failed, self._under)
