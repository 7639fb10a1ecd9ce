"""Gives partitions one by one to the member with the fewest; heaps, so that not all members are visited for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

from streamlog.groups.assignors.problem import GroupPartition, Problem, Subscriber

_ANY: Final = ""


class Emptiest:
    """`owned` grows. Members that have their `quota` get no more."""

    def __init__(
        self,
        problem: Problem,
        members: Sequence[Subscriber],
        owned: Mapping[str, list[GroupPartition]],
        quota: Mapping[str, int] | None = None,
    ) -> None:
        self._problem = problem
        self._members = members
        self._owned = owned
        self._quota = quota
        self._heaps: dict[str, list[tuple[int, int]]] = {}  # by rack: count, index in `members`; may be of the past
        for index in range(len(members)):
            self._enter(index)

    def give(self, partition: GroupPartition, *, near_only: bool = False) -> bool:
        """Of members with equally few, one in a rack with a replica gets it, or the first. False: none may."""
        near = (self._top(rack) for rack in self._problem.racks_of(partition))
        found = [(top[0], False, top[1]) for top in near if top is not None]
        if not near_only and (top := self._top(_ANY)) is not None:
            found.append((top[0], True, top[1]))
        if not found:
            return False
        index = min(found)[2]
        self._owned[self._members[index].member_id].append(partition)
        self._enter(index)
        return True

    def _enter(self, index: int) -> None:
        member = self._members[index]
        count = len(self._owned[member.member_id])
        if self._quota is None or count < self._quota[member.member_id]:
            for rack in dict.fromkeys((_ANY, member.rack)):
                heappush(self._heaps.setdefault(rack, []), (count, index))

    def _top(self, rack: str) -> tuple[int, int] | None:
        heap = self._heaps.get(rack, [])
        while heap and heap[0][0] != len(self._owned[self._members[heap[0][1]].member_id]):
            heappop(heap)
        return heap[0] if heap else None
