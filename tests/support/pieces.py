"""Many runs over processes, and in pieces: with a log that the next piece continues.

The log has a line a run, appended when the run is done: its result as JSON. A piece runs what is not in the log, so it
may be stopped at any time, and started again with the same or a wider selection. A line that a stop has cut off is
ignored, and its run is made again. A log belongs to one state of the code.

Worker processes never collect garbage cycles: a simulation leaves tens of thousands of objects in them, and finding
these took a tenth of the time. A worker is replaced after some runs instead.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

W = TypeVar("W")
R = TypeVar("R")

RUNS_OF_A_WORKER: Final = 16
"""Some 20 MB each."""


def in_processes(run: Callable[[W], R], work: Collection[W], jobs: int) -> Iterator[R]:
    """The results in the order in which they come."""
    if jobs == 1:
        yield from map(run, work)
        return
    with multiprocessing.Pool(jobs, initializer=gc.disable, maxtasksperchild=RUNS_OF_A_WORKER) as pool:
        yield from pool.imap_unordered(run, work)


def read_results(path: Path, kind: type[R]) -> list[R]:
    """Lines that are incomplete are left out."""
    found: list[R] = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except msgspec.DecodeError:
            continue
    return found


def run_in_pieces(
    run: Callable[[W], R],
    work: Sequence[W],
    *,
    kind: type[R],
    name_of: Callable[[W], Hashable],
    name_of_result: Callable[[R], Hashable],
    jobs: int,
    path: Path,
) -> Iterator[R]:
    """Run what is not in the log, and add it there. The results of all `work`: first those of the log."""
    done = {name_of_result(result): result for result in read_results(path, kind)}
    yield from (done[name_of(one)] for one in work if name_of(one) in done)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as log:
        log.write(b"\n" if path.stat().st_size else b"")  # after a line that was cut off
        for result in in_processes(run, [one for one in work if name_of(one) not in done], jobs):
            log.write(msgspec.json.encode(result) + b"\n")
            log.flush()
            yield result
