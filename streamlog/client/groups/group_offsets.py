"""Committed offsets of a group (SEMANTICS 10): committed and fetched at its coordinator.

The offset is the next one to read. A consumer's commits are sent one after another, so that a late one never overwrites
a newer one; each names the member's epoch at the time it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.api import calls
from streamlog.api.errors import from_message
from streamlog.api.pb import common_pb2
from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.coordinator import Coordinator
from streamlog.client.consumer.start_positions import as_offset
from streamlog.errors import RequestTimedOutError, StreamlogError
from streamlog.model import LeaderEpoch, Offset, PartitionId, TopicPartition

COMMIT: Final = calls.unary("streamlog.v1.Groups/CommitOffsets", pb.CommitOffsetsResponse)
FETCH: Final = calls.unary("streamlog.v1.Groups/FetchOffsets", pb.FetchOffsetsResponse)
_PARTITIONS_PER_REQUEST: Final = 10_000


class OffsetAndMetadata(Struct, frozen=True):
    """The committed offset of a partition."""

    offset: Offset  # the next one to read
    leader_epoch: LeaderEpoch | None = None  # of the record before it; None: unknown
    metadata: str = ""  # the user's own, 4,096 bytes at most
    commit_timestamp_ms: int | None = None  # as fetched; None: not fetched


class GroupOffsets:
    """Of one group."""

    def __init__(
        self,
        coordinator: Coordinator,
        backoff: Backoff,
        committer: Callable[[], Callable[[], pb.GroupMember | None]] = lambda: lambda: None,
    ) -> None:
        """`committer`: the member that makes a commit; None: not a member, refused while the group has members."""
        self._coordinator = coordinator
        self._backoff = backoff
        self._committer = committer
        self._turn = asyncio.Lock()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> dict[TopicPartition, StreamlogError]:
        """`metadata`: of the calls. Returns the partitions that were refused; the others are committed. Raises what
        refuses all of them: UnknownMemberIdError, IllegalGenerationError, GroupNotEmptyError; RequestTimedOutError.
        """
        refused: dict[TopicPartition, StreamlogError] = {}
        who = self._committer()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            async with timeout(timeout_s):
                await self._turn.acquire()
        except TimeoutError:
            message = f"offsets of group {self._coordinator.group!r} were not committed within {timeout_s:g} s"
            raise RequestTimedOutError(f"{message}: an earlier commit is not answered") from None
        try:
            wanted = list(offsets.items())
            for at in range(0, len(wanted), _PARTITIONS_PER_REQUEST):
                some = wanted[at : at + _PARTITIONS_PER_REQUEST]
                refused |= await self._commit(some, who, deadline_s - loop.time(), metadata)
        finally:
            self._turn.release()
        return refused

    async def _commit(
        self,
        offsets: list[tuple[TopicPartition, OffsetAndMetadata]],
        who: Callable[[], pb.GroupMember | None],
        timeout_s: float,
        metadata: Mapping[str, str] | None,
    ) -> dict[TopicPartition, StreamlogError]:
        rows = [to_commit(partition, at) for partition, at in offsets]

        def request() -> pb.CommitOffsetsRequest:
            return pb.CommitOffsetsRequest(group=self._coordinator.group, member=who(), offsets=rows)

        response = await self._coordinator.ask(COMMIT, request, timeout_s=timeout_s, metadata=metadata)
        return {
            partition: from_message(result.error)
            for (partition, _), result in zip(offsets, response.results, strict=False)
            if result.HasField("error")
        }

    async def fetch(
        self, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False, timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """None: no offset is committed. `partitions` None: all that have one. `stable`: wait until no open transaction
        commits any of them. RequestTimedOutError.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        wanted = None if partitions is None else list(partitions)
        if wanted is None:
            return await self._fetch([], deadline_s, timeout_s, stable=stable)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for at in range(0, len(wanted), _PARTITIONS_PER_REQUEST):
            some = wanted[at : at + _PARTITIONS_PER_REQUEST]
            found |= await self._fetch(some, deadline_s, timeout_s, stable=stable)
        return found

    async def _fetch(
        self, partitions: list[TopicPartition], deadline_s: float, timeout_s: float, *, stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        request = pb.FetchOffsetsRequest(
            group=self._coordinator.group,
            partitions=[common_pb2.TopicPartition(topic=one.topic, partition=one.partition) for one in partitions],
            require_stable=stable,
        )
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            response = await self._coordinator.ask(FETCH, lambda: request, timeout_s=deadline_s - loop.time())
            errors = [from_message(row.error) for row in response.offsets if row.HasField("error")]
            if not errors:
                return {_partition(row): _committed(row) for row in response.offsets}
            left_s = deadline_s - loop.time()
            for error in errors:
                if not error.retriable:
                    raise error
            if left_s <= 0:
                message = f"offsets of group {self._coordinator.group!r} were not fetched within {timeout_s:g} s"
                raise RequestTimedOutError(f"{message}: {errors[0]}")
            attempt += 1
            await self._backoff.wait(attempt, left_s=left_s)


def to_commit(partition: TopicPartition, at: OffsetAndMetadata) -> pb.OffsetToCommit:
    row = pb.OffsetToCommit(
        topic=partition.topic, partition=partition.partition, offset=as_offset(at.offset), metadata=at.metadata
    )
    if at.leader_epoch is not None and at.leader_epoch >= 0:
        row.leader_epoch = at.leader_epoch
    return row


def _partition(row: pb.CommittedOffset) -> TopicPartition:
    return TopicPartition(row.topic, PartitionId(row.partition))


def _committed(row: pb.CommittedOffset) -> OffsetAndMetadata | None:
    if row.offset < 0:
        return None
    return OffsetAndMetadata(
        Offset(row.offset),
        LeaderEpoch(row.leader_epoch) if row.HasField("leader_epoch") else None,
        row.metadata,
        row.commit_timestamp_ms,
    )
