"""Plants a defect into each node of a run, which the run must find (`--plant`).

This folder is put on the nodes' PYTHONPATH, so Python imports this file at their start. STREAMLOG_NEMESIS_PLANT names
`no_sync`, which is ours, or a mutant of the simulation (`tests.cluster.mutants`).
"""

from __future__ import annotations

import os
import sys
from typing import Final

DEFECT: Final = os.environ.get("STREAMLOG_NEMESIS_PLANT", "")


def no_sync() -> None:
    """Segments are never forced to the disk, and their records are acknowledged: what a power cut finds."""
    from streamlog.ports import posix_disk

    fdatasync = os.fdatasync

    def mutant(file: int) -> None:
        if not os.readlink(f"/proc/self/fd/{file}").endswith(".log"):
            fdatasync(file)

    os.fdatasync = mutant  # type: ignore[assignment]
    posix_disk._syncfs = lambda descriptor: None  # what a group commit of many files does


def plant(defect: str) -> None:
    if defect == "no_sync":
        no_sync()
        return
    from tests.cluster.mutants import MUTANTS

    MUTANTS[defect].plant().__enter__()  # for the life of the process


if DEFECT and any("streamlog.daemon" in argument for argument in sys.orig_argv):
    plant(DEFECT)
