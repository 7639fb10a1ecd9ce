"""What the coordinator's decisions have in common: what they may know, and what they give.

    decide(command, group, context) -> GroupDecision(response, records, timers)

Pure, like the controller's (streamlog.metadata.decision): the shell writes the records to the partition of
`__consumer_offsets`, replays them at once, and answers when the high watermark has passed them. It also holds back an
answer that was decided on records of others which are not replicated yet: a member that is told of a partition
before its release is safe could meet the one who released it.

A decision's records stand in the log in their order, in one batch or several; each beginning of them is sound, since
who gives up a partition comes before who gets it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from streamlog.groups.assignors.problem import TopicShape
from streamlog.groups.records import GroupRecord
from streamlog.model import TopicId

R_co = TypeVar("R_co", covariant=True)


class Topics(Protocol):
    """The topics of the cluster, as of one moment."""

    def id_of(self, name: str) -> TopicId | None: ...
    def name_of(self, topic_id: TopicId) -> str | None: ...

    def shape_of(self, topic_id: TopicId) -> TopicShape:
        """Of a topic that `id_of` has named."""
        ...

    def matching(self, pattern: str) -> Iterable[str]:
        """Names, ascending, of all but internal topics that the pattern matches as a whole.

        InvalidRegularExpressionError.
        """
        ...


class GroupSettings(Struct, frozen=True, kw_only=True):
    """Of the node, by the names in streamlog.config.group_settings."""

    assignors: tuple[str, ...]  # the first is the default
    heartbeat_interval_ms: int
    session_timeout_ms: int
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    members_max: int
    metadata_bytes_max: int
    offsets_retention_ms: int


class GroupContext(Struct, frozen=True, kw_only=True):
    settings: GroupSettings
    topics: Topics
    now_ms: int  # wall clock: goes into records, decides on nothing but the expiry of offsets
    live_epochs: frozenset[int] | None = None  # broker epochs of the nodes that are not fenced; None: not known

    def is_gone(self, serving_epoch: int) -> bool:
        """The node that was a member for a client's stream is dead, or has started again."""
        return bool(serving_epoch) and self.live_epochs is not None and serving_epoch not in self.live_epochs


class MemberSessionTimer(Struct, frozen=True):
    """A member that has not been heard of when it is due is put out. One a member; set anew by every heartbeat."""

    group: str
    member_id: str


class RevocationTimer(Struct, frozen=True):
    """A member that has not given up by then what it must is put out. One a member."""

    group: str
    member_id: str


Timer: TypeAlias = MemberSessionTimer | RevocationTimer


class SetMemberTimer(Struct, frozen=True):
    timer: Timer
    after_ms: int | None  # from now on, in the place of what was set; None: stop it


class GroupDecision(Struct, Generic[R_co], frozen=True, kw_only=True):
    response: R_co
    records: tuple[GroupRecord, ...] = ()
    timers: tuple[SetMemberTimer, ...] = ()
