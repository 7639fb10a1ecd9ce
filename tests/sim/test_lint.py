"""The lint and the traps of the simulation; and node code, which must pass the lint."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.sim import ban
from streamlog.sim.lint import lint, main

from ..support.layers import FRONTS, NODE_CODE, ROOT

NODE_FILES = sorted(
    path
    for package in NODE_CODE
    for path in (ROOT / package).rglob("*.py")
    if "pb" not in path.parts and str(path.relative_to(ROOT)) not in FRONTS
)


@pytest.mark.parametrize("path", NODE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_node_code_can_be_simulated(path: Path) -> None:
    assert lint(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "id(x)",
        "hash('a')",
        "open('f')",
        "asyncio.to_thread(f)",
        "loop.run_in_executor(None, f)",
        "loop.call_soon_threadsafe(f)",
        "asyncio.ensure_future(c)",
        "from asyncio import create_task",
        "for t in asyncio.as_completed(ts): pass",
        "asyncio.create_task(c)",
        "self._loop.create_task(c)",
        "asyncio.get_running_loop().create_task(c)",
        "try: pass\nexcept: pass",
        "try: pass\nexcept BaseException: pass",
        "try: pass\nexcept (ValueError, BaseException) as e: log(e)",
        "def f():\n  global x",
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "for x in a | {1}: pass",
        "x: set[int] = f()\nfor y in x: pass",
        "self.isr = frozenset(a)\nlist(self.isr)",
        "def f(isr: frozenset[int]): return [x for x in isr]",
        "a = {1}\nb = a - {2}\nc = b\ntuple(c)",
        "a = {1}\na.pop()",
        "a = {1}\nf(*a)",
        "a = {'x'}\n','.join(a)",
        "done, pending = await asyncio.wait(ts)\nfor t in done: pass",
        "{k: 1 for k in {1}}",
        "next(iter({1}))",
    ],
)
def test_each_sin_is_found(source: str) -> None:
    assert lint(source)


@pytest.mark.parametrize(
    "source",
    [
        "async with asyncio.TaskGroup() as group:\n  group.create_task(c)",
        "try: pass\nexcept BaseException:\n  f()\n  raise",
        "try: pass\nexcept OSError: pass",
        "for x in sorted({1, 2}): pass",
        "a = {1}\nb = 1 in a, len(a), max(a), {x for x in a}",
        "a = {1}\nany(x > 1 for x in a)",
        "a = {1}\nsorted(f(x) for x in a)",
        "a = {1: 2}\nfor x in a: pass\na.pop(1)",
        "for x in {1, 2}: pass  # sim: small integers hash to themselves",
        "fs.open('f')",
    ],
)
def test_what_is_sound_passes(source: str) -> None:
    assert lint(source) == []


def test_the_command_names_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("x = 1\n")
    bad.write_text("x = 1\nid(x)\n")
    assert main([str(good)]) == 0
    assert main([str(good), str(bad)]) == 1
    assert capsys.readouterr().out == f"{bad}:2: id(): differs from run to run\n"


@pytest.mark.parametrize(
    "sin",
    [
        lambda: time.time(),
        lambda: time.monotonic(),
        lambda: time.sleep(0),
        lambda: random.random(),
        lambda: random.choice([1]),
        lambda: os.urandom(4),
        lambda: uuid.uuid4(),
        lambda: threading.Thread(target=print).start(),
        lambda: socket.socket(),
    ],
)
def test_traps_close_and_open_again(sin: Callable[[], object]) -> None:
    with ban.traps(), pytest.raises(ban.NonDeterminismError, match="called by tests"):
        sin()
    if sin.__code__.co_names[-1] != "start":
        sin()


def test_logging_and_seeded_chance_pass_the_traps(caplog: pytest.LogCaptureFixture) -> None:
    with ban.traps():
        logging.getLogger("t").warning("stamped")
        assert 0 <= random.Random("seed").random() < 1
    assert caplog.messages == ["stamped"]


def test_real_asyncio_does_not_run_under_the_traps() -> None:
    async def wait() -> None:
        await asyncio.sleep(0)

    with pytest.raises(ban.NonDeterminismError):
        run_trapped(wait())


def run_trapped(coro: object) -> None:
    loop = asyncio.new_event_loop()
    try:
        with ban.traps():
            loop.run_until_complete(coro)  # type: ignore[arg-type]  # a coroutine
    finally:
        coro.close()  # type: ignore[attr-defined]  # a coroutine
        loop.close()
