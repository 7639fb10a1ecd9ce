"""A partition: its leader and epoch, its offsets, its replicas and ISR, its reassignment."""

from __future__ import annotations

from streamlog.errors.base import StreamlogError


class NotLeaderError(StreamlogError):
    """Another node leads the partition. Details: `leader`, `address`, `leader_epoch`, where known."""

    code = "NOT_LEADER"
    retriable = True


class LeaderNotAvailableError(StreamlogError):
    """No replica of the partition can lead it now."""

    code = "LEADER_NOT_AVAILABLE"
    retriable = True


class FencedLeaderEpochError(StreamlogError):
    code = "FENCED_LEADER_EPOCH"
    retriable = True


class UnknownLeaderEpochError(StreamlogError):
    code = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class OffsetOutOfRangeError(StreamlogError):
    """Details: `log_start` (first readable offset) and `log_end` (one past the last)."""

    code = "OFFSET_OUT_OF_RANGE"


class LogTruncatedError(StreamlogError):
    """What a consumer has read was truncated from the log (KIP-320), and auto.offset.reset is none.

    Details: `topic`, `partition`, `offset` (the position), `log_end` (the first offset that may differ).
    """

    code = "LOG_TRUNCATED"


class NotEnoughReplicasError(StreamlogError):
    """acks=all, and the ISR is smaller than min.insync.replicas: nothing was appended."""

    code = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppendError(StreamlogError):
    """acks=all, and the ISR shrank below min.insync.replicas after the append: the records are in the log."""

    code = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class ElectionNotNeededError(StreamlogError):
    code = "ELECTION_NOT_NEEDED"


class PreferredLeaderNotAvailableError(StreamlogError):
    code = "PREFERRED_LEADER_NOT_AVAILABLE"
    retriable = True


class EligibleLeadersNotAvailableError(StreamlogError):
    code = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    retriable = True


class NoReassignmentInProgressError(StreamlogError):
    code = "NO_REASSIGNMENT_IN_PROGRESS"


class ReassignmentInProgressError(StreamlogError):
    code = "REASSIGNMENT_IN_PROGRESS"
    retriable = True


class InvalidUpdateVersionError(StreamlogError):
    """The partition epoch of an ISR change is stale: the partition has changed since."""

    code = "INVALID_UPDATE_VERSION"


class IneligibleReplicaError(StreamlogError):
    """The replica may not join the ISR: its node is fenced, stopping or restarted, or its disk has failed."""

    code = "INELIGIBLE_REPLICA"


class NewLeaderElectedError(StreamlogError):
    """The ISR change was executed, and completed a reassignment that gave the partition another leader."""

    code = "NEW_LEADER_ELECTED"
