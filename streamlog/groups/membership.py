"""Joining, staying in and leaving a group (SEMANTICS 9, KIP-848).

    (none)  --epoch 0-------------------------------> member, under its own id
    member  --its current or previous epoch---------> member; its subscription may change
            --epoch 0 again-------------------------> member; its partitions are released first
            --epoch -1, session or revocation timed
              out, its stream broken (not static)---> (none)
            --epoch -2 or its stream broken (static)> away: keeps its assignment for its session
    away    --its instance id joins under any id----> member that replaces the old one, with its assignment

Every change of members or subscriptions raises the group epoch, and the target is recomputed. Commands that arrive
together are decided together, so that a thousand members that join or disconnect at once do not cost a thousand
assignments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InvalidRequestError,
    StreamlogError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.decision import (
    GroupContext,
    GroupDecision,
    MemberSessionTimer,
    RevocationTimer,
    SetMemberTimer,
    Topics,
)
from streamlog.groups.reconcile import existing_partitions, reconcile
from streamlog.groups.records import (
    AWAY,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberState,
    MemberValue,
    TargetKey,
    TargetMemberKey,
    TargetMemberValue,
)
from streamlog.groups.state import JOINING, Draft, Group, Subscription, subscription_of
from streamlog.groups.targets import assign, fits_topics

JOIN = 0
LEAVE = -1


NAMES_MAX: Final = 100_000
"""In the lists of topics of a group's members, equal ones counted once: each decision looks up all of them."""
PATTERNS_MAX: Final = 100
"""Different subscriptions of a group that have one: each decision asks for the topics of all of them."""
GRACE_MS: Final = 4_000
"""Session of a member whose stream was served by a failed node: a node that was only fenced heartbeats again by then,
or its client joins again. Clients that are members themselves keep their own session.
"""


class MemberSubscription(Struct, frozen=True, kw_only=True):
    """Validated, except for what only the coordinator knows; the session time-out is not bounded yet."""

    topics: tuple[str, ...] = ()  # ascending, distinct
    pattern: str = ""
    assignor: str = ""
    rack: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int  # 0: the node's default


class MemberHeartbeat(Struct, frozen=True, kw_only=True):
    """`epoch`: JOIN, LEAVE, AWAY, or the member's."""

    group: str
    member_id: str
    epoch: int
    instance_id: str = ""
    subscription: MemberSubscription | None = None  # None: unchanged
    owned: frozenset[GroupPartition] | None = None  # None: not reported
    client_id: str = ""
    client_host: str = ""
    serving_epoch: int = 0  # broker epoch of the node that serves the member's stream; 0: none does


class HeartbeatAnswer(Struct, frozen=True, kw_only=True):
    member_id: str
    epoch: int
    heartbeat_interval_ms: int
    assignment: frozenset[GroupPartition] | None  # everything that it may own; None: unchanged since the last response


class RemoveMember(Struct, frozen=True, kw_only=True):
    """A timer of the member is due, its stream broke, or an operator removes it."""

    group: str
    member_id: str
    epoch: int | None = None  # the member's when its stream broke; ignored if it has another one by now. None: any
    may_return: bool = False  # a static member becomes away instead


Command: TypeAlias = MemberHeartbeat | RemoveMember
Answer: TypeAlias = HeartbeatAnswer | bool
"""Of a heartbeat; of a removal: whether it changed anything."""


def decide(
    commands: Sequence[Command], group: Group, context: GroupContext
) -> GroupDecision[tuple[Answer | StreamlogError, ...]]:
    """Decide the pending commands of one group; one response for each, in order."""
    draft = Draft(group)
    refused: dict[int, StreamlogError] = {}
    done: dict[int, bool] = {}  # of removals
    for index, command in enumerate(commands):
        if isinstance(command, RemoveMember):
            done[index] = _remove_member(draft, command, context)
            continue
        try:
            _admit(draft, command, context)
        except StreamlogError as error:
            refused[index] = error
    _rebalance(draft, context)
    answers: list[Answer | StreamlogError] = []
    timers: list[SetMemberTimer] = []
    for index, command in enumerate(commands):
        if isinstance(command, RemoveMember):
            answers.append(done[index])
            if done[index]:
                timers += _timers_of_leaving(draft.group, command.member_id)
        else:
            refusal = refused.get(index)
            answers.append(_answer(draft, group, command, context, timers) if refusal is None else refusal)
    return GroupDecision(response=tuple(answers), records=tuple(draft.records), timers=tuple(timers))


def refresh_topics(group: Group, context: GroupContext) -> GroupDecision[bool]:
    """The topics have changed: raise the group epoch if the target no longer matches them."""
    if not group.members or fits_topics(group, context.topics):
        return GroupDecision(response=False)
    draft = Draft(group)
    _raise_epoch(draft, context)
    _rebalance(draft, context)
    return GroupDecision(response=True, records=tuple(draft.records))


