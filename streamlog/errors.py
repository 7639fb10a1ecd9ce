"""Every error that a user, a client or another node can meet: one tree, and one table to gRPC status.

    StreamlogError
    ├── CorruptMessageError            bad CRC, cut off, unknown magic: names file and position where there is one
    ├── InvalidRecordError             well-formed bytes that say something impossible
    ├── InvalidTimestampError          a record's time is outside the topic's bounds
    ├── MessageTooLargeError
    ├── UnsupportedCompressionError
    ├── UnsupportedVersionError        a format or protocol version from elsewhere
    ├── InvalidRequestError            an argument out of its range; names the field and the limit
    ├── RequestTooLargeError
    ├── OffsetOutOfRangeError          with both ends
    ├── StorageError                   the disk failed; the log directory is offline
    ├── LogDirectoryLockedError
    ├── InconsistentClusterError       this data directory belongs to another cluster or node
    ├── DamagedFileError               a file that cannot be trusted: name, position, reason, how to go on
    ├── FencedLeaderEpochError / UnknownLeaderEpochError
    ├── OutOfOrderSequenceError / ProducerFencedError / UnknownProducerIdError
    ├── ConcurrentTransactionsError / InvalidTransactionStateError / TransactionCoordinatorFencedError
    ├── TransactionAbortableError      only on producers: this transaction cannot be committed, the next one can
    ├── TopicAlreadyExistsError / UnknownTopicOrPartitionError / UnknownTopicIdError
    ├── InvalidTopicError              a name that cannot be, or that another one is too like
    ├── InvalidPartitionsError / InvalidReplicationFactorError / InvalidReplicaAssignmentError / InvalidConfigError
    ├── TopicDeletionDisabledError
    ├── NotLeaderError / LeaderNotAvailableError
    ├── NotEnoughReplicasError / NotEnoughReplicasAfterAppendError    acks=all and min.insync.replicas
    ├── ElectionNotNeededError / PreferredLeaderNotAvailableError / EligibleLeadersNotAvailableError
    ├── NoReassignmentInProgressError / ReassignmentInProgressError
    ├── InvalidUpdateVersionError / IneligibleReplicaError / NewLeaderElectedError    an ISR change was refused
    ├── StaleBrokerEpochError / DuplicateBrokerIdError / BrokerIdNotRegisteredError
    ├── FeatureUpdateFailedError       a node of the cluster could not follow to that level
    ├── NotControllerError             names the controller where it is known
    ├── QuorumUnavailableError         no leader of the metadata quorum can be reached
    ├── DuplicateVoterError / VoterNotFoundError / VoterChangeInProgressError
    ├── OutcomeUnknownError            the command may or may not have been carried out
    ├── ThrottledError                 a bounded queue or buffer is full
    ├── InvalidGroupIdError / GroupIdNotFoundError / GroupNotEmptyError / GroupMaxSizeReachedError
    ├── UnknownMemberIdError / IllegalGenerationError / UnreleasedInstanceIdError    of a group's member
    ├── UnsupportedAssignorError / InvalidRegularExpressionError
    ├── OffsetMetadataTooLargeError / GroupSubscribedToTopicError / UnstableOffsetCommitError
    ├── NotCoordinatorError            names the coordinator where it is known
    ├── CoordinatorLoadInProgressError / CoordinatorNotAvailableError
    ├── BrokerNotAvailableError        a node that a call concerns is not alive; on clients: no node could be reached
    ├── NetworkError / RequestTimedOutError    only on clients: no answer, so the outcome is unknown
    ├── CorruptBatchError              a stored batch that cannot be decoded: names it, and the offset behind it
    ├── LogTruncatedError              only on consumers: what was read is no longer in the log
    ├── NoOffsetForPartitionError / MaxPollIntervalError    only on consumers of a group
    ├── ClientClosedError              only on clients: they were closed before, or meanwhile
    └── UnknownServerError             only on clients: a code that a newer node knows and this release does not

    InvariantError                     ours alone, never answered to anybody: the node stops

`code` is what goes over the wire, by name, and is Kafka's where Kafka has one. `retriable` says that the same
request may succeed later. InvariantError stands outside the tree on purpose: a handler that catches
StreamlogError must not swallow it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import ClassVar, Self


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


class InvariantError(Exception):
    """Something that cannot be has happened. The node stops: a wrong log is worse than a stopped one."""


class StreamlogError(Exception):
    """Base of all errors with a code. `details` are the machine-readable facts (field, limit, leader ...)."""

    code: ClassVar[str] = ""
    status: ClassVar[Status] = Status.UNKNOWN
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, object] = details

    @classmethod
    def restored(cls, message: str, details: Mapping[str, object]) -> Self:
        """The error that another process raised, from what came over the wire."""
        error = cls.__new__(cls)
        StreamlogError.__init__(error, message)
        error.details = details
        return error

    def __str__(self) -> str:
        return self.message

    def _text(self, name: str) -> str | None:
        value = self.details.get(name)
        return value if isinstance(value, str) else None

    def _number(self, name: str) -> int | None:
        value = self.details.get(name)
        return value if isinstance(value, int) else None


class CorruptMessageError(StreamlogError):
    """A record batch or message that does not match its checksum or its own lengths.

    `path` and `position` (bytes from the start of the file) are set by whoever knows them.
    """

    code = "CORRUPT_MESSAGE"
    status = Status.INVALID_ARGUMENT
    retriable = True

    def __init__(self, reason: str, *, path: str | None = None, position: int | None = None, **details: object) -> None:
        where = "" if path is None else f"{path}: "
        at = "" if position is None else f"position {position}: "
        super().__init__(f"{where}{at}{reason}", reason=reason, path=path, position=position, **details)

    @property
    def reason(self) -> str:
        return self._text("reason") or self.message

    @property
    def path(self) -> str | None:
        return self._text("path")

    @property
    def position(self) -> int | None:
        return self._number("position")


class InvalidRecordError(StreamlogError):
    code = "INVALID_RECORD"
    status = Status.INVALID_ARGUMENT


class CorruptBatchError(StreamlogError):
    """A stored batch that no reader can decode. Reading it again is of no use: go on at `next_offset`.

    Details: `topic`, `partition`, `offset` (of the batch), `next_offset` (behind it; missing where it is not known),
    `reason`.
    """

    code = "CORRUPT_BATCH"
    status = Status.DATA_LOSS

    @property
    def topic(self) -> str:
        return self._text("topic") or ""

    @property
    def partition(self) -> int:
        return self._number("partition") or 0

    @property
    def offset(self) -> int:
        return self._number("offset") or 0

    @property
    def next_offset(self) -> int | None:
        return self._number("next_offset")

    @property
    def reason(self) -> str:
        return self._text("reason") or self.message


class InvalidTimestampError(StreamlogError):
    """Details: `field` (the setting), `limit` (ms)."""

    code = "INVALID_TIMESTAMP"
    status = Status.INVALID_ARGUMENT


class MessageTooLargeError(StreamlogError):
    code = "MESSAGE_TOO_LARGE"
    status = Status.INVALID_ARGUMENT


class UnsupportedCompressionError(StreamlogError):
    code = "UNSUPPORTED_COMPRESSION_TYPE"
    status = Status.INVALID_ARGUMENT


class UnsupportedVersionError(StreamlogError):
    code = "UNSUPPORTED_VERSION"
    status = Status.FAILED_PRECONDITION


class InvalidRequestError(StreamlogError):
    """An argument outside its range. Details: `field`, `limit`."""

    code = "INVALID_REQUEST"
    status = Status.INVALID_ARGUMENT


class RequestTooLargeError(StreamlogError):
    """One request message is larger than its method takes. Details: `limit` (bytes)."""

    code = "REQUEST_TOO_LARGE"
    status = Status.RESOURCE_EXHAUSTED


class OffsetOutOfRangeError(StreamlogError):
    """Details: `log_start` (first readable offset) and `log_end` (one past the last)."""

    code = "OFFSET_OUT_OF_RANGE"
    status = Status.OUT_OF_RANGE


class StorageError(StreamlogError):
    """A write or sync failed. Final for the log directory: it is offline until the node restarts."""

    code = "STORAGE_ERROR"
    status = Status.UNAVAILABLE
    retriable = True


class LogDirectoryLockedError(StreamlogError):
    code = "LOG_DIRECTORY_LOCKED"
    status = Status.FAILED_PRECONDITION


class InconsistentClusterError(StreamlogError):
    code = "INCONSISTENT_CLUSTER_ID"
    status = Status.FAILED_PRECONDITION


class DamagedFileError(StreamlogError):
    """A file whose content cannot be trusted. Says which, where, why, and what to do about it."""

    code = "DAMAGED_FILE"
    status = Status.DATA_LOSS

    def __init__(self, path: str, position: int, reason: str, remedy: str = "") -> None:
        tail = f"; {remedy}" if remedy else ""
        super().__init__(f"{path}: position {position}: {reason}{tail}", path=path, position=position, reason=reason)

    @property
    def path(self) -> str:
        return self._text("path") or ""

    @property
    def position(self) -> int:
        return self._number("position") or 0

    @property
    def reason(self) -> str:
        return self._text("reason") or self.message


class FencedLeaderEpochError(StreamlogError):
    code = "FENCED_LEADER_EPOCH"
    status = Status.ABORTED
    retriable = True


class UnknownLeaderEpochError(StreamlogError):
    code = "UNKNOWN_LEADER_EPOCH"
    status = Status.ABORTED
    retriable = True


class OutOfOrderSequenceError(StreamlogError):
    code = "OUT_OF_ORDER_SEQUENCE"
    status = Status.FAILED_PRECONDITION


class ProducerFencedError(StreamlogError):
    code = "PRODUCER_FENCED"
    status = Status.FAILED_PRECONDITION


class UnknownProducerIdError(StreamlogError):
    code = "UNKNOWN_PRODUCER_ID"
    status = Status.FAILED_PRECONDITION


class ConcurrentTransactionsError(StreamlogError):
    """The end of the transaction of before is decided, and not yet known everywhere."""

    code = "CONCURRENT_TRANSACTIONS"
    status = Status.ABORTED
    retriable = True


class InvalidTransactionStateError(StreamlogError):
    """What was asked cannot be in the state that the transaction is in."""

    code = "INVALID_TXN_STATE"
    status = Status.FAILED_PRECONDITION


class TransactionCoordinatorFencedError(StreamlogError):
    """A later leader of the coordinator's partition has written a marker of this producer already."""

    code = "TRANSACTION_COORDINATOR_FENCED"
    status = Status.FAILED_PRECONDITION


