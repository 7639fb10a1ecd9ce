"""What the services need of the other parts of a node, as Protocols. The node passes the implementations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.metadata.controller import Command
from streamlog.model import BrokerId, PartitionId, RaftIndex, TopicId
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
        """The active controller's response to this call of streamlog.v1.Admin, once its changes are applied here too.
        StreamlogError.
        """
        ...

    async def catch_up(self, timeout_s: float) -> None:
        """Until this node's image has every change acknowledged before the call, or the timeout."""
        ...


class QuorumVoters(Protocol):
    """The part of streamlog.raft.port.Quorum that operators see."""

    @property
    def applied_index(self) -> RaftIndex: ...

    def leadership(self) -> Leadership: ...

    def voters(self) -> VoterSet: ...

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        """Index up to which each voter has the quorum's log; empty unless this node leads the quorum."""
        ...

    @property
    def knows_votes(self) -> bool:
        """Whether this node learns which voters lost their votes: a voter does."""
        ...

    def without_vote(self) -> Collection[BrokerId]:
        """Voters that lost their disks, and with them their votes, as far as this node knows."""
        ...

    async def add_voter(self, voter: Voter) -> RaftIndex: ...

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex: ...

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex: ...


class InternalTopics(Protocol):
    """Internal topics, created when they are first needed: streamlog.controller.ControllerLink."""

    async def create_internal_topic(self, name: str) -> TopicId:
        """The topic's id; it may exist already. StreamlogError."""
        ...


class Partitions(Protocol):
    """The partitions that this node leads: streamlog.broker.Replicas."""

    def leader(self, topic: str, topic_id: TopicId | None, partition: PartitionId) -> LeaderReplica:
        """Empty `topic`: by id; no `topic_id`: by name. UnknownTopicOrPartitionError, UnknownTopicIdError,
        NotLeaderError, LeaderNotAvailableError, StorageError.
        """
        ...
