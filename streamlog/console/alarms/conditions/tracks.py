"""What alarms need of the samples before the latest one: when topics were last written, and how old lags are.

Both are known only from the console's start on. A value from before is a lower bound (`exact` is False), so that a
console that was just started neither fires early nor resolves what it has not seen end.

The lag in time of a group in a partition is the age of the first sample whose log end was beyond the committed offset:
the record to be read next was written up to one sample before. Per partition at most POINTS_MAX (time, log end) are
kept, dense where they are recent: the age is too small by less than a third, and exact where the lag is new.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from streamlog.console.collection.sample import Sample
from streamlog.model import TopicPartition

POINTS_MAX: Final = 64


class Age(Struct, frozen=True):
    """`exact` is False: at least `seconds`."""

    seconds: float
    exact: bool


class _Ends(Struct):
    times_s: list[float]
    ends: list[int]


class _Idle(Struct):
    since_s: float
    seen: bool  # a write was seen; else `since_s` is the first sample
    incomplete: bool = False  # ends of partitions were missing in the latest sample


def _least_needed(times_s: list[float], now_s: float) -> int:
    """The point without which the gap is smallest, compared with its age. Never the first one (how far back is known)
    and never the last one.
    """
    return min(
        range(1, len(times_s) - 1), key=lambda at: (times_s[at + 1] - times_s[at - 1]) / (now_s - times_s[at - 1])
    )


class SampleTracks:
    """Grows with the cluster's partitions, and forgets those that were deleted."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, _Ends] = {}
        self._idle: dict[str, _Idle] = {}
        self._now_s = 0.0

    def add(self, sample: Sample) -> None:
        """In order of time. A sample without an answer of the cluster changes nothing."""
        if sample.state.cluster is None or "topics" in sample.state.missing:
            return
        self._now_s = sample.monotonic_s
        read = {at for offsets in sample.committed.values() for at in offsets}
        names = set()
        for topic in sample.topics:
            names.add(topic.name)
            places = [TopicPartition(topic.name, one.partition) for one in topic.partitions]
            self._track_idle(topic.name, places, sample)
            for at in places:
                if at in sample.ends:
                    self._track_end(at, sample.ends[at].log_end, keep=at in read)
        for name in self._idle.keys() - names:
            del self._idle[name]
        for at in [at for at in self._ends if at.topic not in names]:
            del self._ends[at]

    def _track_idle(self, topic: str, places: Collection[TopicPartition], sample: Sample) -> None:
        idle = self._idle.get(topic)
        if idle is None:
            idle = self._idle[topic] = _Idle(self._now_s, seen=False)
        idle.incomplete = any(at not in sample.ends for at in places)
        for at in places:
            last = self._ends.get(at)
            if last is not None and at in sample.ends and sample.ends[at].log_end != last.ends[-1]:
                idle.since_s, idle.seen = self._now_s, True

    def _track_end(self, at: TopicPartition, log_end: int, *, keep: bool) -> None:
        found = self._ends.get(at)
        if found is None or log_end < found.ends[-1] or not keep:  # new, recreated or truncated, or not read by a group
            self._ends[at] = _Ends([self._now_s], [log_end])
        elif log_end > found.ends[-1]:
            found.times_s.append(self._now_s)
            found.ends.append(log_end)
            if len(found.ends) > POINTS_MAX:
                drop = _least_needed(found.times_s, self._now_s)
                del found.times_s[drop], found.ends[drop]

    def idle(self, topic: str) -> Age | None:
        """Since the last write. None: ends of its partitions are unknown now."""
        idle = self._idle.get(topic)
        return None if idle is None or idle.incomplete else Age(self._now_s - idle.since_s, idle.seen)

    def lag_age(self, at: TopicPartition, committed: int) -> Age | None:
        """The age of the record at `committed`, 0 at the end of the log. None: unknown."""
        found = self._ends.get(at)
        if found is None:
            return None
        if committed >= found.ends[-1]:
            return Age(0.0, exact=True)
        first = bisect_right(found.ends, committed)
        return Age(self._now_s - found.times_s[first], exact=first > 0)
