"""The groups of the admin client: list, describe, lag, offsets, delete.

Calls about groups go to any node, which forwards them to coordinators; offsets are fetched from and committed at the
coordinator, ends of partitions are looked up at their leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from streamlog.api.calls import unary
from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.client.admin import group_values as values
from streamlog.client.admin.answers import only
from streamlog.client.admin.paging import next_token
from streamlog.client.admin.requests import topic_partitions
from streamlog.client.connection.any_node import AnyNode
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.client.connection.coordinator import Coordinator
from streamlog.client.connection.metadata import MetadataCache
from streamlog.client.consumer.offset_finder import Bound, OffsetAndTimestamp, OffsetFinder, OffsetSpec
from streamlog.client.groups.group_offsets import GroupOffsets, OffsetAndMetadata
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, IsolationLevel, Offset, PartitionId, TopicPartition
from streamlog.ports import Clock

_ADMIN: Final = "streamlog.v1.Admin"
_LIST: Final = unary(f"{_ADMIN}/ListGroups", pb.ListGroupsResponse)
_DESCRIBE: Final = unary(f"{_ADMIN}/DescribeGroups", pb.DescribeGroupsResponse)
_DELETE: Final = unary(f"{_ADMIN}/DeleteGroups", pb.DeleteGroupsResponse)
_DELETE_OFFSETS: Final = unary(f"{_ADMIN}/DeleteGroupOffsets", pb.DeleteGroupOffsetsResponse)
# Each description may have thousands of members.
_DESCRIBED_AT_ONCE: Final = 20
# A partition without a leader must not hold up the lag of the others.
_ENDS_S: Final = 5.0


class GroupAdmin:
    """The groups of AsyncAdmin, whose `start` sets the attributes."""

    _nodes: AnyNode
    _connections: Connections
    _clock: Clock
    _backoff: Backoff
    _total_s: float
    _attempt_s: float

    async def list_groups(self, *, states: Iterable[values.GroupState] = ()) -> values.GroupList:
        """Groups that have members or committed offsets. Without states: in any state."""
        wanted = [values.STATE_NUMBERS[state] for state in states]
        rows: dict[str, values.GroupListing] = {}
        errors: dict[BrokerId, StreamlogError] = {}
        token = ""
        while True:
            page = await self._nodes.ask(_LIST, pb.ListGroupsRequest(states=wanted, page_token=token))
            rows |= {row.group: values.listing(row) for row in page.groups}
            errors |= {BrokerId(one.node_id): from_message(one.error) for one in page.errors}
            token = next_token(page, token)
            if not token:
                return values.GroupList(groups=tuple(rows[name] for name in sorted(rows)), errors=errors)

    async def describe_groups(self, groups: Iterable[str]) -> tuple[values.GroupDescription, ...]:
        """In the order of `groups`. An unknown group has the error GROUP_ID_NOT_FOUND."""
        names = list(dict.fromkeys(groups))
        found: list[values.GroupDescription] = []
        for at in range(0, len(names), _DESCRIBED_AT_ONCE):
            request = pb.DescribeGroupsRequest(groups=names[at : at + _DESCRIBED_AT_ONCE])
            response = await self._nodes.ask(_DESCRIBE, request)
            found += [values.description(one) for one in response.groups]
        return tuple(found)

    async def describe_group(self, group: str) -> values.GroupDescription:
        """GroupIdNotFoundError."""
        found = only(await self.describe_groups([group]))
        if found.error is not None:
            raise found.error
        return found

    async def delete_groups(self, groups: Iterable[str]) -> tuple[values.GroupResult, ...]:
        """Groups and their committed offsets. Those that have members get GROUP_NOT_EMPTY."""
        response = await self._nodes.ask(_DELETE, pb.DeleteGroupsRequest(groups=groups))
        return tuple(
            values.GroupResult(group=row.group, error=from_message(row.error) if row.HasField("error") else None)
            for row in response.results
        )

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> tuple[values.GroupOffsetResult, ...]:
        """Partitions that members read get GROUP_SUBSCRIBED_TO_TOPIC."""
        request = pb.DeleteGroupOffsetsRequest(group=group, partitions=topic_partitions(partitions))
        response = await self._nodes.ask(_DELETE_OFFSETS, request)
        return tuple(
            values.GroupOffsetResult(
                at=TopicPartition(row.topic, PartitionId(row.partition)),
                error=from_message(row.error) if row.HasField("error") else None,
            )
            for row in response.results
        )

    # -- offsets

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All committed offsets of the group."""
        found = await self._offsets(group).fetch(timeout_s=self._total_s)
        return {partition: at for partition, at in found.items() if at is not None}

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> tuple[values.GroupOffsetResult, ...]:
        """Set the committed offsets of the group. GroupNotEmptyError while it has members; per partition
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        wanted = {
            partition: at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(Offset(at))
            for partition, at in offsets.items()
        }
        refused = await self._offsets(group).commit(wanted, timeout_s=self._total_s) if wanted else {}
        return tuple(values.GroupOffsetResult(at=one, error=refused.get(one)) for one in wanted)

    async def list_offsets(
        self, places: Mapping[TopicPartition, OffsetSpec], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """EARLIEST, LATEST, AtTime or Last of partitions. UnknownTopicOrPartitionError, RequestTimedOutError."""
        async with self._offset_finder() as finder:
            return await finder.find(places, timeout_s=self._total_s if timeout_s is None else timeout_s)

    async def group_lag(
        self, group: str, description: values.GroupDescription | None = None
    ) -> tuple[values.PartitionLag, ...]:
        """Of all partitions with a committed offset or an owner, in ascending order. `description`: if known.
        GroupIdNotFoundError.
        """
        described = description or await self.describe_group(group)
        committed = await self.list_group_offsets(group)
        owners = described.owners()
        partitions = sorted({*committed, *owners})
        ends: dict[TopicPartition, OffsetAndTimestamp] = {}
        by_topic: dict[str, dict[TopicPartition, OffsetSpec]] = {}
        for one in partitions:
            by_topic.setdefault(one.topic, {})[one] = Bound.LATEST
        async with self._offset_finder() as finder:
            await asyncio.gather(*(self._find_some(finder, places, ends) for places in by_topic.values()))
        return tuple(
            values.PartitionLag(
                at=one,
                committed=committed.get(one),
                log_end=ends[one].offset if one in ends else None,
                member=owners.get(one),
            )
            for one in partitions
        )

    def _offsets(self, group: str) -> GroupOffsets:
        coordinator = Coordinator(
            group, self._connections, self._clock, self._backoff, request_timeout_s=self._attempt_s
        )
        return GroupOffsets(coordinator, self._backoff)

    async def _find_some(
        self,
        finder: OffsetFinder,
        places: Mapping[TopicPartition, OffsetSpec],
        found: dict[TopicPartition, OffsetAndTimestamp],
    ) -> None:
        """What is found in time: a topic may have been deleted, a partition may have no leader."""
        with suppress(StreamlogError):
            await finder.find(places, timeout_s=min(self._total_s, _ENDS_S), on_found=found.__setitem__)

    @asynccontextmanager
    async def _offset_finder(self) -> AsyncIterator[OffsetFinder]:
        metadata = MetadataCache(self._connections, self._clock, self._backoff)
        watching = asyncio.ensure_future(metadata.run())  # sim: awaited below
        try:
            yield OffsetFinder(
                self._connections,
                metadata,
                self._clock,
                self._backoff,
                isolation=IsolationLevel.READ_UNCOMMITTED,
                request_timeout_s=self._attempt_s,
            )
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
