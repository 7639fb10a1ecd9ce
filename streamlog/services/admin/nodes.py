"""What only the nodes themselves know: their disks, and the bytes of their replicas.

The node that serves the client sends the same call to the nodes concerned, in parallel, and they respond for
themselves. A node that cannot be reached has an error in its row; the other rows are complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from streamlog.api.convert import replicas as convert
from streamlog.api.convert.fields import partition_id, topic_name
from streamlog.api.convert.replicas import DigestQuery, ReplicaLogDir
from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.broker.repair.digest import LogDigest
from streamlog.broker.repair.log_repairs import RepairReport
from streamlog.broker.table.log_dirs import LogDirDescription
from streamlog.errors import BrokerNotAvailableError, InvalidRequestError, StreamlogError
from streamlog.metadata.image.image import require_partition
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, Offset, PartitionId, TopicId, TopicPartition
from streamlog.services.common.forwarding import Peers, is_forwarded, only, timeout_of
from streamlog.services.common.gather import call_each
from streamlog.services.common.paging import PAGE_BYTES
from streamlog.services.common.topics import unknown_topic

_DESCRIBE_LOG_DIRS: Final = "/streamlog.v1.Admin/DescribeLogDirs"
_ALTER_REPLICA_LOG_DIRS: Final = "/streamlog.v1.Admin/AlterReplicaLogDirs"
_DIGEST_REPLICAS: Final = "/streamlog.v1.Admin/DigestReplicas"
_REPAIR_REPLICAS: Final = "/streamlog.v1.Admin/RepairReplicas"
_AT_ONCE: Final = 16
"""Concurrent calls: each response has up to 1 MiB."""


class Disks(Protocol):
    """The replicas of this node: streamlog.broker.Replicas."""

    def describe_log_dirs(self, topics: Sequence[str] = ()) -> Sequence[LogDirDescription]: ...

    def move_log(self, topic: str, topic_id: TopicId | None, partition: PartitionId, path: str) -> None: ...

    async def digest(
        self,
        topic: str,
        topic_id: TopicId | None,
        partition: PartitionId,
        start_offset: Offset | None = None,
        end_offset: Offset | None = None,
    ) -> LogDigest:
        """With an empty range: only the replica's offsets."""
        ...

    async def repair(
        self, topic: str, topic_id: TopicId | None, partition: PartitionId, *, dry_run: bool
    ) -> RepairReport: ...