class TransactionAbortableError(StreamlogError):
    """Something of the transaction was not written, so it cannot be committed: abort it, and begin another one."""

    code = "TRANSACTION_ABORTABLE"
    status = Status.FAILED_PRECONDITION


class TopicAlreadyExistsError(StreamlogError):
    code = "TOPIC_ALREADY_EXISTS"
    status = Status.ALREADY_EXISTS


class UnknownTopicOrPartitionError(StreamlogError):
    """Retriable: the node that answered may not have heard of it yet."""

    code = "UNKNOWN_TOPIC_OR_PARTITION"
    status = Status.NOT_FOUND
    retriable = True


class UnknownTopicIdError(StreamlogError):
    code = "UNKNOWN_TOPIC_ID"
    status = Status.NOT_FOUND
    retriable = True


class InvalidTopicError(StreamlogError):
    """A topic name that is refused. Details: `field`, `limit`."""

    code = "INVALID_TOPIC"
    status = Status.INVALID_ARGUMENT


class InvalidPartitionsError(StreamlogError):
    """Details: `field`, `limit`."""

    code = "INVALID_PARTITIONS"
    status = Status.INVALID_ARGUMENT


class InvalidReplicationFactorError(StreamlogError):
    """Details: `field`, `limit`."""

    code = "INVALID_REPLICATION_FACTOR"
    status = Status.INVALID_ARGUMENT


