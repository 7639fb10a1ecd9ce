"""What the services need of the other parts of a node. Whoever wires the node gives them these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.metadata.controller import Command
from streamlog.model import BrokerId, PartitionId, ProducerId, RaftIndex, TopicId
from streamlog.raft.port import Leadership
from streamlog.raft.voters import Voter, VoterSet


class CommandSubmitter(Protocol):
    """The active controller, if this node is it: streamlog.controller.ActiveController."""

    async def submit(self, command: Command) -> Any:
        """The decision's response, once it is committed and applied here. NotControllerError: not carried out."""
        ...


class ControllerAccess(Protocol):
    """The way to the active controller: streamlog.controller.ControllerLink."""

    async def forward(self, method: str, request: bytes, timeout_s: float) -> bytes:
        """The active controller's answer to this call of streamlog.v1.Admin, which holds here as well when it comes.
        StreamlogError.
        """
        ...

    async def catch_up(self, timeout_s: float) -> None:
        """Until this node's image holds all that anybody had been told before, or the time is over."""
        ...


class QuorumVoters(Protocol):
    """The part of streamlog.raft.port.Quorum that operators see."""

    @property
    def applied_index(self) -> RaftIndex: ...

    def leadership(self) -> Leadership: ...

    def voters(self) -> VoterSet: ...

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        """Up to where each voter holds the quorum's log; empty where this node does not lead it."""
        ...

    def without_vote(self) -> Collection[BrokerId]:
        """Voters that lost their disks, and with them their votes, as far as this node has seen it."""
        ...

    async def add_voter(self, voter: Voter) -> RaftIndex: ...

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex: ...

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex: ...


class InternalTopics(Protocol):
    """Topics that the cluster makes for itself when they are first needed: streamlog.controller.ControllerLink."""

    async def create_internal_topic(self, name: str) -> TopicId:
        """The topic's id; it may be there already. StreamlogError."""
        ...


class Partitions(Protocol):
    """The partitions that this node leads: streamlog.broker.Replicas."""

    def leader(self, topic: str, topic_id: TopicId | None, partition: PartitionId) -> LeaderReplica:
        """Empty `topic`: by id; no `topic_id`: by name. UnknownTopicOrPartitionError, UnknownTopicIdError,
        NotLeaderError, LeaderNotAvailableError, StorageError.
        """
        ...


class ProducerIdSequence(Protocol):
    """Ids for idempotent producers: streamlog.broker.producer_id_allocator."""

    async def next(self) -> ProducerId:
        """One that nobody has had. StreamlogError."""
        ...
