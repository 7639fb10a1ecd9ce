"""Count calls of functions, by the simulated process that makes them.

Whole nodes and the real client run in one thread, on a simulated network, disk and clock: which functions are called
follows from the seed. So a count is the same on every machine, however busy, and what changes it is the code.

Counted are calls of functions of streamlog (a step of a coroutine or generator counts as one, as in cProfile), and
calls of built-in functions by them. Calls inside libraries and inside the simulator are not: a real node has
other ones.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import streamlog
from streamlog.sim.process import PROCESS

_CODE = str(Path(streamlog.__file__).parent)
_SIMULATOR = f"{_CODE}/sim/"


class Call(NamedTuple):
    process: str  # "": the test itself
    function: str  # file and name; of a built-in its caller's, and its own name


@contextmanager
def counted_calls() -> Iterator[Counter[Call]]:
    """Calls as they are counted."""
    counts: Counter[Call] = Counter()
    names: dict[CodeType, str] = {}
    get = PROCESS.get

    def on_event(frame: FrameType, event: str, argument: object) -> None:
        if event != "call" and event != "c_call":
            return
        code = frame.f_code
        name = names.get(code)
        if name is None:
            name = names[code] = _name(code)
        if name:
            process = get()
            function = name if event == "call" else f"{name} > {getattr(argument, '__name__', '')}"
            counts[Call("" if process is None else process.name, function)] += 1

    sys.setprofile(on_event)
    try:
        yield counts
    finally:
        sys.setprofile(None)


def _name(code: CodeType) -> str:
    """Empty where calls are not counted."""
    path = code.co_filename
    if not path.startswith(_CODE) or path.startswith(_SIMULATOR):
        return ""
    return f"{path[len(_CODE) + 1 :]}:{code.co_qualname}"


def by_process(counts: Counter[Call]) -> Counter[str]:
    found: Counter[str] = Counter()
    for call, count in counts.items():
        found[call.process] += count
    return found