class InvalidReplicaAssignmentError(StreamlogError):
    code = "INVALID_REPLICA_ASSIGNMENT"
    status = Status.INVALID_ARGUMENT


class InvalidConfigError(StreamlogError):
    """Details: `field` (the config's name), `limit`."""

    code = "INVALID_CONFIG"
    status = Status.INVALID_ARGUMENT


class TopicDeletionDisabledError(StreamlogError):
    code = "TOPIC_DELETION_DISABLED"
    status = Status.FAILED_PRECONDITION


class NotLeaderError(StreamlogError):
    """Another node leads the partition. Details: `leader`, `address`, `leader_epoch`, where they are known."""

    code = "NOT_LEADER"
    status = Status.FAILED_PRECONDITION
    retriable = True


class NotEnoughReplicasError(StreamlogError):
    """acks=all, and fewer replicas are in sync than min.insync.replicas asks for: nothing was appended."""

    code = "NOT_ENOUGH_REPLICAS"
    status = Status.UNAVAILABLE
    retriable = True


class NotEnoughReplicasAfterAppendError(StreamlogError):
    """acks=all, and the ISR shrank below min.insync.replicas after the append: the records are in the log."""

    code = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    status = Status.UNAVAILABLE
    retriable = True


class LeaderNotAvailableError(StreamlogError):
    """No replica of the partition may lead it now."""

    code = "LEADER_NOT_AVAILABLE"
    status = Status.UNAVAILABLE
    retriable = True


