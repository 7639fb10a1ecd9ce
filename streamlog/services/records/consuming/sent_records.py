"""The records sent on a Consume stream, and which of them are acknowledged and may be committed. Pure.

sent:  record, record, record ...  in the order of the stream, across partitions
acknowledged by offset             a partition up to that offset
acknowledged by credit             the oldest records, one for each credit

committable <= acknowledged <= sent     in each partition

With credits a client may leave a million records unacknowledged. They are kept as runs of consecutive offsets, 16 bytes
each: mostly a run is what is sent of a partition before another one, at worst it is one record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from operator import add
from typing import Final

from msgspec import Struct

from streamlog.errors import InvalidRequestError
from streamlog.model import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

_TAKEN_MAX: Final = 4_096
"""Runs at the front that are acknowledged; beyond it they are removed once they are half of all."""
_RUNS_AT_ONCE: Final = 256


class _Partition(Struct):
    sent: Offset  # one past the last sent record
    acknowledged: Offset  # the offset at which the next member starts
    epoch: LeaderEpoch  # of the last sent record
    is_new: bool = False  # there is an acknowledgement that was not taken yet


class _InFlight:
    """The records that credits acknowledge, in the order of the stream."""

    __slots__ = ("_counts", "_firsts", "_numbers", "_taken")

    def __init__(self) -> None:
        # One item for each run: of which partition, by a number, its first offset, and how many records it has.
        self._numbers = array("i")
        self._firsts = array("q")
        self._counts = array("i")
        self._taken = 0  # runs at the front

    def add(self, number: int, offsets: Sequence[Offset]) -> None:
        """`offsets`: rising, at least one."""
        if offsets[-1] - offsets[0] == len(offsets) - 1:
            self._add(number, offsets[0], len(offsets))
            return
        first, count = offsets[0], 0
        for offset in offsets:
            if offset != first + count:
                self._add(number, first, count)
                first, count = offset, 0
            count += 1
        self._add(number, first, count)

    def _add(self, number: int, first: int, count: int) -> None:
        numbers, firsts, counts = self._numbers, self._firsts, self._counts
        if len(numbers) > self._taken and numbers[-1] == number and firsts[-1] + counts[-1] == first:
            counts[-1] += count
            return
        numbers.append(number)
        firsts.append(first)
        counts.append(count)

    def take(self, count: int) -> dict[int, int]:
        """At most so many of the oldest ones. Returns the offset behind these in each partition."""
        numbers, firsts, counts = self._numbers, self._firsts, self._counts
        at, end = self._taken, len(numbers)
        behind: dict[int, int] = {}
        while count and at < end:
            # Whole runs, many at once: a client may acknowledge a million of them together.
            some = slice(at, at + min(count, _RUNS_AT_ONCE))
            records = sum(counts[some])
            if records > count:
                some, records = slice(at, at + 1), min(count, counts[at])
            if records < counts[at]:
                firsts[at] += records
                counts[at] -= records
                behind[numbers[at]] = firsts[at]
                break
            behind.update(zip(numbers[some], map(add, firsts[some], counts[some]), strict=True))
            at, count = min(some.stop, end), count - records
        if at == end or (at > _TAKEN_MAX and 2 * at > end):
            del numbers[:at], firsts[:at], counts[:at]
            at = 0
        self._taken = at
        return behind


class SentRecords:
    """Of one stream."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._once_sent: dict[TopicPartition, Offset] = {}  # one past the last record ever sent
        self._in_flight = _InFlight()
        # Of the partitions in it; another one for each assignment, so that nothing in it changes when one ends.
        self._numbers: dict[TopicPartition, int] = {}
        self._by_number: dict[int, TopicPartition] = {}
        self._next_number = 0

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
            self._in_flight.add(self._number_of(partition), offsets)

    def _number_of(self, partition: TopicPartition) -> int:
        number = self._numbers.get(partition)
        if number is None:
            number = self._numbers[partition] = self._next_number
            self._by_number[number] = partition
            self._next_number += 1
        return number

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
        for number, following in self._in_flight.take(count).items():
            partition = self._by_number.get(number)
            if partition is not None:
                self.acknowledge(partition, Offset(following - 1))

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
        for one in partitions:
            self._partitions.pop(one, None)
            number = self._numbers.pop(one, None)
            if number is not None:
                del self._by_number[number]
