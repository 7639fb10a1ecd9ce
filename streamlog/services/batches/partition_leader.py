"""The leader of a partition as a request names it, with the client's leader epoch checked."""

from __future__ import annotations

from typing import Final

from streamlog.api.requests import PartitionRef
from streamlog.api.service import Call
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import InvalidTopicError, UnknownTopicIdError, UnknownTopicOrPartitionError
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_LEADER_EPOCH
from streamlog.ports import CallGuard
from streamlog.services.common.collaborators import Partitions
from streamlog.services.common.topics import explained

# Reserved of a call's deadline for the way back: a response says more than DEADLINE_EXCEEDED.
_MARGIN_S: Final = 0.1
_MARGIN_SHARE: Final = 0.1


class PartitionLeaders:
    def __init__(self, partitions: Partitions, view: MetadataView) -> None:
        self._partitions = partitions
        self._view = view

    def leader(self, ref: PartitionRef) -> LeaderReplica:
        """As `Partitions.leader`; FencedLeaderEpochError, UnknownLeaderEpochError."""
        try:
            replica = self._partitions.leader(ref.topic, ref.topic_id, ref.partition)
        except (UnknownTopicOrPartitionError, UnknownTopicIdError) as error:
            raise explained(error, self._view.image, ref) from None
        if ref.leader_epoch != NO_LEADER_EPOCH:
            replica.check_epoch(ref.leader_epoch)
        return replica

    def writable(self, ref: PartitionRef) -> LeaderReplica:
        """As `leader`; InvalidTopicError for internal topics, which clients must not write."""
        replica = self.leader(ref)
        if replica.partition.topic in INTERNAL_TOPICS:
            raise InvalidTopicError(
                f"topic {replica.partition.topic!r} is internal: only the cluster writes to it", field="topic"
            )
        return replica

    def guarded(self, guard: CallGuard, operation: str) -> PartitionLeaders:
        """The same for a caller that may not do everything: of topics on which it may do this."""
        return _GuardedLeaders(self._partitions, self._view, guard, operation)


class _GuardedLeaders(PartitionLeaders):
    def __init__(self, partitions: Partitions, view: MetadataView, guard: CallGuard, operation: str) -> None:
        super().__init__(partitions, view)
        self._guard = guard
        self._operation = operation

    def leader(self, ref: PartitionRef) -> LeaderReplica:
        """TopicAuthorizationError too, whether the topic exists or not."""
        refusal = self._guard.topic_refusal(self._operation, ref.topic, ref.topic_id)
        if refusal is not None:
            if ref.topic and self._operation == "DESCRIBE":
                self._guard.named_refused(ref.topic)
            raise refusal
        return super().leader(ref)


def within(timeout_ms: int, call: Call) -> float:
    """The timeout of a request in seconds, at most up to the call's deadline."""
    remaining = call.remaining_s()
    if remaining is None:
        return timeout_ms / 1000
    return min(timeout_ms / 1000, remaining - min(_MARGIN_S, remaining * _MARGIN_SHARE))