# -- steps


def _remove_member(draft: Draft, command: RemoveMember, context: GroupContext) -> bool:
    member = draft.group.members.get(command.member_id)
    current = draft.group.current(command.member_id)
    if member is None or command.epoch not in (None, current.epoch, current.previous_epoch):
        return False
    if not (command.may_return and member.instance_id):
        _remove(draft, command.member_id, context)
        return True
    if draft.group.is_away(command.member_id):
        return False
    _go_away(draft, command.member_id)
    return True


def _admit(draft: Draft, command: MemberHeartbeat, context: GroupContext) -> None:
    """First half of a heartbeat: update membership and subscription."""
    if command.epoch == JOIN:
        _join(draft, command, context)
        return
    member_id = _require_member(draft.group, command, context.topics)
    if command.epoch == LEAVE:
        _remove(draft, member_id, context)
    elif command.epoch == AWAY:
        if not draft.group.members[member_id].instance_id:
            raise InvalidRequestError("only a member with an instance id may send epoch -2", field="member_epoch")
        _go_away(draft, member_id)
    else:
        _stay(draft, member_id, command, context)


def _stay(draft: Draft, member_id: str, command: MemberHeartbeat, context: GroupContext) -> None:
    """Only a join takes an instance id: another member may have it."""
    instance_id = draft.group.members[member_id].instance_id
    if command.instance_id not in ("", instance_id):
        raise InvalidRequestError(
            f"member {member_id!r} of group {command.group!r} has the instance id {instance_id!r} and cannot change "
            f"it to {command.instance_id!r}: leave, and join again with that one",
            field="instance_id",
        )
    subscription = command.subscription
    if subscription is not None:
        value = _member_value(replace(command, instance_id=instance_id), subscription, draft.group, context)
        _subscribe(draft, member_id, value, context)


def _join(draft: Draft, command: MemberHeartbeat, context: GroupContext) -> None:
    if command.subscription is None:
        raise InvalidRequestError("a joining member must send its subscription", field="subscription")
    value = _member_value(command, command.subscription, draft.group, context)  # raises before anything is written
    before = draft.group.instances.get(command.instance_id) if command.instance_id else None
    if before is not None and before != command.member_id:
        _replace_static(draft, before, command, context)
    elif command.member_id in draft.group.members and not draft.group.is_away(command.member_id):
        _release_all(draft, command.member_id)
    elif command.member_id not in draft.group.members and len(draft.group.members) >= context.settings.members_max:
        raise GroupMaxSizeReachedError(
            f"group {command.group!r} has {len(draft.group.members)} members, the limit of group.max.size",
            field="group.max.size",
            limit=context.settings.members_max,
        )
    if draft.group.is_away(command.member_id):
        _come_back(draft, command.member_id)
    _subscribe(draft, command.member_id, value, context)


def _replace_static(draft: Draft, before: str, command: MemberHeartbeat, context: GroupContext) -> None:
    """A static member under a new member id takes over the old one's assignment without a rebalance. An old one whose
    stream was served by a failed node counts as away. A member under the new id gives up its place, as if it had left.
    """
    group = draft.group
    if _lost_its_node(group, before, context):
        _go_away(draft, before)
        group = draft.group
    if not group.is_away(before):
        raise UnreleasedInstanceIdError(
            f"instance id {command.instance_id!r} of group {command.group!r} is used by the active member {before!r}",
            field="instance_id",
        )
    member, target, current = group.members[before], group.target(before), group.current(before)
    if command.member_id in group.members:
        _remove(draft, command.member_id, context)
    _forget(draft, before)
    draft.write(MemberKey(command.group, command.member_id), member)
    draft.write(TargetMemberKey(command.group, command.member_id), TargetMemberValue(partitions=target))
    draft.write(CurrentKey(command.group, command.member_id), current)


def _come_back(draft: Draft, member_id: str) -> None:
    """An away member is back. It owned nothing while away, so it has nothing to revoke."""
    group = draft.group
    current = group.current(member_id)
    back = CurrentValue(
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        assigned=current.assigned & group.target(member_id),
        revoking=frozenset(),
    )
    draft.write(CurrentKey(group.group_id, member_id), back)


def _release_all(draft: Draft, member_id: str) -> None:
    """A member that joins again under its id has restarted: its partitions are free."""
    draft.write(CurrentKey(draft.group.group_id, member_id), JOINING)


