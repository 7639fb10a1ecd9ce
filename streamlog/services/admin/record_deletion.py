"""DeleteRecords: by the leaders of the partitions, then confirmed by their followers.

    any node --by leader--> leader: the log start is moved, durably --each follower--> confirmed

The response of a partition comes once every replica that may be elected (in the ISR, joining it, eligible, last known
to be eligible), and every other one on an active node, has the new start durably: no later leader brings the records
back (I23). One that joins the ISR afterwards has the leader's log start durably (`replication.leader`), so what counts
is that the same leadership lasts until the response. A replica that does not confirm in time is named in the result's
error; the leader has deleted the records then, and the client may repeat the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from streamlog.api.convert import record_deletion as convert
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import replication_pb2
from streamlog.api.service import Call
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.table.deleted_records import LocalDeletion
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
        self, topic: str, topic_id: TopicId | None, partition: PartitionId, before: Offset | None, *, within_s: float
    ) -> LocalDeletion:
        """As the leader, which knows within so many seconds what is committed."""
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
        loop = asyncio.get_running_loop()

        async def one(at: TopicPartition) -> pb.DeleteRecordsResult:
            try:
                self._leader_of(at)
                until_s = loop.time() + timeout_s * _SHARE
                deletion = await self._replicas.delete_records(
                    at.topic, None, at.partition, some[at], within_s=timeout_s * _SHARE * _SHARE
                )
                await self._confirmed(at, deletion, until_s - loop.time())
            except StreamlogError as error:
                return convert.refused(at, error)
            return convert.result(at, deletion.log_start)

        rows = await call_each(list(some), one, at_once=_AT_ONCE)
        return dict(zip(some, rows, strict=True))

    async def _confirmed(self, at: TopicPartition, deletion: LocalDeletion, timeout_s: float) -> None:
        """Returns once all that must have this log start have it. RequestTimedOutError, the error that ended the
        leadership.
        """
        until_s = asyncio.get_running_loop().time() + timeout_s
        confirmed = {self._me}
        while missing := sorted(self._must_confirm(at, deletion.leader) - confirmed):
            late = await self._confirm(missing, deletion, until_s - asyncio.get_running_loop().time())
            if late:
                raise RequestTimedOutError(
                    f"{at}: the leader has deleted the records before offset {deletion.log_start}; not yet confirmed "
                    f"by {'; '.join(late)}. Repeat the deletion when they answer"
                )
            confirmed.update(missing)

    async def _confirm(self, nodes: Sequence[BrokerId], deletion: LocalDeletion, timeout_s: float) -> list[str]:
        """Why some of these nodes have not confirmed."""
        leader = deletion.leader
        request = replication_pb2.ConfirmLogStartRequest(
            topic_id=leader.topic_id, partition=leader.partition.partition, log_start=deletion.log_start
        )

        async def one(node: BrokerId) -> str:
            try:
                await self._peers.call(node, _CONFIRM, request, replication_pb2.ConfirmLogStartResponse, timeout_s)
            except StreamlogError as error:
                return f"node {node}: {error.message}"
            return ""

        return [reason for reason in await call_each(nodes, one, at_once=_AT_ONCE) if reason]

    def _must_confirm(self, at: TopicPartition, leader: LeaderReplica) -> set[BrokerId]:
        """By the newest metadata. The error that ended the leadership."""
        leader.check()
        image = self._view.image
        partition = require_partition(image.require_topic(at.topic), at.partition)
        active = {node for node in partition.replicas if (broker := image.brokers.get(node)) and broker.active}
        may_lead = {*partition.isr, *partition.elr, *partition.last_known_elr, *leader.state.isr.maximal}
        return active | may_lead
