"""What the coordinator of groups remembers, as keyed records of `__consumer_offsets`: the newest of each key counts.

    key                value                                                     one for each
    GroupKey           the group epoch, and since when nobody is in the group    group with members, now or before
    MemberKey          who the member is and what it subscribes to               member
    TargetKey          the group epoch that the target was computed for          group with members
    TargetMemberKey    what the member is to own                                 member
    CurrentKey         what it owns, in which epoch, what it still has to give   member
    OffsetKey          where the group reads next                                partition

A value of None deletes the key (a tombstone). KIP-848 has these six, and the bytes are Kafka's (codec.py).
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
    epoch: int  # rises with every change of members, subscriptions, or the topics that they are to
    empty_since_ms: int  # wall clock; -1: it has members


class MemberValue(Struct, frozen=True, kw_only=True):
    """Who a member is. Limits are those of GroupHeartbeatRequest."""

    topics: tuple[str, ...]  # ascending, distinct
    pattern: str  # empty: none
    assignor: str  # empty: the node's default
    rack: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    instance_id: str  # empty: not static
    client_id: str
    client_host: str
    serving_epoch: int = 0  # broker epoch of the node that is the member for a client's stream; 0: it is nobody's


class TargetValue(Struct, frozen=True, kw_only=True):
    epoch: int


class TargetMemberValue(Struct, frozen=True, kw_only=True):
    partitions: frozenset[GroupPartition]


class MemberState(enum.IntEnum):
    """Kafka's numbers. The transitions are in reconcile.py."""

    STABLE = 1
    UNREVOKED = 2  # has to give up partitions before it gets others
    UNRELEASED = 3  # waits for partitions that others still have


class CurrentValue(Struct, frozen=True, kw_only=True):
    """`assigned` and `revoking` share no partition; together they are what nobody else may have."""

    epoch: int  # that the member is to tell; GONE_FOR_A_MOMENT for a static member that is
    previous_epoch: int  # accepted where the answer with `epoch` was lost
    state: MemberState
    assigned: frozenset[GroupPartition]
    revoking: frozenset[GroupPartition]  # not empty exactly when UNREVOKED


class OffsetValue(Struct, frozen=True, kw_only=True):
    offset: Offset  # the next one to read
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int


GONE_FOR_A_MOMENT = -2
"""As an epoch: a static member that will be back within its session keeps what it has."""

Key: TypeAlias = GroupKey | MemberKey | TargetKey | TargetMemberKey | CurrentKey | OffsetKey
Value: TypeAlias = GroupValue | MemberValue | TargetValue | TargetMemberValue | CurrentValue | OffsetValue


class GroupRecord(NamedTuple):
    """The value is of the key's kind."""

    key: Key
    value: Value | None
