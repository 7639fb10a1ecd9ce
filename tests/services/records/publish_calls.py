"""Calls of Records.Publish."""

from __future__ import annotations

import asyncio
from typing import Any

from streamlog.api.pb import records_pb2 as pb
from tests.services.world import Calls

RECORDS = "/streamlog.v1.Records/"


def records(*values: bytes, **fields: Any) -> list[pb.PublishRecord]:
    return [pb.PublishRecord(value=value, **fields) for value in values]


async def answers(calls: Calls[pb.PublishStreamResponse], count: int) -> list[pb.PublishStreamResponse]:
    found: list[pb.PublishStreamResponse] = []
    while len(found) < count:
        response = await asyncio.wait_for(calls.recv(), 60)
        assert response is not None
        found.append(response)
    return found