def _require_member(group: Group, command: MemberHeartbeat, topics: Topics) -> str:
    """The member's id; UnknownMemberIdError, IllegalGenerationError."""
    member_id, current = command.member_id, group.current(command.member_id)
    if member_id not in group.members:
        raise UnknownMemberIdError(
            f"group {command.group!r} has no member {member_id!r}; it has to join again with epoch 0", field="member_id"
        )
    if command.epoch < 0 or command.epoch == current.epoch:
        return member_id
    # The response with the current epoch was lost; the member can only own what it owned before. It may still name
    # partitions of a deleted topic, which are no longer its own.
    repeats = command.epoch == current.previous_epoch and (
        command.owned is None or existing_partitions(command.owned, topics) <= current.assigned | current.revoking
    )
    if not repeats:
        raise IllegalGenerationError(
            f"member {member_id!r} of group {command.group!r} is in epoch {current.epoch}, not {command.epoch}; it "
            "has to release its partitions and join again",
            field="member_epoch",
            limit=current.epoch,
        )
    return member_id


def _subscribe(draft: Draft, member_id: str, value: MemberValue, context: GroupContext) -> None:
    group = draft.group
    before = group.members.get(member_id)
    if before == value:
        return
    draft.write(MemberKey(group.group_id, member_id), value)
    if before is None or _reads(before) != _reads(value):
        _raise_epoch(draft, context)


def _reads(member: MemberValue) -> tuple[object, ...]:
    """The fields that affect the assignment."""
    return member.topics, member.pattern, member.assignor, member.rack, member.instance_id


def _member_value(
    command: MemberHeartbeat, subscription: MemberSubscription, group: Group, context: GroupContext
) -> MemberValue:
    settings = context.settings
    if subscription.assignor and subscription.assignor not in settings.assignors:
        raise UnsupportedAssignorError(
            f"unknown assignor {subscription.assignor!r}; use one of {', '.join(settings.assignors)}",
            field="subscription.assignor",
            limit=", ".join(settings.assignors),
        )
    wanted = Subscription(subscription.topics, subscription.pattern)
    if wanted not in group.subscriptions:
        _check_new(wanted, command, group, context)
    session_timeout_ms = subscription.session_timeout_ms or settings.session_timeout_ms
    return MemberValue(
        topics=subscription.topics,
        pattern=subscription.pattern,
        assignor=subscription.assignor,
        rack=subscription.rack,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        session_timeout_ms=min(
            max(session_timeout_ms, settings.session_timeout_ms_min), settings.session_timeout_ms_max
        ),
        instance_id=command.instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        serving_epoch=command.serving_epoch,
    )


def _check_new(wanted: Subscription, command: MemberHeartbeat, group: Group, context: GroupContext) -> None:
    """InvalidRequestError, InvalidRegularExpressionError: each decision looks up all different subscriptions. A group
    that is beyond a bound may shrink.
    """
    replaced = _replaced(command, group)
    names = group.names + len(wanted.topics) - len(replaced.topics)
    if names > max(NAMES_MAX, group.names):
        raise InvalidRequestError(
            f"with the {len(wanted.topics)} topics of this member, the members of group {group.group_id!r} would "
            f"subscribe to {names} names, lists that are equal counted once, and a group may to {NAMES_MAX}: give "
            "members that read the same topics the same list, or use several groups",
            field="subscription.topics",
            limit=NAMES_MAX,
        )
    if not wanted.pattern:
        return
    if group.patterns + 1 - bool(replaced.pattern) > max(PATTERNS_MAX, group.patterns):
        raise InvalidRequestError(
            f"the members of group {group.group_id!r} have {group.patterns} different subscriptions with a pattern, "
            "the most that a group may have: use the same one for members that read the same topics, or several groups",
            field="subscription.pattern",
            limit=PATTERNS_MAX,
        )
    context.topics.check_pattern(wanted.pattern)


def _replaced(command: MemberHeartbeat, group: Group) -> Subscription:
    """What only the member has subscribed to so far, or the static one that it replaces."""
    before = group.members.get(group.instances.get(command.instance_id, command.member_id))
    if before is None or len(group.subscriptions[subscription_of(before)]) > 1:
        return Subscription(())
    return subscription_of(before)


def _go_away(draft: Draft, member_id: str) -> None:
    """It keeps its target. Partitions that it was revoking are free, since it no longer reads."""
    group = draft.group
    current = group.current(member_id)
    away = CurrentValue(
        epoch=AWAY,
        previous_epoch=AWAY,
        state=MemberState.STABLE,
        assigned=current.assigned,
        revoking=frozenset(),
    )
    draft.write(CurrentKey(group.group_id, member_id), away)


def _remove(draft: Draft, member_id: str, context: GroupContext) -> None:
    _forget(draft, member_id)
    _raise_epoch(draft, context)


