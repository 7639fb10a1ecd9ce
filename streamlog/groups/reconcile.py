"""Reconciliation: moves one member from the partitions it owns to its target (KIP-848), one heartbeat at a time.

    STABLE      owns its target --the target changes--> has partitions to revoke?   yes: UNREVOKED, with its old epoch
                                                                                     no: gets free partitions, see below
    UNREVOKED   --the member no longer owns the revoked partitions-----------------> gets free partitions, see below
                --the target changes--> more may have to be revoked
    UNRELEASED  --others have released, or the target changes----------------------> as from STABLE
    epoch 0     --it joins, and owns nothing yet-----------------------------------> gets free partitions, see below

    gets free partitions: the member takes the epoch of the target, and those of its new partitions that have no owner;
                          STABLE if these are all, UNRELEASED if others still own some

A partition has an owner from the record that assigns it until the record in which the owner neither has it assigned nor
is revoking it. In between no one else can get it: `Draft.write` raises InvariantError.

Partitions of a deleted topic need not be revoked: no one can read them, and responses do not name them, so that a
member may never have known that it had them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.decision import Topics
from streamlog.groups.records import CurrentKey, CurrentValue, GroupRecord, MemberState, TargetMemberKey
from streamlog.groups.state import NOTHING, Draft, Group


def reconcile(draft: Draft, member_id: str, owned: frozenset[GroupPartition] | None, topics: Topics) -> None:
    """Reconcile the member as far as possible now. `owned`: the partitions it reports; None: not reported."""
    group = draft.group
    before = group.current(member_id)
    after = _step(group, member_id, _without_deleted(before, topics), owned)
    if after != before:
        draft.write(CurrentKey(group.group_id, member_id), after)


def held_by_moved(group: Group, records: Iterable[GroupRecord]) -> frozenset[GroupPartition]:
    """Partitions held, before these records are applied, by the members that they move: for `members_to_notify`."""
    moved = [key.member_id for key, _ in records if isinstance(key, CurrentKey)]
    currents = [group.current(member_id) for member_id in moved]
    return frozenset(partition for current in currents for partition in (*current.assigned, *current.revoking))


def members_to_notify(
    group: Group, records: Iterable[GroupRecord], held: frozenset[GroupPartition], topics: Topics
) -> list[str]:
    """Members whose assignment a heartbeat would change now that the records are applied: their target has changed, or
    a partition that they wait for is free. Members with only a new epoch are left out: in a large group that is nearly
    all of them, at every join and leave.
    """
    concerned = {key.member_id for key, _ in records if isinstance(key, TargetMemberKey)}
    concerned |= {group.claims[p] for p in held if p not in group.owners and p in group.claims}
    return [one for one in sorted(concerned) if one in group.members and is_behind(group, one, topics)]


def is_behind(group: Group, member_id: str, topics: Topics) -> bool:
    """Whether a heartbeat of the member would give it partitions or make it revoke some."""
    current = group.current(member_id)
    existing = _without_deleted(current, topics)
    if group.is_away(member_id) or existing.revoking:
        return False
    return _step(group, member_id, existing, None) != current


def existing_partitions(partitions: frozenset[GroupPartition], topics: Topics) -> frozenset[GroupPartition]:
    """Those whose topic is not deleted."""
    deleted = {one for one in {partition.topic_id for partition in partitions} if topics.name_of(one) is None}
    if not deleted:
        return partitions
    return frozenset(partition for partition in partitions if partition.topic_id not in deleted)


def _without_deleted(current: CurrentValue, topics: Topics) -> CurrentValue:
    assigned = existing_partitions(current.assigned, topics)
    revoking = existing_partitions(current.revoking, topics)
    if assigned is current.assigned and revoking is current.revoking:
        return current
    return replace(current, assigned=assigned, revoking=revoking)


def _step(group: Group, member_id: str, before: CurrentValue, owned: frozenset[GroupPartition] | None) -> CurrentValue:
    target = group.target(member_id)
    if not before.epoch:  # it joins: it reads nothing yet, so it has nothing to revoke
        return _advance(group, member_id, before, before.assigned & target, target)
    holds = before.assigned | before.revoking
    to_revoke = holds - target
    if before.revoking and owned is not None:
        # A revoked partition is released once the member no longer reports it, even if the target has since given it
        # back: the member has stopped reading it.
        holds = before.assigned | (before.revoking & owned)
        to_revoke = (before.assigned - target) | (before.revoking & owned)
    elif before.revoking:
        to_revoke = (before.assigned - target) | before.revoking
    if to_revoke:
        return CurrentValue(
            epoch=before.epoch,
            previous_epoch=before.previous_epoch,
            state=MemberState.UNREVOKED,
            assigned=holds - to_revoke,
            revoking=to_revoke,
        )
    return _advance(group, member_id, before, holds, target)


def _advance(
    group: Group,
    member_id: str,
    before: CurrentValue,
    kept: frozenset[GroupPartition],
    target: frozenset[GroupPartition],
) -> CurrentValue:
    free = frozenset(p for p in target - kept if group.owners.get(p, member_id) == member_id)
    waits = len(kept) + len(free) < len(target)
    epoch = group.target_epoch
    return CurrentValue(
        epoch=epoch,
        previous_epoch=before.previous_epoch if epoch == before.epoch else before.epoch,
        state=MemberState.UNRELEASED if waits else MemberState.STABLE,
        assigned=kept | free,
        revoking=NOTHING,
    )
