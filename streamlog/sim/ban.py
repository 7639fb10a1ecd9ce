"""Traps for what node code must not use inside a simulation: the real clock, randomness, threads, sockets.

A trap replaces a module's attribute. It misses `from time import monotonic`, which was bound before, and C code; the
lint finds those (lint.py, and the import rules of tests/test_layering.py).
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

_CLOCKS: Final = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")
_DICE: Final = ("random", "randint", "randrange", "choice", "choices", "sample", "shuffle", "uniform", "getrandbits")
_TRAPS: Final[tuple[tuple[Any, str], ...]] = (
    *((time, name) for name in _CLOCKS),
    *((random, name) for name in _DICE),
    (os, "urandom"),
    (uuid, "uuid1"),
    (uuid, "uuid4"),
    (threading.Thread, "start"),
    (socket, "socket"),
)


class NonDeterminismError(AssertionError):
    """Code called something outside its ports; the message names it."""


@contextmanager
def traps() -> Iterator[None]:
    """Around a run: each of these raises NonDeterminismError. Not for two threads at a time."""
    saved = [(owner, name, getattr(owner, name)) for owner, name in _TRAPS]
    for owner, name, real in saved:
        setattr(owner, name, _trap(f"{owner.__name__}.{name}", real))
    try:
        yield
    finally:
        for owner, name, real in saved:
            setattr(owner, name, real)


def _trap(name: str, real: Callable[..., object]) -> Callable[..., object]:
    def refuse(*args: object, **kwargs: object) -> object:
        caller: str = sys._getframe(1).f_globals.get("__name__", "")
        if caller.partition(".")[0] == "logging":  # stamps its records; no code depends on it
            return real(*args, **kwargs)
        _raise(name, caller)

    return refuse


def _raise(name: str, caller: str) -> NoReturn:
    raise NonDeterminismError(f"{name} called by {caller} inside a simulation")
