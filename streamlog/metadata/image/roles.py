"""Which node plays which role in which partition: an index derived from the partitions, part of every image.

It answers "what does this node lead?", "where is it in sync?", "which partitions have no leader?" in time that grows
with the result and not with the cluster. It is never stored: it is built with the image.

For each role and node there is a map from topic to a bit mask of partitions (bit p for partition p), so an entry costs
a few bytes if a topic has few partitions and 12 KB if it has 100,000. A change of a partition flips the bits of the
changed roles.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from streamlog.metadata.image.sorted_map import REMOVED, Removed, SortedMap
from streamlog.metadata.records import Partition, Replicas
from streamlog.model import NO_BROKER, BrokerId, PartitionId, TopicId

PartitionKey: TypeAlias = tuple[TopicId, PartitionId]
"""A partition of a topic by the topic's id; sorts by topic, then by partition."""

PartitionDifference: TypeAlias = tuple[PartitionId, Partition | None, Partition | None]
"""A partition of some topic before and after; None: not there."""


class Role(enum.IntEnum):
    REPLICA = 0
    PREFERRED = 1  # the first replica
    ISR = 2
    ELR = 3
    OFFLINE = 4
    LEADER = 5
    # Roles of the partition as such are under NO_BROKER.
    LEADERLESS = 6
    REASSIGNED = 7
    LAST_KNOWN_ELR = 8


RoleKey: TypeAlias = tuple[Role, BrokerId]


class RoleIndex:
    __slots__ = ("_masks",)

    def __init__(self) -> None:
        # No mask is zero and no inner map is empty, so that equal partitions give an equal index.
        self._masks: SortedMap[RoleKey, SortedMap[TopicId, int]] = SortedMap()

    def partitions(self, role: Role, broker_id: BrokerId = NO_BROKER) -> Iterator[PartitionKey]:
        """Ascending."""
        for topic_id, mask in self._topics(role, broker_id).items():
            for partition_id in _bits(mask):
                yield topic_id, PartitionId(partition_id)

    def partitions_without(self, role: Role, other: Role, broker_id: BrokerId) -> Iterator[PartitionKey]:
        """Those in which the node plays `role` and not `other`, ascending."""
        others = self._topics(other, broker_id)
        for topic_id, mask in self._topics(role, broker_id).items():
            for partition_id in _bits(mask & ~others.get(topic_id, 0)):
                yield topic_id, PartitionId(partition_id)

    def count(self, role: Role, broker_id: BrokerId = NO_BROKER) -> int:
        return sum(mask.bit_count() for mask in self._topics(role, broker_id).values())

    def count_of_topic(self, role: Role, broker_id: BrokerId, topic_id: TopicId) -> int:
        return self._topics(role, broker_id).get(topic_id, 0).bit_count()

    def any(self, role: Role, broker_id: BrokerId = NO_BROKER) -> bool:
        return (role, broker_id) in self._masks

    def updated(self, changes: Iterable[tuple[TopicId, Iterable[PartitionDifference]]]) -> RoleIndex:
        """The index after changes of partitions; each topic once, and in it each partition once."""
        flips: dict[RoleKey, dict[TopicId, int]] = {}
        for topic_id, differences in changes:
            for key, partition_ids in _changed_roles(differences).items():
                flips.setdefault(key, {})[topic_id] = _mask(partition_ids)
        masks: dict[RoleKey, SortedMap[TopicId, int] | Removed] = {}
        for key, flipped in flips.items():
            old = self._topics(*key)
            new = old.updated({topic: (old.get(topic, 0) ^ mask) or REMOVED for topic, mask in flipped.items()})
            masks[key] = new if len(new) else REMOVED
        derived = RoleIndex()
        derived._masks = self._masks.updated(masks)
        return derived

    def _topics(self, role: Role, broker_id: BrokerId) -> SortedMap[TopicId, int]:
        return self._masks.get((role, broker_id)) or SortedMap()


def _changed_roles(differences: Iterable[PartitionDifference]) -> dict[RoleKey, list[PartitionId]]:
    """For each role and node, the partitions of a topic in which the node gained or lost it."""
    changed: dict[RoleKey, list[PartitionId]] = {}
    for partition_id, old, new in differences:
        for role, before, after in zip(_ROLES, _players(old), _players(new), strict=True):
            if before == after:
                continue
            for broker_id in before:
                if broker_id not in after:
                    changed.setdefault((role, broker_id), []).append(partition_id)
            for broker_id in after:
                if broker_id not in before:
                    changed.setdefault((role, broker_id), []).append(partition_id)
    return changed


_ROLES: Final = tuple(Role)


def _players(partition: Partition | None) -> tuple[Replicas, ...]:
    """The nodes in each role, in the order of Role."""
    if partition is None:
        return _NOBODY
    leaderless = partition.leader == NO_BROKER
    return (
        partition.replicas,
        partition.replicas[:1],
        partition.isr,
        partition.elr,
        partition.offline,
        () if leaderless else (partition.leader,),
        _THE_PARTITION if leaderless else (),
        _THE_PARTITION if partition.adding or partition.removing else (),
        partition.last_known_elr,
    )


_NOBODY: Final[tuple[Replicas, ...]] = ((),) * len(_ROLES)
_THE_PARTITION: Final[Replicas] = (NO_BROKER,)


def _mask(bits: Sequence[int]) -> int:
    """The bits, each of which occurs once. By way of bytes: shifts would copy the number for every bit."""
    if len(bits) == 1:
        return 1 << bits[0]
    buffer = bytearray(max(bits) // 8 + 1)
    for bit in bits:
        buffer[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(buffer, "little")


def _bits(mask: int) -> Iterator[int]:
    """The positions of the ones, ascending. By way of text: one pass, whatever the number's length."""
    digits = f"{mask:b}"[::-1]
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)
