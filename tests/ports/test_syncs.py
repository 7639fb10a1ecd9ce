"""Syncs in threads of C and of Python: one behaviour."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.ports.threads import syncs as subject
from streamlog.ports.threads.syncs import CompiledSyncs, Syncs, ThreadSyncs, new_syncs
from tests.records.checks.kernel_build import built_kernel

THREADS = 3


def compiled(threads: int) -> Syncs:
    return CompiledSyncs(built_kernel("streamlog_syncs").Syncs(threads))


@pytest.fixture(params=[compiled, ThreadSyncs], ids=["C", "Python"])
def make(request: pytest.FixtureRequest) -> Callable[[int], Syncs]:
    if request.param is compiled and sys.platform != "linux":
        pytest.skip("Linux only")
    made: Callable[[int], Syncs] = request.param
    return made


@pytest.fixture
def syncs(make: Callable[[int], Syncs]) -> Iterator[Syncs]:
    made = make(THREADS)
    yield made
    made.close()


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(opened, b"x", 0)
    yield opened
    os.close(opened)


@pytest.fixture
def pipe() -> Iterator[int]:
    """A descriptor that cannot be synced."""
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


class Ends:
    """What `ended` was called with, and in which thread."""

    def __init__(self) -> None:
        self.errors: list[OSError | None] = []
        self.threads: set[int] = set()
        self._changed = asyncio.Event()

    def __call__(self, error: OSError | None) -> None:
        self.errors.append(error)
        self.threads.add(threading.get_ident())
        self._changed.set()

    async def reach(self, count: int) -> list[OSError | None]:
        while len(self.errors) < count:
            self._changed.clear()
            await self._changed.wait()
        return self.errors


@pytest.mark.parametrize("file_system", [False, True])
async def test_each_ends_once_on_the_event_loop(syncs: Syncs, descriptor: int, file_system: bool) -> None:
    ends = Ends()
    for _ in range(100):
        syncs.start(descriptor, ends, file_system=file_system)
    assert await ends.reach(100) == [None] * 100
    assert ends.threads == {threading.get_ident()}


async def test_the_systems_error_is_that_of_its_own_sync(syncs: Syncs, descriptor: int, pipe: int) -> None:
    good, bad = Ends(), Ends()
    for _ in range(10):
        syncs.start(descriptor, good)
        syncs.start(pipe, bad)
    assert await good.reach(10) == [None] * 10
    for error in await bad.reach(10):
        assert error is not None
        assert (error.errno, error.strerror) == (errno.EINVAL, os.strerror(errno.EINVAL))


def test_close_waits_for_what_has_begun(make: Callable[[int], Syncs], descriptor: int) -> None:
    """Also where the event loop has ended before."""
    syncs, ends = make(1), Ends()

    async def start() -> None:
        for _ in range(20):
            syncs.start(descriptor, ends)

    asyncio.run(start())
    syncs.close()
    assert ends.errors == [None] * 20
    syncs.close()
    with pytest.raises(RuntimeError):
        asyncio.run(start())


def test_another_event_loop_collects_what_the_first_has_begun(make: Callable[[int], Syncs], descriptor: int) -> None:
    syncs, before, after = make(1), Ends(), Ends()

    async def start(ends: Ends) -> None:
        syncs.start(descriptor, ends)

    async def rest() -> None:
        syncs.start(descriptor, after)
        await after.reach(1)

    asyncio.run(start(before))
    asyncio.run(rest())
    assert (before.errors, after.errors) == ([None], [None])
    syncs.close()


def test_threads_in_c_sync_while_the_interpreters_lock_is_held(descriptor: int) -> None:
    """A thread of Python would not run until this one gives the lock up, in a thousand seconds."""
    if sys.platform != "linux":
        pytest.skip("Linux only")
    syncs = built_kernel("streamlog_syncs").Syncs(1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        number = syncs.start(descriptor, False)
        while not (found := syncs.collect()):
            pass
        assert found == [(number, 0)]
    finally:
        sys.setswitchinterval(interval)
        syncs.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_neither_waits_for_the_threads_nor_uses_them(descriptor: int) -> None:
    """It has none of them."""
    if sys.platform != "linux":
        pytest.skip("Linux only")
    syncs = built_kernel("streamlog_syncs").Syncs(2)
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(RuntimeError):
                syncs.start(descriptor, False)
            syncs.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    number = syncs.start(descriptor, False)
    syncs.close()
    assert syncs.collect() == [(number, 0)]


@pytest.mark.parametrize("count", [0, -1, 65, 2**40])
def test_the_number_of_threads_is_bounded(count: int) -> None:
    if sys.platform != "linux":
        pytest.skip("Linux only")
    with pytest.raises((ValueError, OverflowError)):
        built_kernel("streamlog_syncs").Syncs(count)


def no_threads(threads: int) -> Any:
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.mark.parametrize(
    "module",
    [
        None,
        SimpleNamespace(INTERFACE=subject._INTERFACE + 1, Syncs=no_threads),
        SimpleNamespace(INTERFACE=subject._INTERFACE, Syncs=no_threads),
    ],
    ids=["not installed", "another interface", "no thread can be created"],
)
def test_without_it_python_syncs(module: Any) -> None:
    made = new_syncs(THREADS, module)
    assert isinstance(made, ThreadSyncs)
    made.close()
