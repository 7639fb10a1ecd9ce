"""From where to where a micro-batch reads, and in which tasks. Pure.

    start + Bounds of what there is --settled--> start that can be read, and what is lost
    start, ends --capped--> ends of one micro-batch
    ranges --together, or split--> tasks: each offset in exactly one, in order

Ranges are half-open. Offsets are counted, not records: compaction and transactions leave gaps in them.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.model import Offset, TopicPartition
from streamlog.spark.source.offsets import Offsets

# A task in Python costs Spark 35 ms, over TCP 75, whatever it reads: as long as about so much takes to be read.
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
    start: dict[TopicPartition, Offset]  # of all partitions that there are
    begin: dict[TopicPartition, Offset]  # of those among them that the given start has not
    losses: tuple[str, ...]  # what was to be read and is gone, a sentence each


def settled(start: Offsets, bounds: Mapping[TopicPartition, Bounds]) -> Settled:
    """A start within the bounds. A partition that has come since begins at its first record."""
    found: dict[TopicPartition, Offset] = {}
    begin: dict[TopicPartition, Offset] = {}
    losses = [
        f"{one} is gone, and with it what came after offset {start[one]}" for one in sorted(start) if one not in bounds
    ]
    for one in sorted(bounds):
        there = bounds[one]
        if one not in start:
            found[one] = begin[one] = there.earliest
            if there.earliest > 0:
                losses.append(f"{one} is new, and its first {there.earliest} offsets are gone already")
            continue
        found[one] = Offset(min(max(start[one], there.earliest), there.latest))
        if start[one] < there.earliest:
            losses.append(f"{one}: offsets {start[one]} to {there.earliest - 1} are gone")
        elif start[one] > there.latest:
            losses.append(f"{one} ends at {there.latest} now, and had been read up to {start[one]}")
    return Settled(start=found, begin=begin, losses=tuple(losses))


def total(start: Offsets, end: Offsets) -> int:
    return sum(max(0, end[one] - start[one]) for one in end)


def capped(start: Offsets, end: Offsets, offsets_max: int) -> dict[TopicPartition, Offset]:
    """At most so many offsets, shared by what each partition has; at least one of each that has any, so that none
    starves, be they more than `offsets_max`.
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
    """Ranges of at most `records_max` offsets, `at_least` in all where there are so many offsets."""
    given = list(whole)
    pieces = [-(-len(one) // records_max) if records_max else 1 for one in given]
    heap = [(-len(one) / pieces[i], i) for i, one in enumerate(given) if pieces[i] < len(one)]
    heapq.heapify(heap)
    missing = (at_least or 0) - sum(pieces)
    while heap and missing > 0:
        _, i = heapq.heappop(heap)  # that with the largest pieces
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
    """What one task reads each. Large ranges are split where that is asked for; small ones go together, as long as
    there are `at_least`. `bytes_each`: of one offset, on disk; None: that is not known. Asked where it decides.
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
    """`count` tasks of about the same size: the largest range goes to the smallest task."""
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
