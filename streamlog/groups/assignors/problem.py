"""Input and output of an assignor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from streamlog.model import PartitionId, TopicId


class GroupPartition(NamedTuple):
    """A partition by its topic's id: that of a recreated topic is a different one."""

    topic_id: TopicId
    partition: PartitionId


class Subscriber(Struct, frozen=True, kw_only=True):
    """One member, as an assignor sees it."""

    member_id: str
    topics: frozenset[TopicId]  # its subscription; topics that do not exist are ignored
    instance_id: str = ""  # `group.instance.id` of a static member
    rack: str = ""  # empty: unknown
    owned: frozenset[GroupPartition] = frozenset()  # its previous target


class TopicShape(Struct, frozen=True, kw_only=True):
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()  # of each partition's replicas; empty: unknown


Assignment: TypeAlias = Mapping[str, tuple[GroupPartition, ...]]
"""By member id, an entry for each member; partitions ascend."""


class Problem(Struct, frozen=True, dict=True):
    """Assignors visit members and topics in the order of `members` and `topic_ids` only."""

    subscribers: Mapping[str, Subscriber]
    topics: Mapping[TopicId, TopicShape]

    @cached_property
    def members(self) -> tuple[Subscriber, ...]:
        """Static members first, by instance id: their order outlives a restart. Then the others, by member id."""
        return tuple(sorted(self.subscribers.values(), key=lambda s: (not s.instance_id, s.instance_id, s.member_id)))

    @cached_property
    def _lists(self) -> Mapping[frozenset[TopicId], list[int]]:
        """The different sets of topics, with the places of their members: thousands may share one of thousands."""
        found: dict[frozenset[TopicId], list[int]] = {}
        for place, member in enumerate(self.members):
            found.setdefault(member.topics, []).append(place)
        return found

    @cached_property
    def topic_ids(self) -> tuple[TopicId, ...]:
        """Existing topics with a subscriber, ascending."""
        wanted = frozenset[TopicId]().union(*self._lists)
        return tuple(sorted(topic_id for topic_id in wanted if topic_id in self.topics))

    @cached_property
    def _lists_of(self) -> Mapping[TopicId, tuple[int, ...]]:
        """The numbers of the sets that have a topic."""
        found: dict[TopicId, list[int]] = {topic_id: [] for topic_id in self.topic_ids}
        for number, topics in enumerate(self._lists):
            for topic_id in sorted(topics):
                if topic_id in found:
                    found[topic_id].append(number)
        return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}

    @cached_property
    def kinds(self) -> Mapping[TopicId, int]:
        """Topics with the same subscribers have the same number."""
        numbers: dict[tuple[int, ...], int] = {}
        return {topic_id: numbers.setdefault(lists, len(numbers)) for topic_id, lists in self._lists_of.items()}

    @cached_property
    def subscribers_of(self) -> Mapping[TopicId, tuple[Subscriber, ...]]:
        """Topics of one kind share a tuple."""
        places = list(self._lists.values())
        found: dict[int, tuple[Subscriber, ...]] = {}
        for topic_id, lists in self._lists_of.items():
            if self.kinds[topic_id] not in found:
                some = sorted(chain.from_iterable(places[number] for number in lists))
                found[self.kinds[topic_id]] = tuple(self.members[place] for place in some)
        return {topic_id: found[kind] for topic_id, kind in self.kinds.items()}

    @cached_property
    def is_alike(self) -> bool:
        """All members subscribe to the same existing topics."""
        existing = frozenset(self.topic_ids)
        return all(existing <= topics for topics in self._lists)

    def partitions_of(self, topic_id: TopicId) -> list[GroupPartition]:
        count = self.topics[topic_id].partition_count
        return [GroupPartition(topic_id, PartitionId(index)) for index in range(count)]

    def racks_of(self, partition: GroupPartition) -> frozenset[str]:
        """Of its replicas; empty: unknown."""
        racks = self.topics[partition.topic_id].racks
        return racks[partition.partition] if partition.partition < len(racks) else frozenset()

    def is_near(self, subscriber: Subscriber, partition: GroupPartition) -> bool:
        """A replica stands in the member's rack."""
        return bool(subscriber.rack) and subscriber.rack in self.racks_of(partition)


def as_assignment(problem: Problem, owned: Mapping[str, list[GroupPartition]]) -> Assignment:
    return {member.member_id: tuple(sorted(owned.get(member.member_id, ()))) for member in problem.members}
