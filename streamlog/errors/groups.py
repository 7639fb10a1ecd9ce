"""Consumer groups: members, offsets, coordinators."""

from __future__ import annotations

import shlex
from typing import Self

from streamlog.errors.base import StreamlogError


class InvalidGroupIdError(StreamlogError):
    """Details: `field`, `limit` (characters)."""

    code = "INVALID_GROUP_ID"


class GroupIdNotFoundError(StreamlogError):
    """The group has neither members nor offsets. Details: `group`."""

    code = "GROUP_ID_NOT_FOUND"


class GroupNotEmptyError(StreamlogError):
    """The group has members, and only they may do this. Details: `group`."""

    code = "NON_EMPTY_GROUP"

    @classmethod
    def with_members(cls, group: str, count: int) -> Self:
        """They are in the way of a change."""
        members = "1 active member; stop it first" if count == 1 else f"{count} active members; stop them first"
        shown = f"streamlogctl group describe {shlex.quote(group)} --members"
        return cls(f"Group {group!r} has {members} (list them: {shown})", group=group)


class GroupMaxSizeReachedError(StreamlogError):
    """Details: `field`, `limit` (members)."""

    code = "GROUP_MAX_SIZE_REACHED"


class UnknownMemberIdError(StreamlogError):
    """The coordinator has no member with this id (any more): give up all partitions and join again."""

    code = "UNKNOWN_MEMBER_ID"


class IllegalGenerationError(StreamlogError):
    """The member epoch is stale: the member was removed. Details: `field`, `limit` (the current epoch)."""

    code = "ILLEGAL_GENERATION"


class UnreleasedInstanceIdError(StreamlogError):
    """Another active member has this `group.instance.id`. Retriable: it may leave, or its session expire."""

    code = "UNRELEASED_INSTANCE_ID"
    retriable = True


class UnsupportedAssignorError(StreamlogError):
    """Details: `field`, `limit` (the supported ones)."""

    code = "UNSUPPORTED_ASSIGNOR"


class InvalidRegularExpressionError(StreamlogError):
    """Details: `field`."""

    code = "INVALID_REGULAR_EXPRESSION"


class OffsetMetadataTooLargeError(StreamlogError):
    """Details: `field`, `limit` (bytes)."""

    code = "OFFSET_METADATA_TOO_LARGE"


class GroupSubscribedToTopicError(StreamlogError):
    """A member of the group reads the topic, so its offsets cannot be deleted. Details: `topic`."""

    code = "GROUP_SUBSCRIBED_TO_TOPIC"

    @classmethod
    def of(cls, group: str, topic: str) -> Self:
        shown = f"streamlogctl group describe {shlex.quote(group)} --members"
        return cls(
            f"Group {group!r} is subscribed to topic {topic!r}, so its offsets there are kept; stop its members first "
            f"(list them: {shown})",
            topic=topic,
        )


class UnstableOffsetCommitError(StreamlogError):
    """The offset is part of a transaction that has not ended."""

    code = "UNSTABLE_OFFSET_COMMIT"
    retriable = True


class NoOffsetForPartitionError(StreamlogError):
    """The group has no committed offset for a partition that a member starts to read, and auto.offset.reset is none.

    Details: `group`, `topic`, `partition`.
    """

    code = "NO_OFFSET_FOR_PARTITION"


class MaxPollIntervalError(StreamlogError):
    """A consumer left its group because it did not poll for too long. Details: `field`, `limit` (ms)."""

    code = "MAX_POLL_INTERVAL_EXCEEDED"


class NotCoordinatorError(StreamlogError):
    """Another node coordinates this group. Details: `leader` and `address` where known."""

    code = "NOT_COORDINATOR"
    retriable = True


class CoordinatorLoadInProgressError(StreamlogError):
    """The coordinator has changed, and the new one is still loading its log."""

    code = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class CoordinatorNotAvailableError(StreamlogError):
    """No node can coordinate the group now."""

    code = "COORDINATOR_NOT_AVAILABLE"
    retriable = True
