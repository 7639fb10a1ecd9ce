"""Where replicas should be so that all nodes have the same number of them. Pure.

    1 replicas on nodes that are not targets go to the target with the fewest
    2 from the node with the most to the one with the fewest, until they differ by one at most
    3 the first replicas, which lead, are exchanged within partitions in the same way

A partition keeps as many replicas, and at least as many racks as it has. Of the partitions that may move, one of the
topic that is the most uneven between both nodes does, so topics are spread as well. What need not move does not.

The partitions that may move are in heaps, by source and target. A move adds its partition again, where it may move now,
and its topic, where that comes earlier now; entries that no longer hold are dropped when they are met.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush, heapreplace

from msgspec import Struct, field

from streamlog.model import TopicPartition

Replicas = tuple[int, ...]


class Move(Struct, frozen=True, kw_only=True):
    at: TopicPartition
    before: Replicas
    after: Replicas

    @property
    def added(self) -> Replicas:
        """Nodes that copy the partition."""
        return tuple(node for node in self.after if node not in self.before)


class NotEnoughNodesError(Exception):
    """Its text: which partition has more replicas than there are targets."""


def moves(
    current: Mapping[TopicPartition, Replicas],
    targets: Mapping[int, str],
    *,
    movable: Collection[TopicPartition] | None = None,
) -> list[Move]:
    """Sorted by partition. `targets`: racks of the nodes that may have replicas; `movable`: the others stay where they
    are, and count. None: all may move. NotEnoughNodesError.
    """
    placement = _Placement(current, targets, current.keys() if movable is None else movable)
    placement.leave_others()
    placement.even_replicas()
    placement.even_leaders()
    return [
        Move(at=at, before=current[at], after=tuple(after))
        for at, after in sorted(placement.replicas.items())
        if tuple(after) != current[at]
    ]


class _Candidates(Struct):
    """What may move from one node to another: topics by evenness, the least even first, and the partitions of each."""

    topics: list[tuple[int, str]] = field(default_factory=list)
    partitions: defaultdict[str, list[TopicPartition]] = field(default_factory=lambda: defaultdict(list))

    def add(self, at: TopicPartition, evenness: int) -> None:
        heappush(self.partitions[at.topic], at)
        heappush(self.topics, (evenness, at.topic))


class _Placement:
    def __init__(
        self,
        current: Mapping[TopicPartition, Replicas],
        targets: Mapping[int, str],
        movable: Collection[TopicPartition],
    ) -> None:
        self._racks = targets
        self._movable = frozenset(movable)
        self.replicas = {at: list(replicas) for at, replicas in current.items()}
        self._on: dict[int, set[TopicPartition]] = {node: set() for node in targets}  # movable ones
        self._counts: Counter[int] = Counter(dict.fromkeys(targets, 0))
        self._topics: Counter[tuple[int, str]] = Counter()
        self._candidates: dict[tuple[int, int], _Candidates] = {}  # by source and target, of those looked at
        for at, replicas in current.items():
            for node in replicas:
                self._note(at, node, 1)

    def _note(self, at: TopicPartition, node: int, sign: int) -> None:
        self._counts[node] += sign
        self._topics[node, at.topic] += sign
        if at in self._movable:
            some = self._on.setdefault(node, set())
            some.add(at) if sign > 0 else some.discard(at)

    def _move(self, at: TopicPartition, source: int, target: int) -> None:
        replicas = self.replicas[at]
        replicas[replicas.index(source)] = target
        self._note(at, source, -1)
        self._note(at, target, 1)
        for node in self._racks:
            for one in replicas:
                self._add(at, one, node)
            for pair in ((target, node), (node, source)):
                if pair in self._candidates:
                    heappush(self._candidates[pair].topics, (self._evenness(at.topic, *pair), at.topic))

    def _add(self, at: TopicPartition, source: int, target: int) -> None:
        candidates = self._candidates.get((source, target))
        if candidates is not None and self._may_move(at, source, target):
            candidates.add(at, self._evenness(at.topic, source, target))

    def leave_others(self) -> None:
        for node in sorted(self._on.keys() - self._racks.keys()):
            for at in sorted(self._on[node]):
                others = [one for one in self._racks if one not in self.replicas[at]]
                if not others:
                    raise NotEnoughNodesError(
                        f"{at} has {len(self.replicas[at])} replicas, more than there are nodes, {len(self._racks)}"
                    )
                racks = {self._racks.get(one, "") for one in self.replicas[at] if one != node}
                self._move(at, node, min(others, key=lambda one: (self._racks[one] in racks, self._counts[one], one)))

    def even_replicas(self) -> None:
        while True:
            by_count = sorted(self._racks, key=lambda node: (self._counts[node], node))
            if not any(
                self._shift(source, target)
                for source in reversed(by_count)
                for target in by_count
                if self._counts[source] - self._counts[target] > 1
            ):
                return

    def _shift(self, source: int, target: int) -> bool:
        """One replica of the best partition, if there is one."""
        candidates = self._candidates.get((source, target))
        if candidates is None:
            candidates = self._candidates[source, target] = _Candidates()
            for at in self._on[source]:
                self._add(at, source, target)
        while candidates.topics:
            known, topic = candidates.topics[0]
            some = candidates.partitions[topic]
            while some and not self._may_move(some[0], source, target):
                heappop(some)
            evenness = self._evenness(topic, source, target)
            if not some:
                heappop(candidates.topics)
            elif evenness > known:
                heapreplace(candidates.topics, (evenness, topic))
            else:
                self._move(some[0], source, target)
                return True
        return False

    def _may_move(self, at: TopicPartition, source: int, target: int) -> bool:
        replicas = self.replicas[at]
        return source in replicas and target not in replicas and self._keeps_racks(at, source, target)

    def _evenness(self, topic: str, source: int, target: int) -> int:
        return self._topics[target, topic] - self._topics[source, topic]

    def _keeps_racks(self, at: TopicPartition, source: int, target: int) -> bool:
        before = self._rack_count(self.replicas[at])
        return self._rack_count(target if node == source else node for node in self.replicas[at]) >= before

    def _rack_count(self, nodes: Iterable[int]) -> int:
        return len({self._racks.get(node, "") for node in nodes})

    def even_leaders(self) -> None:
        leaders = Counter(replicas[0] for replicas in self.replicas.values() if replicas)
        led: defaultdict[tuple[int, int], list[TopicPartition]] = defaultdict(list)  # by first and other replica
        for at in sorted(self._movable & self.replicas.keys()):
            for node in self.replicas[at][1:]:
                led[self.replicas[at][0], node].append(at)
        while any(
            self._hand_over(leaders, led, source)
            for source in sorted(self._racks, key=lambda one: (-leaders[one], one))
        ):
            pass

    def _hand_over(
        self, leaders: Counter[int], led: defaultdict[tuple[int, int], list[TopicPartition]], source: int
    ) -> bool:
        """One leadership of `source`, to the replica with the fewest."""
        best: tuple[int, TopicPartition, int] | None = None
        for node in self._racks:
            some = led[source, node]
            if leaders[source] - leaders[node] > 1:
                while some and self.replicas[some[0]][0] != source:
                    heappop(some)
                if some and (best is None or (leaders[node], some[0], node) < best):
                    best = (leaders[node], some[0], node)
        if best is None:
            return False
        _, at, node = best
        replicas = self.replicas[at]
        index = replicas.index(node)
        replicas[0], replicas[index] = node, source
        for other in replicas[1:]:
            heappush(led[node, other], at)
        leaders[source] -= 1
        leaders[node] += 1
        return True


def counts(current: Iterable[Sequence[int]], nodes: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Of each node: replicas, and those that are first."""
    found = {node: [0, 0] for node in nodes}
    for replicas in current:
        for index, node in enumerate(replicas):
            one = found.setdefault(node, [0, 0])
            one[0] += 1
            one[1] += index == 0
    return {node: (count, leading) for node, (count, leading) in sorted(found.items())}
