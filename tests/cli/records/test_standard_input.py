from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from streamlog.cli.records.standard_input import chunks


async def test_input_that_cannot_be_read_is_not_taken_for_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: directory))
    try:
        with pytest.raises(click.ClickException, match=r"^standard input cannot be read: Is a directory\.$"):
            await anext(chunks())
    finally:
        os.close(directory)


def test_a_command_that_ends_before_its_input_leaves_its_thread_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endless = os.open("/dev/zero", os.O_RDONLY)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: endless))
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    reading: list[threading.Thread] = []

    async def one_chunk() -> None:
        source = chunks()
        await anext(source)
        reading.extend(one for one in threading.enumerate() if one.name == "stdin")
        for _ in range(100):  # the thread reads ahead until there is no room
            await asyncio.to_thread(int)

    try:
        asyncio.run(one_chunk())
        for thread in reading:
            thread.join(10)
        assert reading
        assert not any(thread.is_alive() for thread in reading)
    finally:
        os.close(endless)
    assert failures == []