class ElectionNotNeededError(StreamlogError):
    code = "ELECTION_NOT_NEEDED"
    status = Status.FAILED_PRECONDITION


class PreferredLeaderNotAvailableError(StreamlogError):
    code = "PREFERRED_LEADER_NOT_AVAILABLE"
    status = Status.UNAVAILABLE
    retriable = True


class EligibleLeadersNotAvailableError(StreamlogError):
    code = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    status = Status.UNAVAILABLE
    retriable = True


class NoReassignmentInProgressError(StreamlogError):
    code = "NO_REASSIGNMENT_IN_PROGRESS"
    status = Status.FAILED_PRECONDITION


class ReassignmentInProgressError(StreamlogError):
    code = "REASSIGNMENT_IN_PROGRESS"
    status = Status.FAILED_PRECONDITION
    retriable = True


class InvalidUpdateVersionError(StreamlogError):
    """The partition epoch of an ISR change is not the current one: the partition has changed meanwhile."""

    code = "INVALID_UPDATE_VERSION"
    status = Status.ABORTED


class IneligibleReplicaError(StreamlogError):
    """A replica that may not be in sync: fenced, stopping, restarted since, or with its disk gone."""

    code = "INELIGIBLE_REPLICA"
    status = Status.FAILED_PRECONDITION


class NewLeaderElectedError(StreamlogError):
    """The ISR change was carried out, and completed a reassignment that gave the partition another leader."""

    code = "NEW_LEADER_ELECTED"
    status = Status.ABORTED


class StaleBrokerEpochError(StreamlogError):
    """The node has registered again since, or another one has under its id."""

    code = "STALE_BROKER_EPOCH"
    status = Status.ABORTED


class DuplicateBrokerIdError(StreamlogError):
    """A live node has this id. Retriable: the session of one that died without a word lapses."""

    code = "DUPLICATE_BROKER_ID"
    status = Status.ALREADY_EXISTS
    retriable = True


class BrokerIdNotRegisteredError(StreamlogError):
    code = "BROKER_ID_NOT_REGISTERED"
    status = Status.NOT_FOUND


class FeatureUpdateFailedError(StreamlogError):
    """Details: `field`, `limit` (the level that all nodes support)."""

    code = "FEATURE_UPDATE_FAILED"
    status = Status.FAILED_PRECONDITION


