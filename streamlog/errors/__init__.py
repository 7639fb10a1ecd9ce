"""Every error that a user, a client or another node can meet: one tree, by subject, and one table to gRPC status.

    StreamlogError                     base: code, retriable, details
    ├── requests     InvalidRequestError (names field and limit), RequestTooLargeError, UnsupportedVersionError,
    │                ThrottledError (a bounded queue or buffer is full),
    │                OutcomeUnknownError (the command may or may not have been executed),
    │                BrokerNotAvailableError, NetworkError, RequestTimedOutError, ClientClosedError,
    │                UnknownServerError (a code of a newer release)
    ├── records      CorruptMessageError, CorruptBatchError, InvalidRecordError, InvalidTimestampError,
    │                MessageTooLargeError, UnsupportedCompressionError
    ├── storage      StorageError (the disk failed, the log directory is offline), LogDirectoryLockedError,
    │                InconsistentClusterError (another cluster's or node's directory), DamagedFileError
    ├── topics       names, partition counts, replication factors, assignments, configs, deletion
    ├── partitions   leadership and leader epochs, offsets, acks=all and min.insync.replicas, elections, reassignments,
    │                refused ISR changes
    ├── producers    sequences, fencing, transactions
    ├── groups       members and their epochs, offsets, subscriptions, coordinators
    └── cluster      registration of nodes, the metadata quorum and its voters, features

    InvariantError                     a broken invariant, never sent to a client: the node stops

`code` is what goes over the wire, by name, and is Kafka's where Kafka has one. `retriable` says that the same
request may succeed later. `grpc_status` has the table to gRPC's status codes. InvariantError stands outside the tree
on purpose: a handler that catches StreamlogError must not swallow it.
"""

from streamlog.errors.base import (
    InvariantError,
    StreamlogError,
    all_errors,
)
from streamlog.errors.cluster import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerIdError,
    DuplicateVoterError,
    FeatureUpdateFailedError,
    NotControllerError,
    QuorumUnavailableError,
    StaleBrokerEpochError,
    VoterChangeInProgressError,
    VoterNotFoundError,
)
from streamlog.errors.groups import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    GroupNotEmptyError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidRegularExpressionError,
    MaxPollIntervalError,
    NoOffsetForPartitionError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnstableOffsetCommitError,
    UnsupportedAssignorError,
)
from streamlog.errors.grpc_status import (
    Status,
    grpc_status,
)
from streamlog.errors.partitions import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    LeaderNotAvailableError,
    LogTruncatedError,
    NewLeaderElectedError,
    NoReassignmentInProgressError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    PreferredLeaderNotAvailableError,
    ReassignmentInProgressError,
    UnknownLeaderEpochError,
)
from streamlog.errors.producers import (
    ConcurrentTransactionsError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionCoordinatorFencedError,
    UnknownProducerIdError,
)
from streamlog.errors.records import (
    CorruptBatchError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionError,
)
from streamlog.errors.requests import (
    BrokerNotAvailableError,
    ClientClosedError,
    InvalidRequestError,
    NetworkError,
    OutcomeUnknownError,
    RequestTimedOutError,
    RequestTooLargeError,
    ThrottledError,
    UnknownServerError,
    UnsupportedVersionError,
)
from streamlog.errors.storage import (
    DamagedFileError,
    InconsistentClusterError,
    LogDirectoryLockedError,
    StorageError,
)
from streamlog.errors.topics import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.errors.tracebacks import clear_tracebacks, first_error

__all__ = [
    "BrokerIdNotRegisteredError",
    "BrokerNotAvailableError",
    "ClientClosedError",
    "ConcurrentTransactionsError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptBatchError",
    "CorruptMessageError",
    "DamagedFileError",
    "DuplicateBrokerIdError",
    "DuplicateVoterError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FeatureUpdateFailedError",
    "FencedLeaderEpochError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupNotEmptyError",
    "GroupSubscribedToTopicError",
    "IllegalGenerationError",
    "InconsistentClusterError",
    "IneligibleReplicaError",
    "InvalidConfigError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidRecordError",
    "InvalidRegularExpressionError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "InvalidUpdateVersionError",
    "InvariantError",
    "LeaderNotAvailableError",
    "LogDirectoryLockedError",
    "LogTruncatedError",
    "MaxPollIntervalError",
    "MessageTooLargeError",
    "NetworkError",
    "NewLeaderElectedError",
    "NoOffsetForPartitionError",
    "NoReassignmentInProgressError",
    "NotControllerError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OutcomeUnknownError",
    "PreferredLeaderNotAvailableError",
    "ProducerFencedError",
    "QuorumUnavailableError",
    "ReassignmentInProgressError",
    "RequestTimedOutError",
    "RequestTooLargeError",
    "StaleBrokerEpochError",
    "Status",
    "StorageError",
    "StreamlogError",
    "ThrottledError",
    "TopicAlreadyExistsError",
    "TopicDeletionDisabledError",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnstableOffsetCommitError",
    "UnsupportedAssignorError",
    "UnsupportedCompressionError",
    "UnsupportedVersionError",
    "VoterChangeInProgressError",
    "VoterNotFoundError",
    "all_errors",
    "clear_tracebacks",
    "first_error",
    "grpc_status",
]
