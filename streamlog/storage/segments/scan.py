"""Searches in a file, written once for the three ways of reading it.

A search is a generator that yields the reads it needs and is sent the bytes. `run` reads synchronously (recovery),
`try_run` only from the page cache (serving, on the event loop), `run_async` off the loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from streamlog.ports import File

T = TypeVar("T")


class ReadAt(NamedTuple):
    size: int
    position: int


Scan: TypeAlias = Generator[ReadAt, bytes, T]


class WouldBlockError(Exception):
    """The bytes are not in the page cache: use `run_async`. Never leaves the storage package."""


def run(file: File, scan: Scan[T]) -> T:
    try:
        wanted = next(scan)
        while True:
            wanted = scan.send(file.pread(wanted.size, wanted.position))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration is not generic


def try_run(file: File, scan: Scan[T]) -> T:
    """Raises WouldBlockError, and ends the search, at the first read that would wait for the device."""
    try:
        wanted = next(scan)
        while True:
            data = file.try_pread(wanted.size, wanted.position)
            if data is None:
                scan.close()
                raise WouldBlockError
            wanted = scan.send(data)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration is not generic


async def run_async(file: File, scan: Scan[T]) -> T:
    try:
        wanted = next(scan)
        while True:
            wanted = scan.send(await file.read(wanted.size, wanted.position))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration is not generic
