"""gRPC's status codes, and the one table from errors to them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from streamlog.errors import cluster, groups, partitions, producers, records, requests, security, storage, topics
from streamlog.errors.base import StreamlogError


class Status(enum.Enum):
    """gRPC's status codes, by name and number, so that nothing below `api` imports grpc."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_ERRORS: Final[Mapping[Status, tuple[type[StreamlogError], ...]]] = {
    Status.CANCELLED: (requests.ClientClosedError,),
    Status.UNKNOWN: (
        requests.OutcomeUnknownError,
        requests.UnknownServerError,
    ),
    Status.INVALID_ARGUMENT: (
        records.CorruptMessageError,
        records.SerializationError,
        records.InvalidRecordError,
        records.InvalidTimestampError,
        records.MessageTooLargeError,
        records.UnsupportedCompressionError,
        requests.InvalidRequestError,
        topics.InvalidTopicError,
        topics.InvalidPartitionsError,
        topics.InvalidReplicationFactorError,
        topics.InvalidReplicaAssignmentError,
        topics.InvalidConfigError,
        groups.InvalidGroupIdError,
        groups.UnsupportedAssignorError,
        groups.InvalidRegularExpressionError,
        groups.OffsetMetadataTooLargeError,
    ),
    Status.DEADLINE_EXCEEDED: (requests.RequestTimedOutError,),
    Status.NOT_FOUND: (
        topics.UnknownTopicOrPartitionError,
        topics.UnknownTopicIdError,
        cluster.BrokerIdNotRegisteredError,
        cluster.VoterNotFoundError,
        security.ResourceNotFoundError,
        groups.GroupIdNotFoundError,
        groups.UnknownMemberIdError,
    ),
    Status.ALREADY_EXISTS: (
        topics.TopicAlreadyExistsError,
        cluster.DuplicateBrokerIdError,
        cluster.DuplicateVoterError,
        security.DuplicateResourceError,
        groups.UnreleasedInstanceIdError,
    ),
    Status.PERMISSION_DENIED: (
        security.TopicAuthorizationError,
        security.GroupAuthorizationError,
        security.TransactionalIdAuthorizationError,
        security.ClusterAuthorizationError,
    ),
    Status.UNAUTHENTICATED: (security.SaslAuthenticationError,),
    Status.RESOURCE_EXHAUSTED: (
        requests.RequestTooLargeError,
        requests.ThrottledError,
        groups.GroupMaxSizeReachedError,
    ),
    Status.FAILED_PRECONDITION: (
        storage.LogDirectoryLockedError,
        storage.InconsistentClusterError,
        requests.SchemaRegistryError,
        requests.UnsupportedVersionError,
        partitions.NotLeaderError,
        partitions.ElectionNotNeededError,
        partitions.NoReassignmentInProgressError,
        partitions.ReassignmentInProgressError,
        partitions.IneligibleReplicaError,
        producers.OutOfOrderSequenceError,
        producers.ProducerFencedError,
        producers.UnknownProducerIdError,
        producers.InvalidTransactionStateError,
        producers.TransactionCoordinatorFencedError,
        producers.TransactionAbortableError,
        topics.PolicyViolationError,
        topics.TopicDeletionDisabledError,
        cluster.FeatureUpdateFailedError,
        cluster.NotControllerError,
        cluster.VoterChangeInProgressError,
        groups.NoOffsetForPartitionError,
        groups.MaxPollIntervalError,
        groups.GroupNotEmptyError,
        groups.IllegalGenerationError,
        groups.GroupSubscribedToTopicError,
        groups.NotCoordinatorError,
    ),
    Status.ABORTED: (
        partitions.FencedLeaderEpochError,
        partitions.UnknownLeaderEpochError,
        partitions.InvalidUpdateVersionError,
        partitions.NewLeaderElectedError,
        producers.ConcurrentTransactionsError,
        cluster.StaleBrokerEpochError,
    ),
    Status.OUT_OF_RANGE: (partitions.OffsetOutOfRangeError,),
    Status.UNAVAILABLE: (
        storage.StorageError,
        requests.BrokerNotAvailableError,
        requests.NetworkError,
        requests.SslAuthenticationError,
        partitions.NotEnoughReplicasError,
        partitions.NotEnoughReplicasAfterAppendError,
        partitions.LeaderNotAvailableError,
        partitions.PreferredLeaderNotAvailableError,
        partitions.EligibleLeadersNotAvailableError,
        cluster.QuorumUnavailableError,
        groups.UnstableOffsetCommitError,
        groups.CoordinatorLoadInProgressError,
        groups.CoordinatorNotAvailableError,
    ),
    Status.DATA_LOSS: (
        records.CorruptBatchError,
        records.DeserializationError,
        storage.DamagedFileError,
        partitions.LogTruncatedError,
    ),
}
_STATUS: Final = {error: status for status, errors in _ERRORS.items() for error in errors}


def grpc_status(error: StreamlogError | type[StreamlogError]) -> Status:
    """The status of a call that ends with this error."""
    kind = error if isinstance(error, type) else type(error)
    return _STATUS[kind]
