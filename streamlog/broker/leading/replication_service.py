"""Serves streamlog.internal.v1.Replication: admits followers, and keeps one stream for each of them.

A stream begins with the follower's hello, which must name this cluster, this node, and the follower's registration in
the metadata (KIP-903). A hello with a newer registration waits for the metadata; one with an older registration is
fenced, and a stream is closed when its follower re-registers. A follower that opens another stream has lost the
previous one, whether this node has noticed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from streamlog.aio.timeouts import timeout
from streamlog.api.convert import replica_states as convert
from streamlog.api.convert.record_deletion import log_start as convert_log_start
from streamlog.api.pb import replication_pb2 as pb
from streamlog.api.service import Call, Method, Service, unary
from streamlog.broker import replica_wire as wire
from streamlog.broker.leading.follower_stream import FollowerStream
from streamlog.broker.leading.isr_changes import IsrChanges
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.broker.repair.range_fetch import decode_request
from streamlog.broker.replica_wire import FollowerHello
from streamlog.broker.throttle import Throttle
from streamlog.errors import (
    BrokerIdNotRegisteredError,
    InconsistentClusterError,
    InvalidRequestError,
    RequestTimedOutError,
    StaleBrokerEpochError,
)
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, Offset, PartitionId, TopicId
from streamlog.ports import CallInfo, Clock, Probe, RpcError, Stream
from streamlog.tls.callers import check_speaker

HELLO_TIMEOUT_S: Final = 2.0
"""For the hello, and again for the metadata with its registration."""
CONFIRM_TIMEOUT_S: Final = 30.0
CONFIRM_SHARE: Final = 0.9
"""Of the caller's time: so that it gets the reason."""


class ServedReplicas(Protocol):
    """The partition table."""

    async def read_range(
        self, topic_id: TopicId, partition: PartitionId, start: Offset, end: Offset, size_max: int
    ) -> bytes:
        """Committed batches of a replica on this node."""
        ...

    async def confirm_log_start(self, topic_id: TopicId, partition: PartitionId, start: Offset) -> None:
        """Returns once the log of the replica on this node starts there or later, durably."""
        ...

    def leader(self, topic: str, topic_id: TopicId | None, partition: PartitionId) -> LeaderReplica:
        """UnknownTopicOrPartitionError, UnknownTopicIdError, NotLeaderError, StorageError."""
        ...

    def replica_state(self, key: PartitionKey, broker_epoch: BrokerEpoch) -> ReplicaState | None:
        """The log ends of the replica on this node; None: there is none."""
        ...


