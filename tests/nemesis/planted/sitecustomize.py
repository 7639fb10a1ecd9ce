"""Plants a defect into each node of a run, which the run must find (`--plant`).

This folder is put on the nodes' PYTHONPATH, so Python imports this file at their start. STREAMLOG_NEMESIS_PLANT names
`no_sync`, which is ours, or a mutant of the simulation (`tests.cluster.mutants`).
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

DEFECT: Final = os.environ.get("STREAMLOG_NEMESIS_PLANT", "")


def no_sync() -> None:
    """Segments are never forced to the disk, and their records are acknowledged: what a power cut finds."""
    from streamlog.ports import posix_disk
    from streamlog.ports.threads.syncs import Ended, Syncs, new_syncs

    class Mutant:
        def __init__(self, threads: int) -> None:
            self._syncs: Syncs = new_syncs(threads)
            self.close = self._syncs.close

        def start(self, descriptor: int, ended: Ended, *, file_system: bool = False) -> None:
            # A group commit of many files syncs the file system.
            if file_system or os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log"):
                asyncio.get_running_loop().call_soon(ended, None)
            else:
                self._syncs.start(descriptor, ended)

    setattr(posix_disk, "new_syncs", Mutant)  # noqa: B010  # it is imported there from `syncs`


def plant(defect: str) -> None:
    if defect == "no_sync":
        no_sync()
        return
    from tests.cluster.mutants import MUTANTS

    MUTANTS[defect].plant().__enter__()  # for the life of the process


if DEFECT and any("streamlog.daemon" in argument for argument in sys.orig_argv):
    plant(DEFECT)
