"""Plans the offsets of a micro-batch, and its tasks. Pure.

    start + Bounds of existing records --settled--> start that can be read, and losses
    start, ends --capped--> ends of one micro-batch
    ranges --together, or split--> tasks: each offset in exactly one, in order

Ranges are half-open. Limits count offsets, not records: compaction and transactions leave gaps.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.model import Offset, TopicPartition
from streamlog.spark.source.offsets import Offsets

# A Python task costs Spark 35 ms, over TCP 75, as long as reading about this much takes.
TASK_BYTES: Final = 8_000_000
TASK_RECORDS: Final = 100_000


class Bounds(Struct, frozen=True):
    """earliest <= latest; `latest` is one past the last offset that can be read."""

    earliest: Offset
    latest: Offset


class Range(Struct, frozen=True):
    """start < end, of one partition."""

    partition: TopicPartition
    start: Offset
    end: Offset

    def __len__(self) -> int:
        return self.end - self.start


class Settled(Struct, frozen=True, kw_only=True):
    start: dict[TopicPartition, Offset]  # of all existing partitions
    begin: dict[TopicPartition, Offset]  # of those among them that the given start lacks
    losses: tuple[str, ...]  # offsets to be read that no longer exist, a sentence each


def settled(start: Offsets, bounds: Mapping[TopicPartition, Bounds]) -> Settled:
    """A start within the bounds. A new partition starts at its first record."""
    found: dict[TopicPartition, Offset] = {}
    begin: dict[TopicPartition, Offset] = {}
    losses = [
        f"{one} was deleted, with all records from offset {start[one]} on, or is no longer subscribed"
        for one in sorted(start)
        if one not in bounds
    ]
    for one in sorted(bounds):
        there = bounds[one]
        if one not in start:
            found[one] = begin[one] = there.earliest
            if there.earliest > 0:
                losses.append(f"{one} is new, and its first {there.earliest} offsets were already deleted")
            continue
        found[one] = Offset(min(max(start[one], there.earliest), there.latest))
        if start[one] < there.earliest:
            losses.append(f"{one}: offsets {start[one]} to {there.earliest - 1} were deleted")
        elif start[one] > there.latest:
            losses.append(f"{one} now ends at {there.latest}, but was read up to {start[one]}")
    return Settled(start=found, begin=begin, losses=tuple(losses))


def total(start: Offsets, end: Offsets) -> int:
    return sum(max(0, end[one] - start[one]) for one in end)


def capped(start: Offsets, end: Offsets, offsets_max: int) -> dict[TopicPartition, Offset]:
    """At most `offsets_max` offsets, in proportion to each partition's backlog; at least one for each partition with a
    backlog, even if these are more than `offsets_max`.
    """
    waiting = {one: end[one] - start[one] for one in sorted(end) if end[one] > start[one]}
    backlog = sum(waiting.values())
    if backlog <= offsets_max:
        return dict(end)
    room = max(0, offsets_max - len(waiting))
    spare = backlog - len(waiting)  # beyond the one that each gets
    shares = {one: 1 + (room * (count - 1) // spare if spare else 0) for one, count in waiting.items()}
    left = max(0, offsets_max - sum(shares.values()))
    for one in sorted(waiting, key=lambda one: waiting[one] - shares[one], reverse=True):
        more = min(left, waiting[one] - shares[one], 1)
        shares[one] += more
        left -= more
    return {one: Offset(start[one] + shares.get(one, 0)) for one in end}


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """Those that are not empty."""
    return [Range(one, start[one], end[one]) for one in sorted(end) if end[one] > start[one]]


def split(whole: Iterable[Range], *, at_least: int | None, records_max: int | None) -> list[Range]:
    """Ranges of at most `records_max` offsets; at least `at_least` ranges, where there are as many offsets."""
    given = list(whole)
    pieces = [-(-len(one) // records_max) if records_max else 1 for one in given]
    heap = [(-len(one) / pieces[i], i) for i, one in enumerate(given) if pieces[i] < len(one)]
    heapq.heapify(heap)
    missing = (at_least or 0) - sum(pieces)
    while heap and missing > 0:
        _, i = heapq.heappop(heap)  # the one with the largest pieces
        pieces[i] += 1
        missing -= 1
        if pieces[i] < len(given[i]):
            heapq.heappush(heap, (-len(given[i]) / pieces[i], i))
    return [part for one, count in zip(given, pieces, strict=True) for part in _cut(one, count)]


def tasks(
    whole: Iterable[Range],
    *,
    at_least: int | None,
    records_max: int | None,
    bytes_each: Callable[[], float | None],
) -> list[tuple[Range, ...]]:
    """The ranges of each task. Large ranges are split as the options say; small ones are combined, down to `at_least`
    tasks. `bytes_each`: mean size of an offset on disk; None: unknown. Called only where it is needed.
    """
    given = list(whole)
    if records_max is not None or len(given) <= (at_least or 1):
        return [(one,) for one in split(given, at_least=at_least, records_max=records_max)]
    records = sum(map(len, given))
    count = records // TASK_RECORDS
    if count < len(given):
        count = max(count, int((bytes_each() or 0.0) * records / TASK_BYTES))
    return _together(given, max(at_least or 1, min(len(given), count)))


def _together(given: list[Range], count: int) -> list[tuple[Range, ...]]:
    """`count` tasks of about the same size: each time, the largest range goes to the smallest task."""
    heap = [(0, i) for i in range(count)]
    found: list[list[Range]] = [[] for _ in heap]
    for one in sorted(given, key=len, reverse=True):
        size, i = heapq.heappop(heap)
        found[i].append(one)
        heapq.heappush(heap, (size + len(one), i))
    return [tuple(sorted(some, key=lambda one: one.partition)) for some in found]


def _cut(whole: Range, count: int) -> list[Range]:
    edges = [Offset(whole.start + len(whole) * i // count) for i in range(count + 1)]
    return [Range(whole.partition, start, end) for start, end in itertools.pairwise(edges)]