class ReplicationService:
    """Owned by the node, for the lifetime of its server."""

    def __init__(
        self,
        me: BrokerId,
        cluster_id: str,
        view: MetadataView,
        leaders: ServedReplicas,
        isr: IsrChanges,
        *,
        throttle: Throttle,
        fetch_bytes_max: Callable[[], int],
        broker_epoch: Callable[[], BrokerEpoch | None],
        on_broken: Callable[[BrokerId], None],
        clock: Clock,
        probe: Probe,
    ) -> None:
        """`throttle`: leader.replication.throttled.rate, for all streams. `fetch_bytes_max`: replica.fetch.max.bytes,
        read at the beginning of each stream. `broker_epoch`: of this node's registration. `on_broken`: the stream of
        this follower broke.
        """
        self._me = me
        self._cluster_id = cluster_id
        self._view = view
        self._leaders = leaders
        self._isr = isr
        self._throttle = throttle
        self._fetch_bytes_max = fetch_bytes_max
        self._broker_epoch = broker_epoch
        self._on_broken = on_broken
        self._clock = clock
        self._probe = probe
        self._streams: dict[BrokerId, FollowerStream] = {}
        self._reading_range = asyncio.Lock()
        view.listen(self._on_metadata)

    def service(self) -> Service:
        """For the node's server. `replica_wire` encodes and decodes the messages of Replicate."""
        method = Method(
            name="Replicate",
            request_type=pb.ReplicateRequest,
            response_type=pb.ReplicateResponse,
            client_streaming=True,
            server_streaming=True,
            on_unary=None,
            on_stream=self._serve,
        )
        fetch_range = unary("FetchRange", pb.FetchRangeRequest, pb.FetchRangeResponse, self._fetch_range)
        confirm = unary(
            "ConfirmLogStart", pb.ConfirmLogStartRequest, pb.ConfirmLogStartResponse, self._confirm_log_start
        )
        describe = unary(
            "DescribeReplicas", pb.DescribeReplicasRequest, pb.DescribeReplicasResponse, self._describe_replicas
        )
        return Service(
            pb.DESCRIPTOR.services_by_name["Replication"], self._clock, [method, fetch_range, confirm, describe]
        )

    async def _fetch_range(self, request: pb.FetchRangeRequest, call: Call) -> pb.FetchRangeResponse:
        """For a repair on another node. One range is read at a time, so that repairs do not slow down others."""
        requested = decode_request(request)
        async with self._reading_range:
            return pb.FetchRangeResponse(batches=await self._leaders.read_range(*requested))

    async def _confirm_log_start(self, request: pb.ConfirmLogStartRequest, call: Call) -> pb.ConfirmLogStartResponse:
        """For the leader, which has deleted records. RequestTimedOutError."""
        topic_id, partition, start = convert_log_start(request)
        remaining_s = call.remaining_s()
        wait_s = CONFIRM_TIMEOUT_S if remaining_s is None else min(CONFIRM_TIMEOUT_S, remaining_s * CONFIRM_SHARE)
        try:
            async with timeout(wait_s):
                await self._leaders.confirm_log_start(topic_id, partition, start)
        except TimeoutError:
            raise RequestTimedOutError(
                f"the replica on node {self._me} follows the leader with a delay: it does not start at {start} yet"
            ) from None
        return pb.ConfirmLogStartResponse()

    async def _describe_replicas(self, request: pb.DescribeReplicasRequest, call: Call) -> pb.DescribeReplicasResponse:
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterError(
                f"the request is for cluster {request.cluster_id!r}, this node belongs to {self._cluster_id!r}",
                field="cluster_id",
            )
        keys = convert.request(request)
        epoch = self._broker_epoch()
        if epoch is None:
            raise BrokerIdNotRegisteredError(f"node {self._me} is not registered", field="broker_id")
        states = {key: state for key in keys if (state := self._leaders.replica_state(key, epoch)) is not None}
        return convert.to_response(epoch, states)

    async def _serve(self, stream: Stream, call: Call) -> None:
        try:
            hello = await self._admitted(stream, call.info)
        except TimeoutError:
            raise StaleBrokerEpochError("no hello in time, or this node does not know its registration yet") from None
        one = FollowerStream(
            hello,
            stream,
            find_leader=self._find_leader,
            isr=self._isr,
            throttle=self._throttle,
            fetch_bytes_max=self._fetch_bytes_max(),
        )
        previous = self._streams.get(hello.node_id)
        if previous is not None:
            previous.supersede()
        self._streams[hello.node_id] = one
        self._probe("follower_connected", follower=hello.node_id, broker_epoch=hello.broker_epoch)
        try:
            await one.run()
        except (RpcError, asyncio.CancelledError):  # a call that broke cancels its handler
            if self._streams.get(hello.node_id) is one:
                self._on_broken(hello.node_id)
            raise
        finally:
            if self._streams.get(hello.node_id) is one:
                del self._streams[hello.node_id]

    async def _admitted(self, stream: Stream, info: CallInfo) -> FollowerHello:
        """The follower's hello. InvalidRequestError, InconsistentClusterError, StaleBrokerEpochError,
        BrokerIdNotRegisteredError, RpcError, TimeoutError.
        """
        async with timeout(HELLO_TIMEOUT_S):
            data = await stream.recv()
        hello = None if data is None else wire.decode_request(data).hello
        if hello is None:
            raise InvalidRequestError("a replication stream must begin with a hello", field="hello")
        check_speaker(info, hello.node_id)
        if hello.cluster_id != self._cluster_id:
            raise InconsistentClusterError(
                f"node {hello.node_id} belongs to cluster {hello.cluster_id!r}, this node to {self._cluster_id!r}",
                field="cluster_id",
            )
        if hello.leader_id != self._me or hello.node_id == self._me:
            raise InvalidRequestError(f"this is node {self._me}, not {hello.leader_id}", field="leader_id")
        async with timeout(HELLO_TIMEOUT_S):
            image = await self._view.wait_until(lambda image: image.index >= hello.broker_epoch)
        image.require_broker(hello.node_id, hello.broker_epoch)
        return hello

    def _find_leader(self, topic_id: TopicId, partition: PartitionId) -> LeaderReplica:
        return self._leaders.leader(self._view.image.require_topic_id(topic_id).name, topic_id, partition)

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        if delta is not None and not any(True for _ in delta.changed_brokers()):
            return
        for follower, stream in self._streams.items():
            broker = image.brokers.get(follower)
            if broker is None or broker.epoch != stream.broker_epoch:
                stream.close(
                    StaleBrokerEpochError(
                        f"stale broker epoch {stream.broker_epoch} of node {follower}: it has re-registered",
                        field="broker_epoch",
                    )
                )
