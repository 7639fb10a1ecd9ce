"""DeleteRecords: by the leaders of the partitions, then confirmed by their followers.

    any node --by leader--> leader: the log start is moved, durably --each follower--> confirmed

The response of a partition comes once every replica on an active node has the new start durably, so that no fail-over
among them brings the records back. A replica that does not confirm in time is named in the result's error; the leader
has deleted the records then, and the client may repeat the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from streamlog.api.convert import record_deletion as convert
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import replication_pb2
from streamlog.api.service import Call
from streamlog.errors import (
    BrokerNotAvailableError,
    InvalidTopicError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    StreamlogError,
)
from streamlog.metadata.image.image import require_partition
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, Offset, PartitionId, TopicId, TopicPartition
from streamlog.services.common.forwarding import Peers, is_forwarded, timeout_of
from streamlog.services.common.gather import call_each
from streamlog.services.common.topics import unknown_topic

_DELETE_RECORDS: Final = "/streamlog.v1.Admin/DeleteRecords"
_CONFIRM: Final = "/streamlog.internal.v1.Replication/ConfirmLogStart"
_AT_ONCE: Final = 16
# Of a call's time: for each hop to answer within that of the one before.
_SHARE: Final = 0.9


class DeletingReplicas(Protocol):
    """The partition table of this node: streamlog.broker.Replicas."""

    async def delete_records(
        self, topic: str, topic_id: TopicId | None, partition: PartitionId, before: Offset | None
    ) -> Offset:
        """As the leader. The log start now, durable here."""
        ...


class RecordDeletions:
    def __init__(self, node_id: BrokerId, view: MetadataView, replicas: DeletingReplicas, peers: Peers) -> None:
        self._me = node_id
        self._view = view
        self._replicas = replicas
        self._peers = peers

    async def delete_records(self, request: pb.DeleteRecordsRequest, call: Call) -> pb.DeleteRecordsResponse:
        wanted = convert.deletions(request)
        timeout_s = timeout_of(call) * _SHARE
        results: dict[TopicPartition, pb.DeleteRecordsResult] = {}
        by_leader: dict[BrokerId, dict[TopicPartition, Offset | None]] = {}
        for at, before in wanted.items():
            try:
                leader = self._me if is_forwarded(call) else self._leader_of(at)
                by_leader.setdefault(leader, {})[at] = before
            except StreamlogError as error:
                results[at] = convert.refused(at, error)

        async def of(leader: BrokerId) -> None:
            some = by_leader[leader]
            found = await (self._own(some, timeout_s) if leader == self._me else self._at(leader, some, timeout_s))
            results.update(found)

        await call_each(list(by_leader), of, at_once=_AT_ONCE)
        return pb.DeleteRecordsResponse(results=[results[at] for at in wanted])

    def _leader_of(self, at: TopicPartition) -> BrokerId:
        """InvalidTopicError, UnknownTopicOrPartitionError, LeaderNotAvailableError."""
        if at.topic in INTERNAL_TOPICS:
            raise InvalidTopicError(
                f"topic {at.topic!r} is internal: only the cluster deletes its records", field="topic"
            )
        topic = self._view.image.topic_named(at.topic)
        if topic is None:
            raise unknown_topic(at.topic)
        leader = require_partition(topic, at.partition).leader
        if leader == NO_BROKER:
            raise LeaderNotAvailableError(f"{at} has no leader now")
        return leader

    async def _at(
        self, leader: BrokerId, some: Mapping[TopicPartition, Offset | None], timeout_s: float
    ) -> dict[TopicPartition, pb.DeleteRecordsResult]:
        """By another node."""
        try:
            response = await self._peers.call(
                leader, _DELETE_RECORDS, convert.request(some), pb.DeleteRecordsResponse, timeout_s
            )
        except StreamlogError as error:
            return {at: convert.refused(at, error) for at in some}
        found = dict(zip(some, response.results, strict=False))
        missing = BrokerNotAvailableError(f"node {leader} returned {len(found)} of {len(some)} results", node=leader)
        return {at: found.get(at) or convert.refused(at, missing) for at in some}

    async def _own(
        self, some: Mapping[TopicPartition, Offset | None], timeout_s: float
    ) -> dict[TopicPartition, pb.DeleteRecordsResult]:
        """By this node, as the leader."""

        async def one(at: TopicPartition) -> pb.DeleteRecordsResult:
            try:
                self._leader_of(at)
                start = await self._replicas.delete_records(at.topic, None, at.partition, some[at])
                await self._confirmed(at, start, timeout_s * _SHARE)
            except StreamlogError as error:
                return convert.refused(at, error)
            return convert.result(at, start)

        rows = await call_each(list(some), one, at_once=_AT_ONCE)
        return dict(zip(some, rows, strict=True))

    async def _confirmed(self, at: TopicPartition, start: Offset, timeout_s: float) -> None:
        """Returns once the followers on active nodes have this log start. RequestTimedOutError."""
        image = self._view.image
        topic = image.require_topic(at.topic)
        followers = [
            node
            for node in require_partition(topic, at.partition).replicas
            if node != self._me and (broker := image.brokers.get(node)) is not None and broker.active
        ]
        request = replication_pb2.ConfirmLogStartRequest(
            topic_id=topic.topic_id, partition=at.partition, log_start=start
        )

        async def one(node: BrokerId) -> str:
            try:
                await self._peers.call(node, _CONFIRM, request, replication_pb2.ConfirmLogStartResponse, timeout_s)
            except StreamlogError as error:
                return f"node {node}: {error.message}"
            return ""

        late = [reason for reason in await call_each(followers, one, at_once=_AT_ONCE) if reason]
        if late:
            raise RequestTimedOutError(
                f"{at}: the leader has deleted the records before offset {start}; not yet confirmed by "
                f"{'; '.join(late)}. Repeat the deletion to be sure"
            )
