"""Keeps an optional package out of the memory of a node."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(package: str) -> Iterator[None]:
    """While it is open, `package` cannot be imported, as if it were not installed. No effect where it was imported
    before.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # as the import system documents it
    try:
        yield
    finally:
        del sys.modules[package]