class NotControllerError(StreamlogError):
    """Not the leader of the metadata quorum. Details: `leader` where it is known."""

    code = "NOT_CONTROLLER"
    status = Status.FAILED_PRECONDITION
    retriable = True


class QuorumUnavailableError(StreamlogError):
    code = "QUORUM_UNAVAILABLE"
    status = Status.UNAVAILABLE
    retriable = True


class DuplicateVoterError(StreamlogError):
    """The node votes already (KIP-853). Details: `voter`."""

    code = "DUPLICATE_VOTER"
    status = Status.ALREADY_EXISTS


class VoterNotFoundError(StreamlogError):
    """The node does not vote (KIP-853). Details: `voter`."""

    code = "VOTER_NOT_FOUND"
    status = Status.NOT_FOUND


class VoterChangeInProgressError(StreamlogError):
    """Voters are changed one at a time, and one change is not over."""

    code = "VOTER_CHANGE_IN_PROGRESS"
    status = Status.FAILED_PRECONDITION
    retriable = True


class OutcomeUnknownError(StreamlogError):
    """The command may or may not have been carried out; ask again under the same id."""

    code = "OUTCOME_UNKNOWN"
    status = Status.UNKNOWN
    retriable = True


class ThrottledError(StreamlogError):
    """A bounded queue or buffer is full. Details: `limit`, with its unit in the message."""

    code = "THROTTLED"
    status = Status.RESOURCE_EXHAUSTED
    retriable = True


class BrokerNotAvailableError(StreamlogError):
    """A node that a call was to be passed on to is not alive, or did not answer (details: `node`); or a client could
    reach none of the nodes that it knows of.
    """

    code = "BROKER_NOT_AVAILABLE"
    status = Status.UNAVAILABLE
    retriable = True


class NetworkError(StreamlogError):
    """No connection, or it broke. Made on the calling side; the request may have been carried out."""

    code = "NETWORK_EXCEPTION"
    status = Status.UNAVAILABLE
    retriable = True


class RequestTimedOutError(StreamlogError):
    """Time ran out before the answer came; says for what. Made on the calling side; the request may have been carried
    out.
    """

    code = "REQUEST_TIMED_OUT"
    status = Status.DEADLINE_EXCEEDED
    retriable = True


class LogTruncatedError(StreamlogError):
    """A consumer has read what is no longer in the log (KIP-320), and no auto.offset.reset says how to go on.

    Details: `topic`, `partition`, `offset` (the position), `log_end` (the first offset that may differ).
    """

    code = "LOG_TRUNCATED"
    status = Status.DATA_LOSS


class NoOffsetForPartitionError(StreamlogError):
    """A group has committed nothing where one of its members begins, and auto.offset.reset is none.

    Details: `group`, `topic`, `partition`.
    """

    code = "NO_OFFSET_FOR_PARTITION"
    status = Status.FAILED_PRECONDITION


class MaxPollIntervalError(StreamlogError):
    """A consumer put itself out of its group: it asked for nothing for too long. Details: `field`, `limit` (ms)."""

    code = "MAX_POLL_INTERVAL_EXCEEDED"
    status = Status.FAILED_PRECONDITION


class ClientClosedError(StreamlogError):
    """A producer, consumer or admin client was used after its end, or ended before this was done."""

    code = "CLIENT_CLOSED"
    status = Status.CANCELLED


class InvalidGroupIdError(StreamlogError):
    """Details: `field`, `limit` (characters)."""

    code = "INVALID_GROUP_ID"
    status = Status.INVALID_ARGUMENT


class GroupIdNotFoundError(StreamlogError):
    """The group has neither members nor offsets. Details: `group`."""

    code = "GROUP_ID_NOT_FOUND"
    status = Status.NOT_FOUND


class GroupNotEmptyError(StreamlogError):
    """The group has members, who alone may do this. Details: `group`."""

    code = "NON_EMPTY_GROUP"
    status = Status.FAILED_PRECONDITION


