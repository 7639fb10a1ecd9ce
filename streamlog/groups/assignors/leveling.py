"""The last step of the uniform assignor where subscriptions differ: partitions move along chains of members, until no
chain leads from a member to one with at least two partitions less. This minimizes the largest share.

The cost is that of the moves and of few searches. What a member holds of a topic is a heap with the partition to give
away first on top; a chain moves as many partitions as it can; and the fullest member gives first, so that topics behind
which its search finds nothing are closed to all later searches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from streamlog.groups.assignors.problem import GroupPartition, Problem
from streamlog.model import TopicId


class _Step(NamedTuple):
    giver: str
    topic_id: TopicId
    taker: str


class Leveling:
    """`owned`: what each member has at first."""

    def __init__(self, problem: Problem, owned: Mapping[str, list[GroupPartition]]) -> None:
        self._problem = problem
        self._takers = problem.subscribers_of
        self._counts = dict.fromkeys(owned, 0)
        self._held: dict[str, dict[TopicId, list[tuple[bool, bool, GroupPartition]]]] = {name: {} for name in owned}
        for name, mine in owned.items():
            for partition in mine:
                self._take(name, partition)
        self._mean = sum(self._counts.values()) // len(owned)

    def level(self) -> dict[str, list[GroupPartition]]:
        """What each member has at last. It ends: each chain lowers the sum of the squares of the counts."""
        order = {name: index for index, name in enumerate(self._counts)}
        fullest = [(-count, order[name], name) for name, count in self._counts.items()]
        heapify(fullest)
        closed: set[TopicId] = set()
        while fullest:
            count, _, source = heappop(fullest)
            if -count != self._counts[source]:
                continue  # it has more now, and another entry
            chain = self._chain_from(source, closed)
            if chain:
                self._move(chain)
                for name in (source, chain[0].taker):
                    heappush(fullest, (-self._counts[name], order[name], name))
        return {name: [p for heap in held.values() for _, _, p in heap] for name, held in self._held.items()}

    def _chain_from(self, source: str, closed: set[TopicId]) -> list[_Step]:
        """The shortest chain of moves that ends at a member with at least two partitions less than `source`, one of the
        fullest. If there is none, the topics that it leads through are added to `closed`: all that subscribe to them
        have too many for any later source.
        """
        limit = self._counts[source] - 2
        came_by: dict[str, _Step] = {}
        seen: set[TopicId] = set()
        reached: set[int] = set()  # kinds of topics
        queue = deque([source])
        while queue:
            giver = queue.popleft()
            for topic_id in sorted(one for one in self._held[giver] if one not in seen and one not in closed):
                seen.add(topic_id)
                if self._problem.kinds[topic_id] in reached:
                    continue
                reached.add(self._problem.kinds[topic_id])
                takers = [
                    member.member_id
                    for member in self._takers[topic_id]
                    if member.member_id != source and member.member_id not in came_by
                ]
                emptiest = min(takers, key=self._counts.__getitem__, default=source)
                if self._counts[emptiest] <= limit:
                    return [_Step(giver, topic_id, emptiest), *_walk_back(came_by, source, giver)]
                came_by.update((name, _Step(giver, topic_id, name)) for name in takers)
                queue += takers
        closed |= seen
        return []

    def _move(self, chain: list[_Step]) -> None:
        """As many as the steps have and make source and end equal; an end below the mean is filled up to it only."""
        source, end = self._counts[chain[-1].giver], self._counts[chain[0].taker]
        wanted = (source - end) // 2
        if end < self._mean:
            wanted = min(wanted, self._mean - end)
        number = min(wanted, *(len(self._held[step.giver][step.topic_id]) for step in chain))
        for giver, topic_id, taker in chain:
            heap = self._held[giver][topic_id]
            for _ in range(number):
                self._take(taker, heappop(heap)[2])
            self._counts[giver] -= number
            if not heap:
                del self._held[giver][topic_id]

    def _take(self, name: str, partition: GroupPartition) -> None:
        """What it did not own before is given away first: it moves anyway. Then what is in another rack."""
        member = self._problem.subscribers[name]
        entry = (partition in member.owned, self._problem.is_near(member, partition), partition)
        heappush(self._held[name].setdefault(partition.topic_id, []), entry)
        self._counts[name] += 1


def _walk_back(came_by: Mapping[str, _Step], source: str, end: str) -> list[_Step]:
    """From the end to the source: no member gives a partition before it has it."""
    chain, at = [], end
    while at != source:
        chain.append(came_by[at])
        at = came_by[at].giver
    return chain
