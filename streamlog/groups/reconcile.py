"""How one member comes from what it owns to what it is to own (KIP-848, "reconciliation"), step by heartbeat.

    STABLE      owns its target --the target changes--> has something to give up?    yes: UNREVOKED, under its old epoch
                                                                                      no: gets what is free, see below
    UNREVOKED   --the member owns nothing of that any more--------------------------> gets what is free, see below
                --the target changes--> what is to be given up may grow
    UNRELEASED  --others have released, or the target changes-----------------------> as from STABLE

    gets what is free: the member takes the epoch of the target, and of its new partitions those without an owner;
                       STABLE where that was all, UNRELEASED where others still have some

A partition has an owner from the record that assigns it to the record in which its owner no longer has it, be it
assigned or to be given up. It is assigned to nobody else in between: `Group.apply` would refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.records import CurrentKey, CurrentValue, GroupRecord, MemberState, TargetMemberKey
from streamlog.groups.state import NOTHING, Draft, Group


def reconcile(draft: Draft, member_id: str, owned: frozenset[GroupPartition] | None) -> None:
    """Move the member on as far as it can go now. `owned`: what it says it has; None: it said nothing of that."""
    group = draft.group
    before = group.current(member_id)
    after = _step(group, member_id, before, owned)
    if after != before:
        draft.write(CurrentKey(group.group_id, member_id), after)


def held_by_those(group: Group, records: Iterable[GroupRecord]) -> frozenset[GroupPartition]:
    """What the members whom these records move hold before the records are applied: for `with_news`, after it."""
    moved = [key.member_id for key, _ in records if isinstance(key, CurrentKey)]
    currents = [group.current(member_id) for member_id in moved]
    return frozenset(partition for current in currents for partition in (*current.assigned, *current.revoking))


def with_news(group: Group, records: Iterable[GroupRecord], held: frozenset[GroupPartition]) -> list[str]:
    """Members who would be told of other partitions now that the records are applied: their target has changed, or
    what they wait for is free. Those who only have an epoch to learn are in no hurry; in a large group they are nearly
    all, each time that anybody comes or goes.
    """
    concerned = {key.member_id for key, _ in records if isinstance(key, TargetMemberKey)}
    concerned |= {group.claims[p] for p in held if p not in group.owners and p in group.claims}
    return [member_id for member_id in sorted(concerned) if member_id in group.members and is_behind(group, member_id)]


def is_behind(group: Group, member_id: str) -> bool:
    """A heartbeat of the member would move it on, or make it begin to give something up."""
    current = group.current(member_id)
    if group.is_away(member_id) or current.state is MemberState.UNREVOKED:
        return False
    return _step(group, member_id, current, None) != current


def _step(group: Group, member_id: str, before: CurrentValue, owned: frozenset[GroupPartition] | None) -> CurrentValue:
    target = group.target(member_id)
    holds = before.assigned | before.revoking
    to_give_up = holds - target
    if before.revoking and owned is not None:
        # What was asked back is gone once the member no longer names it, even if the target has given it back since:
        # the member has stopped reading it.
        holds = before.assigned | (before.revoking & owned)
        to_give_up = (before.assigned - target) | (before.revoking & owned)
    elif before.revoking:
        to_give_up = (before.assigned - target) | before.revoking
    if to_give_up:
        return CurrentValue(
            epoch=before.epoch,
            previous_epoch=before.previous_epoch,
            state=MemberState.UNREVOKED,
            assigned=holds - to_give_up,
            revoking=to_give_up,
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
