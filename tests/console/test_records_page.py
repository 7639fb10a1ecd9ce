"""The page of records, while one of its works replaces another."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

pytest.importorskip("nicegui", reason="nicegui is not installed: pip install 'streamlog[console]'")

from streamlog.client import ConsumerRecord
from streamlog.console.pages import records
from streamlog.model import Offset


class SlowTail:
    """Its first read ends when the test says so."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.found: asyncio.Future[list[ConsumerRecord]] = asyncio.get_running_loop().create_future()
        self.close = self.start = AsyncMock()

    async def read(self, count: int, wait_s: float) -> list[ConsumerRecord]:
        self.reads.set()
        return await self.found


async def test_a_read_begins_while_records_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tail still reads, and how it ends, is not the result's."""
    monkeypatch.setattr(records, "context", Mock(client=Mock(is_deleted=False)))
    page: Any = records._RecordsPage(Mock(), {}, Mock())
    page._button, page._status, page._show_again = Mock(), Mock(), AsyncMock()
    tail = SlowTail()
    following = asyncio.create_task(page._follow(tail, None))
    await tail.reads.wait()
    result = ConsumerRecord("result", 0, Offset(0), 0, None, b"r", ())
    page._tail, page._latest, page._records = None, object(), deque([result])  # as `read` does
    page._status.set_text("1 records shown")
    tail.found.set_result([ConsumerRecord("followed", 0, Offset(0), 0, None, b"f", ())])
    await following
    assert list(page._records) == [result]
    page._status.set_text.assert_called_with("1 records shown")
