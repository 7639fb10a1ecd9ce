"""Which partitions a producer writes to in one transaction after another.

    its marker has ended something in the transaction before --+--> the next transaction most likely has it too
    it is part of this transaction ----------------------------+

Remembered, not written down: a coordinator that takes over learns it anew.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamlog.model import ProducerEpoch, TopicPartition

IDS_MAX: Final = 10_000
"""The ids that have been used last; others begin anew."""


class _Wrote(NamedTuple):
    following: ProducerEpoch  # of the transaction behind it
    partitions: frozenset[TopicPartition]


class Recurring:
    """Of the transactional ids of one shard."""

    __slots__ = ("_wrote",)

    def __init__(self) -> None:
        self._wrote: dict[str, _Wrote] = {}

    def note(self, transactional_id: str, following: ProducerEpoch, partitions: frozenset[TopicPartition]) -> None:
        """In these a transaction has ended that had records; the next one is of epoch `following`."""
        self._wrote.pop(transactional_id, None)
        self._wrote[transactional_id] = _Wrote(following, partitions)
        if len(self._wrote) > IDS_MAX:
            del self._wrote[next(iter(self._wrote))]

    def of(
        self, transactional_id: str, epoch: ProducerEpoch, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """For the transaction behind that of this epoch and these partitions."""
        wrote = self._wrote.get(transactional_id)
        return partitions & wrote.partitions if wrote is not None and wrote.following == epoch else frozenset()

    def forget(self, transactional_id: str) -> None:
        """It goes on in another way."""
        self._wrote.pop(transactional_id, None)
