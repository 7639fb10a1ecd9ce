"""For each topic, runs of adjacent partitions, the longer runs first (Kafka's RangeAssignor).

With equal subscriptions and equal counts of partitions, partition n of every topic goes to the same member, which is
what a join of two topics needs. So the order of members is the same for all topics: existing members keep their order,
new ones follow, which moves less than an order by id would.
"""

from __future__ import annotations

from streamlog.groups.assignors.problem import Assignment, GroupPartition, Problem, Subscriber, as_assignment


def assign_range(problem: Problem) -> Assignment:
    owned: dict[str, list[GroupPartition]] = {}
    ordered: dict[int, list[Subscriber]] = {}  # by kind of topic
    for topic_id in problem.topic_ids:
        subscribers, partitions = problem.subscribers_of[topic_id], problem.partitions_of(topic_id)
        if problem.kinds[topic_id] not in ordered:
            ordered[problem.kinds[topic_id]] = sorted(
                subscribers, key=_place
            )  # stable: those of equal place keep their order
        takers = ordered[problem.kinds[topic_id]]
        size, longer = divmod(len(partitions), len(takers))
        begin = 0
        for index, member in enumerate(takers[: len(partitions)]):
            end = begin + size + (index < longer)
            owned.setdefault(member.member_id, []).extend(partitions[begin:end])
            begin = end
    return as_assignment(problem, owned)


def _place(member: Subscriber) -> tuple[bool, int]:
    """Where its runs started so far."""
    return not member.owned, min((partition.partition for partition in member.owned), default=0)
