"""The target assignment of a group, recomputed when the group epoch exceeds the target's."""

from __future__ import annotations

from collections import Counter

from streamlog.groups.assignors import ASSIGNORS
from streamlog.groups.assignors.problem import GroupPartition, Problem, Subscriber
from streamlog.groups.decision import GroupContext, Topics
from streamlog.groups.records import TargetKey, TargetMemberKey, TargetMemberValue, TargetValue
from streamlog.groups.state import Draft, Group, Subscription
from streamlog.model import PartitionId, TopicId


def assign(draft: Draft, context: GroupContext) -> None:
    """Compute the target for the current group epoch, if missing. Members with an unchanged target get no record."""
    group = draft.group
    if group.target_epoch == group.epoch:
        return
    assignor = ASSIGNORS[_assignor_of(group, context.settings.assignors)]
    assignment = assignor(_problem(group, context.topics))
    for member_id in [m for m in group.targets if m not in group.members]:
        draft.write(TargetMemberKey(group.group_id, member_id), None)
    for member_id, partitions in assignment.items():
        wanted = frozenset(partitions)
        if group.target(member_id) != wanted or member_id not in group.targets:
            draft.write(TargetMemberKey(group.group_id, member_id), TargetMemberValue(partitions=wanted))
    draft.write(TargetKey(group.group_id), TargetValue(epoch=group.epoch))


def fits_topics(group: Group, topics: Topics) -> bool:
    """Whether the targets cover exactly the existing partitions of the subscribed topics."""
    wanted: set[GroupPartition] = set()
    for topic_id in sorted(subscribed_topics(group, topics)):
        indexes = range(topics.partition_count(topic_id))
        wanted.update(GroupPartition(topic_id, PartitionId(index)) for index in indexes)
    assigned = [partition for partitions in group.targets.values() for partition in partitions]
    return len(assigned) == len(wanted) and wanted.issuperset(assigned)


def subscribed_topics(group: Group, topics: Topics) -> frozenset[TopicId]:
    """The existing topics that members subscribe to."""
    return frozenset[TopicId]().union(*(_existing(wanted, topics) for wanted in group.subscriptions))


def _existing(wanted: Subscription, topics: Topics) -> frozenset[TopicId]:
    named = frozenset(topic_id for name in wanted.topics if (topic_id := topics.id_of(name)) is not None)
    return named.union(topics.matching(wanted.pattern)) if wanted.pattern else named


def _assignor_of(group: Group, supported: tuple[str, ...]) -> str:
    """The assignor that most members request; on a tie the first one in the node's list."""
    asked = Counter(member.assignor or supported[0] for member in group.members.values())
    known = [name for name in (*supported, *sorted(ASSIGNORS)) if name in asked]
    return max(known, key=lambda name: asked[name], default=supported[0])


def _problem(group: Group, topics: Topics) -> Problem:
    existing: dict[str, frozenset[TopicId]] = {}  # by member; those with equal subscriptions share a set
    for wanted, alike in group.subscriptions.items():
        existing |= dict.fromkeys(alike, _existing(wanted, topics))
    subscribers = {
        member_id: Subscriber(
            member_id=member_id,
            topics=existing[member_id],
            instance_id=member.instance_id,
            rack=member.rack,
            owned=group.target(member_id),
        )
        for member_id, member in group.members.items()
    }
    shapes = {
        topic_id: topics.shape_of(topic_id)
        for topic_id in sorted(frozenset[TopicId]().union(*dict.fromkeys(existing.values())))
    }
    return Problem(subscribers, shapes)
