"""What was sent to a member of Consume, and what of it is acknowledged: so much may be committed. Pure.

sent:  record, record, record ...  in the order of the stream, whatever the partition
acknowledged by offset             a partition up to there
acknowledged by credit             so many of the oldest ones

committable <= acknowledged <= sent     in each partition
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

from streamlog.errors import InvalidRequestError
from streamlog.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition


class _Partition(Struct):
    sent: Offset  # one past the last record that was sent
    acknowledged: Offset  # the next offset to read of whoever comes next
    epoch: LeaderEpoch  # of the last record that was sent
    is_new: bool = False  # there is an acknowledgement that was not taken yet


class _InFlight(Struct):
    partition: TopicPartition | None  # None: it was the member's once
    offsets: deque[Offset]  # not empty


class SentRecords:
    """Of one stream."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._once_sent: dict[TopicPartition, Offset] = {}  # one past the last record that ever was
        self._in_flight: deque[_InFlight] = deque()  # where credits acknowledge: in the order of the stream

    def add(self, partition: TopicPartition, offsets: Sequence[Offset], epoch: LeaderEpoch, *, in_order: bool) -> None:
        """These, at least one, are sent now. `in_order`: credits will acknowledge them."""
        following = Offset(offsets[-1] + 1)
        known = self._partitions.get(partition)
        if known is None:
            self._partitions[partition] = _Partition(following, offsets[0], epoch)
        else:
            known.sent, known.epoch = following, epoch
        self._once_sent[partition] = max(following, self._once_sent.get(partition, following))
        if in_order:
            self._in_flight.append(_InFlight(partition, deque(offsets)))

    def acknowledge(self, partition: TopicPartition, last: Offset) -> None:
        """InvalidRequestError beyond what was ever sent. What was sent when the partition was this member's before does
        not count: it is sent again.
        """
        following = self._once_sent.get(partition)
        if following is not None and last >= following:
            raise InvalidRequestError(
                f"offset {last} of {partition} was not sent yet, {following} comes next",
                field="acknowledgements",
                limit=following - 1,
            )
        known = self._partitions.get(partition)
        if known is not None and known.acknowledged <= last < known.sent:
            known.acknowledged, known.is_new = Offset(last + 1), True

    def skip(self, partition: TopicPartition, following: Offset) -> None:
        """Nothing up to there will be sent. It counts as acknowledged where all that was sent is."""
        known = self._partitions.get(partition)
        if known is None:
            self._partitions[partition] = _Partition(following, following, NO_LEADER_EPOCH, is_new=True)
        elif known.acknowledged == known.sent < following:
            known.sent = known.acknowledged = following
            known.epoch, known.is_new = NO_LEADER_EPOCH, True

    def acknowledge_oldest(self, count: int) -> None:
        """By credits. Those beyond what was sent are for what is to come."""
        while count and self._in_flight:
            oldest = self._in_flight[0]
            taken = min(count, len(oldest.offsets))
            count -= taken
            last = [oldest.offsets.popleft() for _ in range(taken)][-1]
            if not oldest.offsets:
                self._in_flight.popleft()
            if oldest.partition is not None:
                self.acknowledge(oldest.partition, last)

    def is_done(self, partitions: Iterable[TopicPartition]) -> bool:
        """All that was sent of these is acknowledged."""
        known = [self._partitions[one] for one in partitions if one in self._partitions]
        return all(one.acknowledged == one.sent for one in known)

    @property
    def is_idle(self) -> bool:
        """The client has nothing to process."""
        return self.is_done(self._partitions)

    def take(self) -> dict[TopicPartition, tuple[Offset, LeaderEpoch | None]]:
        """What is acknowledged and was not taken yet, to be committed; with the epoch of the record before, where it is
        known.
        """
        found: dict[TopicPartition, tuple[Offset, LeaderEpoch | None]] = {}
        for partition, one in self._partitions.items():
            if one.is_new:
                one.is_new = False
                is_known = one.acknowledged == one.sent and one.epoch != NO_LEADER_EPOCH
                found[partition] = one.acknowledged, one.epoch if is_known else None
        return found

    def put_back(self, partitions: Iterable[TopicPartition]) -> None:
        """They could not be committed."""
        for one in partitions:
            if one in self._partitions:
                self._partitions[one].is_new = True

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are the member's no more. Credits for what is in flight count all the same."""
        gone = dict.fromkeys(partitions)
        for one in gone:
            self._partitions.pop(one, None)
        for sent in self._in_flight:
            if sent.partition in gone:
                sent.partition = None
