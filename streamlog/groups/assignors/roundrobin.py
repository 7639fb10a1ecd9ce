"""All partitions of all topics in order, dealt out in turn; members not subscribed to a topic are skipped."""

from __future__ import annotations

from streamlog.groups.assignors.problem import Assignment, GroupPartition, Problem, as_assignment


def assign_roundrobin(problem: Problem) -> Assignment:
    members = problem.members
    owned: dict[str, list[GroupPartition]] = {}
    turn = 0
    for topic_id in problem.topic_ids:
        for partition in problem.partitions_of(topic_id):
            while topic_id not in members[turn % len(members)].topics:
                turn += 1
            owned.setdefault(members[turn % len(members)].member_id, []).append(partition)
            turn += 1
    return as_assignment(problem, owned)
