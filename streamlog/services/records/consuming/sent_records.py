"""The records sent on a Consume stream, and which of them are acknowledged and may be committed. Pure.

sent:  record, record, record ...  in the order of the stream, across partitions
acknowledged by offset             a partition up to that offset
acknowledged by credit             the oldest records, one for each credit

committable <= acknowledged <= sent     in each partition
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec import Struct

from streamlog.errors import InvalidRequestError
from streamlog.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition


class _Partition(Struct):
    sent: Offset  # one past the last sent record
    acknowledged: Offset  # the offset at which the next member starts
    epoch: LeaderEpoch  # of the last sent record
    is_new: bool = False  # there is an acknowledgement that was not taken yet


class _InFlight(Struct):
    partition: TopicPartition | None  # None: no longer assigned to the member
    offsets: deque[Offset]  # not empty


class SentRecords:
    """Of one stream."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._once_sent: dict[TopicPartition, Offset] = {}  # one past the last record ever sent
        self._in_flight: deque[_InFlight] = deque()  # where credits acknowledge: in the order of the stream

    def add(self, partition: TopicPartition, offsets: Sequence[Offset], epoch: LeaderEpoch, *, in_order: bool) -> None:
        """At least one record is sent now. `in_order`: credits will acknowledge them."""
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
        """InvalidRequestError for an offset that was never sent. Records that were sent during an earlier assignment of
        the partition do not count: they are sent again.
        """
        following = self._once_sent.get(partition)
        if following is not None and last >= following:
            raise InvalidRequestError(
                f"offset {last} of {partition} is acknowledged, but only records below {following} were sent",
                field="acknowledgements",
                limit=following - 1,
            )
        known = self._partitions.get(partition)
        if known is not None and known.acknowledged <= last < known.sent:
            known.acknowledged, known.is_new = Offset(last + 1), True

    def skip(self, partition: TopicPartition, following: Offset) -> None:
        """Nothing below `following` will be sent. It counts as acknowledged if everything sent so far is."""
        known = self._partitions.get(partition)
        if known is None:
            self._partitions[partition] = _Partition(following, following, NO_LEADER_EPOCH, is_new=True)
        elif known.acknowledged == known.sent < following:
            known.sent = known.acknowledged = following
            known.epoch, known.is_new = NO_LEADER_EPOCH, True

    def acknowledge_oldest(self, count: int) -> None:
        """By credits. Those beyond the sent records do not acknowledge."""
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
        """All records sent of these are acknowledged."""
        known = [self._partitions[one] for one in partitions if one in self._partitions]
        return all(one.acknowledged == one.sent for one in known)

    @property
    def is_idle(self) -> bool:
        """The client has no unacknowledged records."""
        return self.is_done(self._partitions)

    def take(self) -> dict[TopicPartition, tuple[Offset, LeaderEpoch | None]]:
        """Acknowledged offsets that were not taken yet, to be committed; with the epoch of the last record before each,
        if known.
        """
        found: dict[TopicPartition, tuple[Offset, LeaderEpoch | None]] = {}
        for partition, one in self._partitions.items():
            if one.is_new:
                one.is_new = False
                is_known = one.acknowledged == one.sent and one.epoch != NO_LEADER_EPOCH
                found[partition] = one.acknowledged, one.epoch if is_known else None
        return found

    def put_back(self, partitions: Iterable[TopicPartition]) -> None:
        """The commit failed."""
        for one in partitions:
            if one in self._partitions:
                self._partitions[one].is_new = True

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are no longer assigned. Credits still count for their records in flight."""
        gone = dict.fromkeys(partitions)
        for one in gone:
            self._partitions.pop(one, None)
        for sent in self._in_flight:
            if sent.partition in gone:
                sent.partition = None
