"""What the group coordinator stores, as keyed records of `__consumer_offsets`; the newest record of a key is valid.

    key                value                                                     one for each
    GroupKey           the group epoch, and since when the group is empty        group that has or had members
    MemberKey          the member's identity and subscription                    member
    TargetKey          the group epoch that the target was computed for          group with members
    TargetMemberKey    the member's target assignment                            member
    CurrentKey         what it owns, in which epoch, and what it has to revoke   member
    OffsetKey          the next offset to read                                   partition

A value of None deletes the key (a tombstone). These are KIP-848's six, in Kafka's bytes (codec.py).
"""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from streamlog.groups.assignors.problem import GroupPartition
from streamlog.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, PartitionId


class GroupKey(NamedTuple):
    group: str


class MemberKey(NamedTuple):
    group: str
    member_id: str


class TargetKey(NamedTuple):
    group: str


class TargetMemberKey(NamedTuple):
    group: str
    member_id: str


class CurrentKey(NamedTuple):
    group: str
    member_id: str


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: PartitionId


class GroupValue(Struct, frozen=True, kw_only=True):
    epoch: int  # raised by every change of members, subscriptions or their topics
    empty_since_ms: int  # wall clock; -1: it has members


class MemberValue(Struct, frozen=True, kw_only=True):
    """Identity and subscription of a member. Limits are those of GroupHeartbeatRequest."""

    topics: tuple[str, ...]  # ascending, distinct
    pattern: str  # empty: none
    assignor: str  # empty: the node's default
    rack: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    instance_id: str  # empty: not static
    client_id: str
    client_host: str
    serving_epoch: int = 0  # broker epoch of the node that serves the member's stream; 0: none does


class TargetValue(Struct, frozen=True, kw_only=True):
    epoch: int


class TargetMemberValue(Struct, frozen=True, kw_only=True):
    partitions: frozenset[GroupPartition]


class MemberState(enum.IntEnum):
    """Kafka's numbers. The transitions are in reconcile.py."""

    STABLE = 1
    UNREVOKED = 2  # has to revoke partitions before it gets others
    UNRELEASED = 3  # waits for partitions that others still own


class CurrentValue(Struct, frozen=True, kw_only=True):
    """`assigned` and `revoking` are disjoint; the member owns both."""

    epoch: int  # that the member has to send; AWAY for a static member that left for a moment
    previous_epoch: int  # accepted too, in case the response with `epoch` was lost
    state: MemberState
    assigned: frozenset[GroupPartition]
    revoking: frozenset[GroupPartition]  # not empty exactly when UNREVOKED


class OffsetValue(Struct, frozen=True, kw_only=True):
    offset: Offset  # the next one to read
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int


AWAY = -2
"""As an epoch: a static member that left and is expected back within its session keeps its assignment."""

Key: TypeAlias = GroupKey | MemberKey | TargetKey | TargetMemberKey | CurrentKey | OffsetKey
Value: TypeAlias = GroupValue | MemberValue | TargetValue | TargetMemberValue | CurrentValue | OffsetValue


class GroupRecord(NamedTuple):
    """The value matches the key's type."""

    key: Key
    value: Value | None
