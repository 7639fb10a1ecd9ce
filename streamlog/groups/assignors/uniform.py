"""Balanced, and among balanced assignments the one with the fewest moves (Kafka's uniform and `sticky` assignors).

Equal subscriptions: each member gets floor(partitions / members), some one more. Members above their quota give
partitions away, members below it receive; those that own most get the extra ones. So only the surplus and unowned
partitions move (`_keep`, `_share_out`).

Different subscriptions: keep what is owned, give each free partition to the subscriber with the fewest partitions,
those with the fewest subscribers first, then level out (leveling.py).

Racks only break ties: a member prefers partitions with a replica in its rack, and gives others away first.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby

from streamlog.groups.assignors.emptiest import Emptiest
from streamlog.groups.assignors.leveling import Leveling
from streamlog.groups.assignors.problem import Assignment, GroupPartition, Problem, Subscriber, as_assignment


def assign_uniform(problem: Problem) -> Assignment:
    if not problem.members:
        return {}
    owned = _what_is_owned(problem)
    if problem.is_alike:
        free = _keep(problem, owned)
        _share_out(problem, owned, free)
    else:
        _give_to_the_emptiest(problem, owned)
        owned = Leveling(problem, owned).level()
    return as_assignment(problem, owned)


def _what_is_owned(problem: Problem) -> dict[str, list[GroupPartition]]:
    """What a member may keep: existing partitions of its subscription that no earlier member keeps."""
    taken: set[GroupPartition] = set()
    owned: dict[str, list[GroupPartition]] = {}
    for member in problem.members:
        mine = owned[member.member_id] = []
        for partition in sorted(member.owned):
            shape = problem.topics.get(partition.topic_id) if partition.topic_id in member.topics else None
            if shape is not None and partition.partition < shape.partition_count and partition not in taken:
                taken.add(partition)
                mine.append(partition)
    return owned


def _free(problem: Problem, owned: dict[str, list[GroupPartition]]) -> list[GroupPartition]:
    taken = {partition for partitions in owned.values() for partition in partitions}
    return [p for topic_id in problem.topic_ids for p in problem.partitions_of(topic_id) if p not in taken]


# -- equal subscriptions


def _quota(problem: Problem, owned: dict[str, list[GroupPartition]]) -> dict[str, int]:
    """How many partitions each member gets. Those that own most get the extra ones."""
    total = sum(problem.topics[topic_id].partition_count for topic_id in problem.topic_ids)
    size, longer = divmod(total, len(problem.members))
    fullest_first = sorted(problem.members, key=lambda member: -len(owned[member.member_id]))
    return {member.member_id: size + (index < longer) for index, member in enumerate(fullest_first)}


def _keep(problem: Problem, owned: dict[str, list[GroupPartition]]) -> list[GroupPartition]:
    """Cut each member down to its quota; return the partitions without an owner."""
    quota = _quota(problem, owned)
    for member in problem.members:
        mine = owned[member.member_id]
        if len(mine) > quota[member.member_id]:
            mine.sort(key=lambda p: (not problem.is_near(member, p), p))
            del mine[quota[member.member_id] :]
    return _free(problem, owned)


def _share_out(problem: Problem, owned: dict[str, list[GroupPartition]], free: list[GroupPartition]) -> None:
    """Fill each member up to its quota: partitions in its rack first."""
    quota = _quota(problem, owned)
    wanting = [member for member in problem.members if len(owned[member.member_id]) < quota[member.member_id]]
    left = deque(free)
    if any(member.rack for member in wanting):
        left = deque(_share_near(problem, owned, quota, wanting, free))
    for member in wanting:
        mine = owned[member.member_id]
        while len(mine) < quota[member.member_id]:
            mine.append(left.popleft())


def _share_near(
    problem: Problem,
    owned: dict[str, list[GroupPartition]],
    quota: dict[str, int],
    wanting: list[Subscriber],
    free: list[GroupPartition],
) -> list[GroupPartition]:
    """Give each partition to the emptiest member below its quota in a rack with a replica; return the rest."""
    emptiest = Emptiest(problem, wanting, owned, quota)
    return [partition for partition in free if not emptiest.give(partition, near_only=True)]


# -- different subscriptions


def _give_to_the_emptiest(problem: Problem, owned: dict[str, list[GroupPartition]]) -> None:
    takers = problem.subscribers_of
    free = sorted(_free(problem, owned), key=lambda p: (len(takers[p.topic_id]), p))
    # Topics with the same subscribers share a tuple, so that a thousand of them do not cost a thousand heaps.
    for _, partitions in groupby(free, key=lambda p: problem.kinds[p.topic_id]):
        some = list(partitions)
        emptiest = Emptiest(problem, takers[some[0].topic_id], owned)
        for partition in some:
            emptiest.give(partition)
