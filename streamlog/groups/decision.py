"""What the coordinator's decisions share: their inputs and results.

    decide(command, group, context) -> GroupDecision(response, records, timers)

Pure, like the controller's: the shard writes the records to its partition of `__consumer_offsets`, replays them at
once, and responds when the high watermark has passed them. It also delays a response that was decided on unreplicated
records of other members: a member that gets a partition before its release is committed could overlap with the old
owner.

A decision's records are in the log in order, in one or several batches; each prefix is consistent, since a partition
is released before it is assigned.
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
    """The topics of the cluster in one metadata image."""

    def id_of(self, name: str) -> TopicId | None: ...
    def name_of(self, topic_id: TopicId) -> str | None: ...

    def partition_count(self, topic_id: TopicId) -> int:
        """Of a topic that `id_of` returned; as cheap as `id_of`, where `shape_of` looks at each partition."""
        ...

    def shape_of(self, topic_id: TopicId) -> TopicShape:
        """Of a topic that `id_of` returned."""
        ...

    def check_pattern(self, pattern: str) -> None:
        """InvalidRegularExpressionError for one that a member may not bring to its group."""
        ...

    def matching(self, pattern: str) -> Iterable[TopicId]:
        """The non-internal topics whose names the pattern fully matches.

        InvalidRegularExpressionError.
        """
        ...


class GroupSettings(Struct, frozen=True, kw_only=True):
    """The node's settings, named as in streamlog.config.settings.group_settings."""

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
    now_ms: int  # wall clock; stored in records, decides only the expiry of offsets
    live_epochs: frozenset[int] | None = None  # broker epochs of unfenced nodes; None: unknown

    def is_gone(self, serving_epoch: int) -> bool:
        """Whether the node that served the member's stream has failed or restarted."""
        return bool(serving_epoch) and self.live_epochs is not None and serving_epoch not in self.live_epochs


class MemberSessionTimer(Struct, frozen=True):
    """When due, the member is removed. One for each member; every heartbeat restarts it."""

    group: str
    member_id: str


class RevocationTimer(Struct, frozen=True):
    """When due, a member that has not revoked its partitions is removed. One for each member."""

    group: str
    member_id: str


Timer: TypeAlias = MemberSessionTimer | RevocationTimer


class SetMemberTimer(Struct, frozen=True):
    timer: Timer
    after_ms: int | None  # from now; replaces the timer that was set; None: stop it


class GroupDecision(Struct, Generic[R_co], frozen=True, kw_only=True):
    response: R_co
    records: tuple[GroupRecord, ...] = ()
    timers: tuple[SetMemberTimer, ...] = ()
