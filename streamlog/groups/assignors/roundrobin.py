"""All partitions of all topics in order, dealt out in turn; members not subscribed to a topic are skipped."""

from __future__ import annotations

from bisect import bisect_left

from streamlog.groups.assignors.problem import Assignment, GroupPartition, Problem, as_assignment


def assign_roundrobin(problem: Problem) -> Assignment:
    members = problem.members
    place_of = {member.member_id: place for place, member in enumerate(members)}
    places: dict[int, list[int]] = {}  # of subscribers, by kind of topic
    owned: dict[str, list[GroupPartition]] = {}
    turn = 0
    for topic_id in problem.topic_ids:
        subscribers, kind = problem.subscribers_of[topic_id], problem.kinds[topic_id]
        if kind not in places:
            places[kind] = [place_of[member.member_id] for member in subscribers]
        here = places[kind]
        for partition in problem.partitions_of(topic_id):
            place = here[bisect_left(here, turn) % len(here)]
            owned.setdefault(members[place].member_id, []).append(partition)
            turn = (place + 1) % len(members)
    return as_assignment(problem, owned)
