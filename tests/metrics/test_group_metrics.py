"""How many series the groups of a node have."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from streamlog.groups.records import MemberKey, MemberValue, OffsetKey, OffsetValue
from streamlog.groups.state import Group
from streamlog.metrics import Family
from streamlog.model import Offset, PartitionId
from streamlog.node.metrics import groups as group_metrics

MEMBER = MemberValue(
    topics=("t",),
    pattern="",
    assignor="",
    rack="",
    rebalance_timeout_ms=1,
    session_timeout_ms=1,
    instance_id="",
    client_id="",
    client_host="",
)


class FakeCoordinator:
    loading = 0

    def __init__(self, groups: list[Group]) -> None:
        self._groups = groups

    def own_groups(self, start: str, count: int) -> list[Group]:
        return [group for group in self._groups if group.group_id > start][:count]


class NoReplicas:
    def leaders(self) -> list[Any]:
        return []


def group(name: str, *, members: int = 0, offsets: int = 0) -> Group:
    made = Group(name, epoch=1)
    for n in range(members):
        made.apply(MemberKey(name, f"m{n}"), MEMBER)
    for n in range(offsets):
        made.apply(OffsetKey(name, "t", PartitionId(n)), OffsetValue(offset=Offset(n), commit_timestamp_ms=0))
    return made


def families(*groups: Group) -> dict[str, Family]:
    coordinator, replicas = cast("Any", FakeCoordinator(list(groups))), cast("Any", NoReplicas())
    found = asyncio.run(group_metrics.group_families(coordinator, replicas, per_partition=True))
    return {family.name: family for family in found}


def test_groups_beyond_a_number_are_counted_and_have_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit makes a group, so anyone who may commit could make the page as large as the node's memory."""
    monkeypatch.setattr(group_metrics, "GROUPS_MAX", 3)
    monkeypatch.setattr(group_metrics, "GROUPS_AT_ONCE", 2)
    found = families(*(group(f"g{n}", members=n in (4, 6), offsets=1) for n in range(8)))
    assert found["streamlog_groups"].samples == [(("empty",), 6), (("reconciling",), 2), (("stable",), 0)]
    for name in ("streamlog_group_members", "streamlog_group_epoch", "streamlog_group_committed_offset"):
        assert [labels[0] for labels, _ in found[name].samples] == ["g4", "g6", "g0"]


def test_offsets_beyond_a_number_have_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metrics, "OFFSETS_MAX", 5)
    found = families(*(group(f"g{n}", offsets=3) for n in range(4)))
    assert [labels[:1] + labels[2:] for labels, _ in found["streamlog_group_committed_offset"].samples] == [
        ("g0", "0"),
        ("g0", "1"),
        ("g0", "2"),
        ("g1", "0"),
        ("g1", "1"),
    ]
