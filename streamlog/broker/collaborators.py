"""What the replicas of a node need of others, and whom they tell. The node wires them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from streamlog.errors import StreamlogError
from streamlog.metadata.image.roles import PartitionKey
from streamlog.model import Appended, ProducerId
from streamlog.replication.isr import ProposedIsr

if TYPE_CHECKING:
    from streamlog.broker.following.follower_replica import FollowerReplica
    from streamlog.broker.leading.leader_replica import LeaderReplica


class Watcher(Protocol):
    """Long polls, fetch streams, followers' slots. Called on the event loop; must neither wait nor raise.

    A watcher may unwatch itself, or others, while it is told.
    """

    def on_appended(self, replica: LeaderReplica, appended: Appended) -> None:
        """More is in the log, not yet synced: `appended.buffers` are its bytes as they stand there."""
        ...

    def on_readable(self, replica: LeaderReplica) -> None:
        """High watermark, last stable offset or log start have moved."""
        ...

    def on_ended(self, replica: LeaderReplica, error: StreamlogError) -> None:
        """The leadership is over; the error is what to tell clients. The watcher is forgotten already."""
        ...


class FollowerLinks(Protocol):
    """The streams on which this node follows others. Both are synchronous; the links' own tasks do the work."""

    def follow(self, replica: FollowerReplica) -> None: ...

    def unfollow(self, replica: FollowerReplica) -> None:
        """From now on no method of the replica may be called; one that is under way may end."""
        ...


class IsrChanges(Protocol):
    """Proposals on their way to the controller, one in flight for each partition.

    The answer comes back by `LeaderReplica.on_isr` or `LeaderReplica.on_refused`.
    """

    def proposed(self, replica: LeaderReplica, proposal: ProposedIsr) -> None: ...


class Controller(Protocol):
    """The active controller, as the replicas need it."""

    async def report_offline_replicas(self, partitions: Sequence[PartitionKey]) -> None:
        """These replicas of this node are on a disk that failed. StreamlogError where it could not be told."""
        ...


class ProducerIdSource(Protocol):
    async def allocate_producer_ids(self) -> tuple[ProducerId, int]:
        """A block for this node alone: first, count. StreamlogError."""
        ...