def _forget(draft: Draft, member_id: str) -> None:
    group = draft.group
    draft.write(CurrentKey(group.group_id, member_id), None)
    if member_id in draft.group.targets:
        draft.write(TargetMemberKey(group.group_id, member_id), None)
    draft.write(MemberKey(group.group_id, member_id), None)


def _raise_epoch(draft: Draft, context: GroupContext) -> None:
    group = draft.group
    since = -1 if group.members else context.now_ms
    draft.write(GroupKey(group.group_id), GroupValue(epoch=group.epoch + 1, empty_since_ms=since))


def _rebalance(draft: Draft, context: GroupContext) -> None:
    """Compute the target for the current members, if there are any."""
    if draft.group.members:
        assign(draft, context)
    elif draft.group.target_epoch:
        draft.write(TargetKey(draft.group.group_id), None)


def _answer(
    draft: Draft, before: Group, command: MemberHeartbeat, context: GroupContext, timers: list[SetMemberTimer]
) -> HeartbeatAnswer | StreamlogError:
    """Second half of a heartbeat: reconcile the member, and return its assignment."""
    member_id = command.member_id
    interval = context.settings.heartbeat_interval_ms
    if command.epoch < 0:
        timers += _timers_of_leaving(draft.group, member_id)
        return HeartbeatAnswer(
            member_id=member_id, epoch=command.epoch, heartbeat_interval_ms=interval, assignment=None
        )
    if member_id not in draft.group.members:  # another command of this decision removed it
        return UnknownMemberIdError(f"member {member_id!r} of group {command.group!r} was removed", field="member_id")
    was = before.currents.get(member_id)
    if command.epoch in (JOIN, draft.group.current(member_id).epoch):
        reconcile(draft, member_id, command.owned, context.topics)  # else it has not received its current epoch yet
    current, member = draft.group.current(member_id), draft.group.members[member_id]
    timers.append(SetMemberTimer(MemberSessionTimer(command.group, member_id), member.session_timeout_ms))
    if current.state is not MemberState.UNREVOKED:
        timers.append(SetMemberTimer(RevocationTimer(command.group, member_id), None))
    elif was is None or was.state is not MemberState.UNREVOKED or was.epoch != current.epoch:
        timers.append(SetMemberTimer(RevocationTimer(command.group, member_id), member.rebalance_timeout_ms))
    is_changed = (
        command.epoch != current.epoch or command.owned is not None or was is None or was.assigned != current.assigned
    )
    return HeartbeatAnswer(
        member_id=member_id,
        epoch=current.epoch,
        heartbeat_interval_ms=min(interval, max(1, member.session_timeout_ms // 3)),
        assignment=current.assigned if is_changed else None,
    )


def _timers_of_leaving(group: Group, member_id: str) -> tuple[SetMemberTimer, ...]:
    """An away member's session starts now; a member that left has no timers."""
    session, revocation = _no_timers(group.group_id, member_id)
    member = group.members.get(member_id)
    return (session if member is None else SetMemberTimer(session.timer, member.session_timeout_ms)), revocation


def _no_timers(group: str, member_id: str) -> tuple[SetMemberTimer, ...]:
    return SetMemberTimer(MemberSessionTimer(group, member_id), None), SetMemberTimer(
        RevocationTimer(group, member_id), None
    )


def timers_after_loading(group: Group, context: GroupContext) -> tuple[SetMemberTimer, ...]:
    """A new coordinator grants every member its whole session and revocation time-out; members whose streams were
    served by a failed node get GRACE_MS.
    """
    timers = []
    for member_id, member in group.members.items():
        lost = _lost_its_node(group, member_id, context)
        session_ms = min(GRACE_MS, member.session_timeout_ms) if lost else member.session_timeout_ms
        timers.append(SetMemberTimer(MemberSessionTimer(group.group_id, member_id), session_ms))
        if group.current(member_id).state is MemberState.UNREVOKED:
            timers.append(SetMemberTimer(RevocationTimer(group.group_id, member_id), member.rebalance_timeout_ms))
    return tuple(timers)


def timers_of_gone(group: Group, context: GroupContext) -> tuple[SetMemberTimer, ...]:
    """Nodes have failed: shorten the sessions of the members whose streams they served."""
    return tuple(
        SetMemberTimer(MemberSessionTimer(group.group_id, member_id), min(GRACE_MS, member.session_timeout_ms))
        for member_id, member in group.members.items()
        if _lost_its_node(group, member_id, context)
    )


def _lost_its_node(group: Group, member_id: str, context: GroupContext) -> bool:
    """Whether the node that serves the member's stream has failed. None serves an away member."""
    return not group.is_away(member_id) and context.is_gone(group.members[member_id].serving_epoch)
