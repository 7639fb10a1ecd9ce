"""A stream that a request over HTTP opens on the node's loop is closed, at whatever moment the request ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from streamlog.daemon.http.api.json_messages import JsonMessages
from streamlog.daemon.http.api.streams import StreamCalls
from streamlog.ports import CallInfo

INFO = CallInfo(method="/streamlog.v1.Records/Subscribe", peer="10.0.0.1:5")


class OpenStreams:
    """Of a node: how many are open."""

    def __init__(self) -> None:
        self.in_process_calls = self
        self.count = 0

    def open_stream(self, request: bytes, info: CallInfo) -> OpenStreams:
        self.count += 1
        return self

    def close(self) -> None:
        self.count -= 1


class SlowLoop:
    """The node's, as the listener's thread sees it. Its work and the work's result take any time to get through."""

    def __init__(self, *, is_run_at_once: bool) -> None:
        self.is_run_at_once = is_run_at_once
        self.work: asyncio.Future[Callable[[], Awaitable[Any]]] = asyncio.get_running_loop().create_future()

    async def run(self, work: Callable[[], Awaitable[Any]], timeout_s: float | None) -> Any:
        if self.is_run_at_once:
            await work()
        self.work.set_result(work)
        await asyncio.get_running_loop().create_future()  # the result has not got through

    def post(self, work: Callable[[], object]) -> None:
        work()


@pytest.mark.parametrize("is_run_at_once", [True, False])
async def test_a_request_that_ends_while_its_stream_is_opened(is_run_at_once: bool) -> None:
    node, loop = OpenStreams(), SlowLoop(is_run_at_once=is_run_at_once)
    streams = StreamCalls(node, loop, JsonMessages())  # type: ignore[arg-type]  # what they use of both
    reading = asyncio.create_task(streams.first(b"", INFO, 60))
    work = await loop.work
    assert node.count == is_run_at_once
    reading.cancel()  # its deadline has passed, or its client has disconnected
    await asyncio.wait([reading])
    if not is_run_at_once:
        await work()
    assert node.count == 0
