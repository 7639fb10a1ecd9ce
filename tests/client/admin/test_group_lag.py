"""What the lag of a group takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from streamlog.client.admin import group_values, groups
from streamlog.client.consumer.offset_finder import OffsetAndTimestamp, OffsetSpec
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.errors import UnknownTopicOrPartitionError
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicPartition

TOPICS = ["a", "b", "gone"]
PARTITIONS = [TopicPartition(topic, PartitionId(number)) for topic in TOPICS for number in range(2)]
END = OffsetAndTimestamp(offset=Offset(7), timestamp_ms=-1, leader_epoch=LeaderEpoch(0))


class Group(groups.GroupAdmin):
    _connections = _clock = _backoff = cast(Any, None)
    _total_s = _attempt_s = 30.0

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return {one: OffsetAndMetadata(Offset(5)) for one in PARTITIONS}


class NoOwners:
    def owners(self) -> dict[TopicPartition, str]:
        return {}


class Cache:
    made = 0

    def __init__(self, *_: object) -> None:
        Cache.made += 1

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


class Finder:
    def __init__(self, *_: object, **rest: object) -> None: ...

    async def find(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        timeout_s: float,
        on_found: Callable[[TopicPartition, OffsetAndTimestamp], None],
    ) -> None:
        for one in specs:
            if one.topic == "gone":
                raise UnknownTopicOrPartitionError("topic gone was deleted")
            on_found(one, END)


async def test_one_metadata_cache_for_all_topics_one_of_which_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MetadataCache", Cache)
    monkeypatch.setattr(groups, "OffsetFinder", Finder)
    monkeypatch.setattr(Cache, "made", 0)
    rows = await Group().group_lag("g", cast(group_values.GroupDescription, NoOwners()))
    assert [(row.at, row.lag) for row in rows] == [(one, None if one.topic == "gone" else 2) for one in PARTITIONS]
    assert Cache.made == 1
