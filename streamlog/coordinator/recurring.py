"""Which partitions a producer writes to in consecutive transactions.

    it had records in the previous transaction --+--> the next transaction most likely writes to it too
    it is part of this transaction --------------+

Kept in memory alone: a new coordinator starts empty.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamlog.model import ProducerEpoch, TopicPartition

IDS_MAX: Final = 10_000
"""Number of most recently used ids that are remembered."""


class _Wrote(NamedTuple):
    following: ProducerEpoch  # of the next transaction
    partitions: frozenset[TopicPartition]


class Recurring:
    """Of the transactional ids of one shard."""

    __slots__ = ("_wrote",)

    def __init__(self) -> None:
        self._wrote: dict[str, _Wrote] = {}

    def note(self, transactional_id: str, following: ProducerEpoch, partitions: frozenset[TopicPartition]) -> None:
        """A transaction with records in these partitions has ended; the next one has epoch `following`."""
        self._wrote.pop(transactional_id, None)
        self._wrote[transactional_id] = _Wrote(following, partitions)
        if len(self._wrote) > IDS_MAX:
            del self._wrote[next(iter(self._wrote))]

    def of(
        self, transactional_id: str, epoch: ProducerEpoch, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Partitions to open the next transaction with, after the one of this epoch and these partitions."""
        wrote = self._wrote.get(transactional_id)
        return partitions & wrote.partitions if wrote is not None and wrote.following == epoch else frozenset()

    def forget(self, transactional_id: str) -> None:
        """The prediction was wrong."""
        self._wrote.pop(transactional_id, None)
