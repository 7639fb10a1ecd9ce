"""The leader of a partition as a request names it, with what the client believes of it checked."""

from __future__ import annotations

from typing import Final

from streamlog.api.requests import PartitionRef
from streamlog.api.service import Call
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import InvalidTopicError, UnknownTopicIdError, UnknownTopicOrPartitionError
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_LEADER_EPOCH
from streamlog.services.common.collaborators import Partitions
from streamlog.services.common.topics import explained

# What is kept of a call's time to bring the answer back: an answer in time says more than a deadline that is over.
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
        """As `leader`; InvalidTopicError for the cluster's own topics, which clients do not write."""
        replica = self.leader(ref)
        if replica.partition.topic in INTERNAL_TOPICS:
            raise InvalidTopicError(
                f"topic {replica.partition.topic!r} is the cluster's own: clients do not write to it", field="topic"
            )
        return replica


def within(timeout_ms: int, call: Call) -> float:
    """Seconds: the time-out that a request asks for, but not beyond the call's own deadline."""
    remaining = call.remaining_s()
    if remaining is None:
        return timeout_ms / 1000
    return min(timeout_ms / 1000, remaining - min(_MARGIN_S, remaining * _MARGIN_SHARE))