class GroupMaxSizeReachedError(StreamlogError):
    """Details: `field`, `limit` (members)."""

    code = "GROUP_MAX_SIZE_REACHED"
    status = Status.RESOURCE_EXHAUSTED


class UnknownMemberIdError(StreamlogError):
    """The coordinator knows no member of this id, or no more: give up all partitions and join anew."""

    code = "UNKNOWN_MEMBER_ID"
    status = Status.NOT_FOUND


class IllegalGenerationError(StreamlogError):
    """The member's epoch is over: it has been put out. Details: `field`, `limit` (the epoch that holds)."""

    code = "ILLEGAL_GENERATION"
    status = Status.FAILED_PRECONDITION


class UnreleasedInstanceIdError(StreamlogError):
    """Another member has this `group.instance.id` and is alive. Retriable: it may leave, or its session end."""

    code = "UNRELEASED_INSTANCE_ID"
    status = Status.ALREADY_EXISTS
    retriable = True


class UnsupportedAssignorError(StreamlogError):
    """Details: `field`, `limit` (those that are supported)."""

    code = "UNSUPPORTED_ASSIGNOR"
    status = Status.INVALID_ARGUMENT


class InvalidRegularExpressionError(StreamlogError):
    """Details: `field`."""

    code = "INVALID_REGULAR_EXPRESSION"
    status = Status.INVALID_ARGUMENT


class OffsetMetadataTooLargeError(StreamlogError):
    """Details: `field`, `limit` (bytes)."""

    code = "OFFSET_METADATA_TOO_LARGE"
    status = Status.INVALID_ARGUMENT


class GroupSubscribedToTopicError(StreamlogError):
    """A member of the group reads the topic, so its offsets cannot be deleted. Details: `topic`."""

    code = "GROUP_SUBSCRIBED_TO_TOPIC"
    status = Status.FAILED_PRECONDITION


class UnstableOffsetCommitError(StreamlogError):
    """A transaction that has not ended commits this offset."""

    code = "UNSTABLE_OFFSET_COMMIT"
    status = Status.UNAVAILABLE
    retriable = True


class NotCoordinatorError(StreamlogError):
    """Another node coordinates this group. Details: `leader` and `address` where they are known."""

    code = "NOT_COORDINATOR"
    status = Status.FAILED_PRECONDITION
    retriable = True


class CoordinatorLoadInProgressError(StreamlogError):
    """The coordinator has changed, and the new one still reads its log."""

    code = "COORDINATOR_LOAD_IN_PROGRESS"
    status = Status.UNAVAILABLE
    retriable = True


class CoordinatorNotAvailableError(StreamlogError):
    """No node can coordinate the group now."""

    code = "COORDINATOR_NOT_AVAILABLE"
    status = Status.UNAVAILABLE
    retriable = True


class UnknownServerError(StreamlogError):
    """What a node said in a code of a newer release. Details: `code`, `retriable` as the node had them."""

    code = "UNKNOWN_SERVER_ERROR"


def all_errors() -> Mapping[str, type[StreamlogError]]:
    """Code -> class, for every class of the tree: the table from the wire back to an exception."""
    found: dict[str, type[StreamlogError]] = {}
    pending = list(StreamlogError.__subclasses__())
    while pending:
        error = pending.pop()
        if error.code in found:
            raise InvariantError(f"two errors share the code {error.code}")
        found[error.code] = error
        pending.extend(error.__subclasses__())
    return found


def forget_frames(error: BaseException) -> None:
    """Of an error that has become an answer, and of all that led to it.

    A traceback holds the frames that it came through with all their variables, and where one of these is the error
    itself, or a group that holds it, that is a cycle: the request and whatever was read for it would stay in memory
    until the collector comes by. (asyncio.TaskGroup makes one of every cancellation.)
    """
    left, seen = [error], set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        left += [other for other in (one.__cause__, one.__context__) if other is not None]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
