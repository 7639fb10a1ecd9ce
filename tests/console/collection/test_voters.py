"""The voters' positions come from the leader, whichever node answered the sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import pytest
from msgspec.structs import replace

from streamlog.client.admin.values import ClusterDescription, VoterDescription
from streamlog.console.collection import voters
from streamlog.console.collection.voters import VoterPositions
from streamlog.errors import RequestTimedOutError
from streamlog.model import BrokerId, RaftIndex
from tests.console.fake_cluster import FakeAdmin


class Leader:
    """Stands for the admin client that is connected to the leader alone."""

    calls: list[str]
    answer: ClusterDescription | None

    def __init__(self, settings: Mapping[str, object], **_: object) -> None:
        Leader.calls.append(str(settings["bootstrap.servers"]))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def describe_cluster(self) -> ClusterDescription:
        if Leader.answer is None:
            raise RequestTimedOutError("no answer")
        return Leader.answer


async def described(index: int | None) -> ClusterDescription:
    """A new sample of it."""
    found = await FakeAdmin(1, 1, 1).describe_cluster()
    voter = VoterDescription(
        node_id=BrokerId(1), address="127.0.0.1:1", match_index=None if index is None else RaftIndex(index)
    )
    return replace(found, voters=(voter,))


@pytest.fixture(autouse=True)
def leader(monkeypatch: pytest.MonkeyPatch) -> type[Leader]:
    Leader.calls, Leader.answer = [], None
    monkeypatch.setattr(voters, "AsyncAdmin", Leader)
    return Leader


async def test_the_leader_is_called_once_a_sample_where_another_node_answered() -> None:
    positions, sampled, Leader.answer = VoterPositions({}), await described(None), await described(7)
    assert await positions.complete(sampled) is Leader.answer
    assert await positions.complete(sampled) is Leader.answer
    assert Leader.calls == ["127.0.0.1:1"]
    await positions.complete(await described(None))
    assert len(Leader.calls) == 2


async def test_the_leaders_own_answer_is_enough() -> None:
    sampled = await described(7)
    assert await VoterPositions({}).complete(sampled) is sampled
    assert Leader.calls == []


async def test_positions_stay_unknown_where_there_is_no_leader_to_call() -> None:
    positions, sampled = VoterPositions({}), await described(None)
    assert await positions.complete(sampled) is sampled, "it does not answer"
    Leader.answer = replace(await described(7), cluster_id="another")
    other = await described(None)
    assert await positions.complete(other) is other, "another cluster answers at its address"
    without = replace(await described(None), controller=None)
    assert await positions.complete(without) is without
    assert len(Leader.calls) == 2
