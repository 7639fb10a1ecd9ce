"""The state of one group. It changes only by `apply` of a record.

A shard has a dictionary of groups, built by `replay` of its partition's records. Decisions (membership.py,
committing.py) never change it: they write records into a `Draft`, which applies them to a copy, so that a later step of
the same decision sees the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.errors import InvariantError
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.records import (
    AWAY,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupRecord,
    GroupValue,
    Key,
    MemberKey,
    MemberState,
    MemberValue,
    OffsetKey,
    OffsetValue,
    TargetKey,
    TargetMemberKey,
    TargetMemberValue,
    TargetValue,
    Value,
)
from streamlog.model import PartitionId

NOTHING: frozenset[GroupPartition] = frozenset()
JOINING = CurrentValue(epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned=NOTHING, revoking=NOTHING)
"""The state of a member before its first assignment."""


class Subscription(NamedTuple):
    topics: tuple[str, ...]  # ascending, distinct
    pattern: str = ""  # empty: none


def subscription_of(member: MemberValue) -> Subscription:
    return Subscription(member.topics, member.pattern)


class Group(Struct):
    """Owned by the shard of its partition. Members are in the order in which they joined."""

    group_id: str
    epoch: int = 0
    empty_since_ms: int = -1  # -1: it has members, or never had any
    members: dict[str, MemberValue] = field(default_factory=dict)
    currents: dict[str, CurrentValue] = field(default_factory=dict)  # a subset of the members
    target_epoch: int = 0  # <= epoch; less: the target has to be recomputed
    targets: dict[str, frozenset[GroupPartition]] = field(default_factory=dict)
    claims: dict[GroupPartition, str] = field(default_factory=dict)  # the inverse of `targets`
    owners: dict[GroupPartition, str] = field(default_factory=dict)  # of partitions that are assigned or being revoked
    instances: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    subscriptions: dict[Subscription, dict[str, None]] = field(default_factory=dict)
    """The different ones -> the ids of the members that have it, which share its list."""
    names: int = 0  # in the lists of `subscriptions`, together
    patterns: int = 0  # of `subscriptions`, those with a pattern
    offsets: dict[tuple[str, PartitionId], OffsetValue] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Nothing is stored for it. In a compacted log assignments may come before the group's other records."""
        return not (self.members or self.offsets or self.epoch or self.currents or self.targets or self.target_epoch)

    def current(self, member_id: str) -> CurrentValue:
        return self.currents.get(member_id, JOINING)

    def target(self, member_id: str) -> frozenset[GroupPartition]:
        return self.targets.get(member_id, NOTHING)

    def is_away(self, member_id: str) -> bool:
        """A static member that is expected back."""
        return self.current(member_id).epoch == AWAY

    @property
    def is_settled(self) -> bool:
        """Every member that is not away owns its current target."""
        return self.target_epoch == self.epoch and all(
            self.is_away(member) or self._has_its_target(member) for member in self.members
        )

    def _has_its_target(self, member_id: str) -> bool:
        current = self.current(member_id)
        return current.state is MemberState.STABLE and current.epoch == self.target_epoch

    def copy(self) -> Group:
        """A copy that shares the offsets: membership does not change them."""
        return Group(
            group_id=self.group_id,
            epoch=self.epoch,
            empty_since_ms=self.empty_since_ms,
            members=dict(self.members),
            currents=dict(self.currents),
            target_epoch=self.target_epoch,
            targets=dict(self.targets),
            claims=dict(self.claims),
            owners=dict(self.owners),
            instances=dict(self.instances),
            subscriptions={wanted: dict(alike) for wanted, alike in self.subscriptions.items()},
            names=self.names,
            patterns=self.patterns,
            offsets=self.offsets,
        )

    def apply(self, key: Key, value: Value | None) -> None:
        """Owners are not checked (`check_owner`): in a compacted log, above all one that is compacted while it is
        read, records of different keys fit together only at its end.
        """
        match key, value:
            case OffsetKey(), None:
                self.offsets.pop((key.topic, key.partition), None)
            case OffsetKey(), OffsetValue():
                self.offsets[key.topic, key.partition] = value
            case GroupKey(), GroupValue():
                self.epoch, self.empty_since_ms = value.epoch, value.empty_since_ms
            case GroupKey(), None:
                self.epoch, self.empty_since_ms = 0, -1
            case MemberKey(), MemberValue():
                self._set_member(key.member_id, value)
            case MemberKey(), None:
                self._remove_member(key.member_id)
            case TargetKey(), _:
                self.target_epoch = value.epoch if isinstance(value, TargetValue) else 0
            case TargetMemberKey(), TargetMemberValue():
                self._unclaim(key.member_id)
                self.targets[key.member_id] = value.partitions
                self.claims.update(dict.fromkeys(value.partitions, key.member_id))
            case TargetMemberKey(), None:
                self._unclaim(key.member_id)
                self.targets.pop(key.member_id, None)
            case CurrentKey(), CurrentValue():
                self._set_current(key.member_id, value)
            case CurrentKey(), None:
                self._release(key.member_id)
                self.currents.pop(key.member_id, None)
            case _:
                raise InvariantError(f"{type(value).__name__} under {type(key).__name__}")

    def _set_member(self, member_id: str, value: MemberValue) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._unsubscribe(member_id, before)
        self.members[member_id] = self._subscribe(member_id, value)
        if value.instance_id:
            self.instances[value.instance_id] = member_id

    def _subscribe(self, member_id: str, value: MemberValue) -> MemberValue:
        """The value, with the list of the members that have the same subscription: it may be long, and they many."""
        alike = self.subscriptions.setdefault(subscription_of(value), {})
        if alike:
            value = replace(value, topics=self.members[next(iter(alike))].topics)
        else:
            self.names += len(value.topics)
            self.patterns += bool(value.pattern)
        alike[member_id] = None
        return value

    def _remove_member(self, member_id: str) -> None:
        gone = self.members.pop(member_id, None)
        if gone is not None:
            self._unsubscribe(member_id, gone)

    def _unsubscribe(self, member_id: str, before: MemberValue) -> None:
        if before.instance_id and self.instances.get(before.instance_id) == member_id:
            del self.instances[before.instance_id]
        alike = self.subscriptions[subscription_of(before)]
        del alike[member_id]
        if not alike:
            del self.subscriptions[subscription_of(before)]
            self.names -= len(before.topics)
            self.patterns -= bool(before.pattern)

    def _set_current(self, member_id: str, value: CurrentValue) -> None:
        self._release(member_id)
        self.currents[member_id] = value
        self.owners.update(dict.fromkeys((*value.assigned, *value.revoking), member_id))

    def check(self) -> None:
        """InvariantError where a partition has two owners, or one that another owner has released."""
        for member_id, current in self.currents.items():
            self.check_owner(member_id, current)
            for partition in (*current.assigned, *current.revoking):
                if partition not in self.owners:
                    raise InvariantError(
                        f"group {self.group_id!r}: {member_id!r} owns partition {partition.partition} of "
                        f"{partition.topic_id.hex()}, which another member has owned and released since"
                    )

    def check_owner(self, member_id: str, current: CurrentValue) -> None:
        """InvariantError where another member owns a partition of `current`."""
        for partition in (*current.assigned, *current.revoking):
            if self.owners.get(partition, member_id) != member_id:
                raise InvariantError(
                    f"group {self.group_id!r}: partition {partition.partition} of {partition.topic_id.hex()} has two "
                    f"owners, {member_id!r} and {self.owners[partition]!r}"
                )

    def _unclaim(self, member_id: str) -> None:
        """Remove the member's claims, except those that another member's target has taken over."""
        for partition in self.target(member_id):
            if self.claims.get(partition) == member_id:
                del self.claims[partition]

    def _release(self, member_id: str) -> None:
        before = self.currents.get(member_id)
        if before is not None:
            for partition in (*before.assigned, *before.revoking):
                if self.owners.get(partition) == member_id:
                    del self.owners[partition]


class Draft:
    """What one decision writes: its records in order, and the resulting group."""

    def __init__(self, group: Group) -> None:
        self._base = group
        self.group = group
        self.records: list[GroupRecord] = []

    def write(self, key: Key, value: Value | None) -> None:
        """InvariantError where a partition would get a second owner."""
        if isinstance(key, CurrentKey) and isinstance(value, CurrentValue):
            self.group.check_owner(key.member_id, value)
        if self.group is self._base:
            self.group = self._base.copy()
        self.group.apply(key, value)
        self.records.append(GroupRecord(key, value))


def replay(groups: dict[str, Group], records: Iterable[GroupRecord]) -> None:
    """Apply written records. A group with nothing left is removed."""
    for key, value in records:
        group = groups.get(key.group)
        if group is None:
            group = groups[key.group] = Group(key.group)
        group.apply(key, value)
        if value is None and group.is_gone:
            del groups[key.group]
