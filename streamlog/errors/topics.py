"""Topics and configs."""

from __future__ import annotations

from streamlog.errors.base import StreamlogError


class TopicAlreadyExistsError(StreamlogError):
    code = "TOPIC_ALREADY_EXISTS"


class UnknownTopicOrPartitionError(StreamlogError):
    """Retriable: the node's metadata may be behind."""

    code = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True


class UnknownTopicIdError(StreamlogError):
    code = "UNKNOWN_TOPIC_ID"
    retriable = True


class InvalidTopicError(StreamlogError):
    """An invalid topic name, or one that collides with another topic's. Details: `field`, `limit`."""

    code = "INVALID_TOPIC"


class InvalidPartitionsError(StreamlogError):
    """Details: `field`, `limit`."""

    code = "INVALID_PARTITIONS"


class InvalidReplicationFactorError(StreamlogError):
    """Details: `field`, `limit`."""

    code = "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignmentError(StreamlogError):
    code = "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfigError(StreamlogError):
    """Details: `field` (the config's name), `limit`."""

    code = "INVALID_CONFIG"


class PolicyViolationError(StreamlogError):
    """A config of the topic forbids what was requested. Details: `field`."""

    code = "POLICY_VIOLATION"


class TopicDeletionDisabledError(StreamlogError):
    code = "TOPIC_DELETION_DISABLED"