class NodeQueries:
    def __init__(self, node_id: BrokerId, view: MetadataView, disks: Disks, peers: Peers) -> None:
        self._me = node_id
        self._view = view
        self._disks = disks
        self._peers = peers

    # -- log directories

    async def describe_log_dirs(self, request: pb.DescribeLogDirsRequest, call: Call) -> pb.DescribeLogDirsResponse:
        nodes, topics = convert.describe_log_dirs(request)
        if is_forwarded(call):
            return _bounded([self._own_log_dirs(topics)])
        image = self._view.image
        asked = sorted(nodes) or [broker.broker_id for broker in image.brokers.values() if not broker.fenced]

        async def one(node: BrokerId) -> pb.NodeLogDirs:
            try:
                if node == self._me:
                    return self._own_log_dirs(topics)
                image.require_broker(node)
                return await self._other_log_dirs(node, topics, call)
            except StreamlogError as error:
                return convert.not_described(node, error)

        return _bounded(await call_each(asked, one, at_once=_AT_ONCE))

    def _own_log_dirs(self, topics: frozenset[str]) -> pb.NodeLogDirs:
        node = pb.NodeLogDirs(node_id=self._me)
        for found in self._disks.describe_log_dirs(sorted(topics)):
            row = node.log_dirs.add()
            convert.set_log_dir(
                row,
                path=found.path,
                directory_id=found.directory_id,
                total_bytes=found.total_bytes,
                usable_bytes=found.usable_bytes,
                error=found.error,
            )
            convert.set_scrub(
                row,
                started_ms=found.scrub.started_ms,
                ended_ms=found.scrub.ended_ms,
                read_bytes=found.scrub.read_bytes,
                total_bytes=found.scrub.total_bytes,
                damaged_ranges=found.scrub.damaged_ranges,
            )
            for moving in found.future_replicas:
                convert.add_future_replica(
                    row,
                    moving.partition,
                    size_bytes=moving.size_bytes,
                    offset_lag=moving.offset_lag,
                    error=moving.error,
                )
            for replica in found.replicas:
                convert.add_replica(
                    row,
                    replica.partition,
                    size_bytes=replica.size_bytes,
                    log_start=replica.log_start,
                    log_end=replica.log_end,
                    damaged_ranges=replica.damaged_ranges,
                )
        return node

    async def _other_log_dirs(self, node: BrokerId, topics: frozenset[str], call: Call) -> pb.NodeLogDirs:
        request = pb.DescribeLogDirsRequest(node_ids=[node], topics=sorted(topics))
        response_type = pb.DescribeLogDirsResponse
        response = await self._peers.call(node, _DESCRIBE_LOG_DIRS, request, response_type, timeout_of(call))
        return only(response.nodes, node)

    async def alter_replica_log_dirs(
        self, request: pb.AlterReplicaLogDirsRequest, call: Call
    ) -> pb.AlterReplicaLogDirsResponse:
        """Each node gets those of its own replicas, in one call."""
        wanted = convert.replica_log_dirs(request)
        if is_forwarded(call):
            return pb.AlterReplicaLogDirsResponse(replicas=[self._own_move(one) for one in wanted])
        by_node: dict[BrokerId, list[ReplicaLogDir]] = {}
        for one in wanted:
            by_node.setdefault(one.node_id, []).append(one)

        async def ask(node: BrokerId) -> list[pb.ReplicaLogDirResult]:
            theirs = by_node[node]
            if node == self._me:
                return [self._own_move(one) for one in theirs]
            try:
                self._view.image.require_broker(node)
                response_type = pb.AlterReplicaLogDirsResponse
                message = convert.to_replica_log_dirs(theirs)
                response = await self._peers.call(
                    node, _ALTER_REPLICA_LOG_DIRS, message, response_type, timeout_of(call)
                )
                if len(response.replicas) != len(theirs):
                    raise _incomplete(node)
                return list(response.replicas)
            except StreamlogError as error:
                return [convert.replica_log_dir_result(one, error) for one in theirs]

        answers = await call_each(sorted(by_node), ask, at_once=_AT_ONCE)
        rows = {node: iter(answer) for node, answer in zip(sorted(by_node), answers, strict=True)}
        return pb.AlterReplicaLogDirsResponse(replicas=[next(rows[one.node_id]) for one in wanted])

    def _own_move(self, wanted: ReplicaLogDir) -> pb.ReplicaLogDirResult:
        error: StreamlogError | None = None
        try:
            self._disks.move_log(wanted.at.topic, None, wanted.at.partition, wanted.log_dir)
        except StreamlogError as e:
            error = e
        return convert.replica_log_dir_result(wanted, error)

    # -- digests

    async def digest_replicas(self, request: pb.DigestReplicasRequest, call: Call) -> pb.DigestReplicasResponse:
        query = convert.digest_query(request)
        topic = self._view.image.topic_named(query.topic)
        if topic is None:
            raise unknown_topic(query.topic)
        partition = require_partition(topic, query.partition)
        if is_forwarded(call):
            own = await self._own_digest(topic.topic_id, query, query.start or Offset(0), query.end or Offset(0))
            return pb.DigestReplicasResponse(replicas=[own])

        async def ask(start: Offset, end: Offset) -> list[pb.ReplicaDigest]:
            return await call_each(
                partition.replicas,
                lambda node: self._digest_of(node, topic.topic_id, query, start, end, call),
                at_once=_AT_ONCE,
            )

        start, end = query.start, query.end
        if start is None or end is None:
            start, end = _common_range(query, await ask(Offset(0), Offset(0)))
        digests = await ask(start, end)
        return pb.DigestReplicasResponse(
            start_offset=start, end_offset=end, replicas=digests, identical=convert.are_identical(digests)
        )

    async def _digest_of(
        self, node: BrokerId, topic_id: TopicId, query: DigestQuery, start: Offset, end: Offset, call: Call
    ) -> pb.ReplicaDigest:
        try:
            if node == self._me:
                return await self._own_digest(topic_id, query, start, end)
            request, response_type = convert.digest_request(query, start, end), pb.DigestReplicasResponse
            response = await self._peers.call(node, _DIGEST_REPLICAS, request, response_type, timeout_of(call))
            return only(response.replicas, node)
        except StreamlogError as error:
            return convert.not_digested(node, error)

    async def _own_digest(self, topic_id: TopicId, query: DigestQuery, start: Offset, end: Offset) -> pb.ReplicaDigest:
        found = await self._disks.digest(query.topic, topic_id, query.partition, start, end)
        return convert.digested(
            self._me,
            digest=found.digest,
            batch_count=found.batch_count,
            log_start=found.log_start,
            high_watermark=found.high_watermark,
            log_end=found.log_end,
            epochs=found.epochs,
        )

    # -- repairs

    async def repair_replicas(self, request: pb.RepairReplicasRequest, call: Call) -> pb.RepairReplicasResponse:
        """One replica after the other: one may be repaired from another that was repaired before."""
        at = TopicPartition(topic_name(request.topic), partition_id(request.partition))
        topic = self._view.image.topic_named(at.topic)
        if topic is None:
            raise unknown_topic(at.topic)
        partition = require_partition(topic, at.partition)
        if is_forwarded(call):
            return pb.RepairReplicasResponse(replicas=[await self._own_repair(topic.topic_id, request)])
        rows = [await self._repair_of(node, topic.topic_id, request, call) for node in partition.replicas]
        return pb.RepairReplicasResponse(replicas=rows)

    async def _repair_of(
        self, node: BrokerId, topic_id: TopicId, request: pb.RepairReplicasRequest, call: Call
    ) -> pb.ReplicaRepair:
        try:
            if node == self._me:
                return await self._own_repair(topic_id, request)
            response_type = pb.RepairReplicasResponse
            response = await self._peers.call(node, _REPAIR_REPLICAS, request, response_type, timeout_of(call))
            return only(response.replicas, node)
        except StreamlogError as error:
            return convert.not_repaired(node, error)

    async def _own_repair(self, topic_id: TopicId, request: pb.RepairReplicasRequest) -> pb.ReplicaRepair:
        found = await self._disks.repair(
            request.topic, topic_id, PartitionId(request.partition), dry_run=request.dry_run
        )
        row = pb.ReplicaRepair(node_id=self._me, read_bytes=found.read_bytes)
        for one in found.ranges:
            damage = row.damages.add(
                path=one.damage.path,
                position=one.damage.position,
                begin_offset=one.damage.begin_offset,
                end_offset=one.damage.end_offset,
                reason=one.damage.reason,
                failure=one.reason,
            )
            if one.source is not None:
                damage.repaired_from = one.source
        return row


def _common_range(query: DigestQuery, facts: Sequence[pb.ReplicaDigest]) -> tuple[Offset, Offset]:
    """The range that every replica that responded has and knows to be committed; the first error if none responded."""
    known = [one for one in facts if not one.HasField("error")]
    if not known:
        raise from_message(facts[0].error) if facts else BrokerNotAvailableError("the partition has no replicas")
    end = query.end if query.end is not None else Offset(min(one.high_watermark for one in known))
    start = query.start if query.start is not None else Offset(max(one.log_start for one in known))
    return min(start, end), end


def _incomplete(node: BrokerId) -> BrokerNotAvailableError:
    return BrokerNotAvailableError(
        f"node {node} has answered a part of the request only: retry, or see its log", node=node
    )


def _bounded(nodes: Sequence[pb.NodeLogDirs]) -> pb.DescribeLogDirsResponse:
    response = pb.DescribeLogDirsResponse(nodes=nodes)
    if response.ByteSize() > PAGE_BYTES:
        raise InvalidRequestError(
            f"the replicas of {len(nodes)} nodes exceed {PAGE_BYTES} bytes: request fewer nodes or topics",
            field="node_ids",
            limit=PAGE_BYTES,
        )
    return response
