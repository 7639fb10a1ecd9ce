"""The timeout of a commit and of a fetch holds for the whole of it: its turn, all its requests, all attempts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from streamlog.api.errors import to_message
from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.groups import group_offsets
from streamlog.client.groups.group_offsets import GroupOffsets, OffsetAndMetadata
from streamlog.errors import CoordinatorLoadInProgressError, RequestTimedOutError
from streamlog.model import Offset, PartitionId, TopicPartition

OFFSETS = {TopicPartition("t", PartitionId(number)): OffsetAndMetadata(Offset(1)) for number in range(3)}


class SlowCoordinator:
    """Each answer takes `answer_s`, or the timeout of the call."""

    group = "g"

    def __init__(self, response: Any, answer_s: float) -> None:
        self.response = response
        self.answer_s = answer_s
        self.timeouts_s: list[float] = []

    async def ask(self, _call: Any, _make_request: Any, *, timeout_s: float, metadata: Any = None) -> Any:
        self.timeouts_s.append(timeout_s)
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=min(timeout_s, self.answer_s))
        if timeout_s < self.answer_s:
            raise RequestTimedOutError("no answer")
        return self.response


class AtOnce:
    async def wait(self, attempt: int, *, left_s: float) -> None:
        pass


def offsets_at(coordinator: SlowCoordinator) -> GroupOffsets:
    return GroupOffsets(cast("Any", coordinator), cast("Any", AtOnce()))


async def test_a_commit_waits_for_an_earlier_one_until_its_own_timeout() -> None:
    coordinator = SlowCoordinator(pb.CommitOffsetsResponse(), 60.0)
    offsets = offsets_at(coordinator)
    earlier = asyncio.ensure_future(offsets.commit(OFFSETS, timeout_s=5.0))
    await asyncio.sleep(0)
    with pytest.raises(RequestTimedOutError, match=r"'g' were not committed within 0.1 s: an earlier commit is not"):
        await offsets.commit(OFFSETS, timeout_s=0.1)
    assert not earlier.done()
    earlier.cancel()
    await asyncio.wait([earlier])
    coordinator.answer_s = 0.0
    assert await offsets.commit(OFFSETS, timeout_s=5.0) == {}


async def test_all_requests_of_a_commit_and_of_a_fetch_share_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_PARTITIONS_PER_REQUEST", 1)
    for response in (pb.CommitOffsetsResponse(), pb.FetchOffsetsResponse()):
        coordinator = SlowCoordinator(response, 0.2)
        offsets = offsets_at(coordinator)
        ask: Any = offsets.commit if isinstance(response, pb.CommitOffsetsResponse) else offsets.fetch
        with pytest.raises(RequestTimedOutError):
            await ask(OFFSETS, timeout_s=0.3)
        assert coordinator.timeouts_s[1] <= 0.15


async def test_all_attempts_of_a_fetch_share_the_timeout() -> None:
    row = pb.CommittedOffset(topic="t", error=to_message(CoordinatorLoadInProgressError("loading")))
    coordinator = SlowCoordinator(pb.FetchOffsetsResponse(offsets=[row]), 0.2)
    with pytest.raises(RequestTimedOutError):
        await offsets_at(coordinator).fetch(timeout_s=0.3)
    assert coordinator.timeouts_s[1] <= 0.15
