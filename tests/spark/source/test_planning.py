"""Starts, caps and splits over values alone; random ones against what must hold of all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.spark.failures import OptionError, StreamlogSparkError
from streamlog.spark.options import Options
from streamlog.spark.source.offsets import begin_of, from_json, to_json
from streamlog.spark.source.planning import Bounds, Range, capped, ranges, settled, split, tasks, total
from streamlog.spark.source.starts import EARLIEST, check_starts, ending, starting


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, PartitionId(number))


P0, P1, P2 = tp(0), tp(1), tp(2)


class FakePlaces:
    """Partition n holds offsets [10 n, 100 + n), each of the time 1000 + its number."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {one: Offset(10 * one.partition) for one in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {one: Offset(100 + one.partition) for one in partitions}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        first, last = self.earliest(times), self.latest(times)
        return {one: Offset(max(first[one], at - 1000)) if at - 1000 < last[one] else None for one, at in times.items()}


def options(**given: str) -> Options:
    return Options.parse({"streamlog.bootstrap.servers": "h:1", "subscribe": "orders"} | given)


def starts(**given: str) -> dict[TopicPartition, Offset]:
    return starting(options(**given), (P0, P1), FakePlaces(), default=EARLIEST)


def test_where_reading_starts() -> None:
    assert starts() == {P0: 0, P1: 10}
    assert starts(startingOffsets="latest") == {P0: 100, P1: 101}
    assert starts(startingOffsets='{"orders": {"0": 7, "1": -1}}') == {P0: 7, P1: 101}
    assert starts(startingOffsets='{"orders": {"0": -2, "1": 12}}') == {P0: 0, P1: 12}
    assert starts(startingTimestamp="1005") == {P0: 5, P1: 10}
    assert starts(startingOffsetsByTimestamp='{"orders": {"0": 1003, "1": 1044}}') == {P0: 3, P1: 44}


def test_the_nearest_option_goes_first() -> None:
    times = '{"orders": {"0": 1003, "1": 1044}}'
    assert starts(startingOffsets="latest", startingOffsetsByTimestamp=times) == {P0: 3, P1: 44}
    both = starts(startingOffsets="latest", startingOffsetsByTimestamp=times, startingTimestamp="1020")
    assert both == {P0: 20, P1: 20}


def test_a_time_after_the_last_record() -> None:
    with pytest.raises(OptionError, match="orders-0 has no record with timestamp 5000") as caught:
        starts(startingTimestamp="5000")
    assert caught.value.option == "startingTimestamp"
    assert starts(startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest") == {P0: 100, P1: 101}


@pytest.mark.parametrize("given", ['{"orders": {"0": 7}}', '{"orders": {"0": 7, "1": 7, "2": 7}}', '{"x": {"0": 1}}'])
def test_offsets_name_every_partition_and_no_other(given: str) -> None:
    with pytest.raises(OptionError, match="option startingOffsets: "):
        starts(startingOffsets=given)


def test_a_start_after_the_end_is_an_error_of_the_option() -> None:
    bounds = {one: Bounds(Offset(0), Offset(100)) for one in (P0, P1)}
    offsets = '{"orders": {"0": 101, "1": -1}}'
    start = {P0: Offset(101), P1: Offset(101)}
    with pytest.raises(OptionError, match="option startingOffsets: orders-0 ends at 100, before the requested 101"):
        check_starts(options(startingOffsets=offsets), start, bounds)
    check_starts(options(startingOffsets=offsets, failOnDataLoss="false"), start, bounds)
    check_starts(options(startingOffsets=offsets), start | {P0: Offset(100)}, bounds)  # -1 is no number of the user's
    check_starts(options(startingOffsets=offsets, startingTimestamp="1005"), start, bounds)
    check_starts(options(startingOffsets="latest"), start, bounds)


def test_where_reading_ends() -> None:
    def ends(**given: str) -> dict[TopicPartition, Offset]:
        return ending(options(**given), (P0, P1), FakePlaces())

    assert ends() == {P0: 100, P1: 101}
    assert ends(endingOffsets='{"orders": {"0": 7, "1": -1}}') == {P0: 7, P1: 101}
    assert ends(endingTimestamp="1101", endingOffsets='{"orders": {"0": 7, "1": -1}}') == {P0: 100, P1: 101}
    assert ends(endingOffsetsByTimestamp='{"orders": {"0": 1007, "1": 1050}}') == {P0: 7, P1: 50}


def test_lost_offsets_are_reported() -> None:
    bounds = {P0: Bounds(Offset(5), Offset(50)), P1: Bounds(Offset(0), Offset(9))}
    found = settled({P0: Offset(5), P1: Offset(9)}, bounds)
    assert (found.losses, found.begin) == ((), {})

    trimmed = settled({P0: Offset(3), P1: Offset(0)}, bounds)
    assert trimmed.losses == ("orders-0: offsets 3 to 4 were deleted",)
    assert trimmed.start == {P0: 5, P1: 0}

    shorter = settled({P0: Offset(60), P1: Offset(0)}, bounds)
    assert shorter.losses == ("orders-0 now ends at 50, but was read up to 60",)
    assert shorter.start[P0] == 50

    deleted = settled({P0: Offset(5), P1: Offset(0), P2: Offset(7)}, bounds)
    assert deleted.losses == ("orders-2 was deleted, with all records from offset 7 on, or is no longer subscribed",)
    assert P2 not in deleted.start


def test_a_partition_that_comes_begins_at_its_first_record() -> None:
    found = settled({P0: Offset(5)}, {P0: Bounds(Offset(0), Offset(5)), P1: Bounds(Offset(0), Offset(3))})
    assert found.start == {P0: 5, P1: 0}
    assert found.begin == {P1: 0}
    assert found.losses == ()
    late = settled({}, {P1: Bounds(Offset(2), Offset(3))})
    assert late.losses == ("orders-1 is new, and its first 2 offsets were already deleted",)


waiting = st.dictionaries(st.builds(tp, st.integers(0, 12)), st.integers(0, 10_000), max_size=12)


@given(waiting, st.integers(1, 30_000))
def test_a_cap_is_kept_and_starves_no_partition(counts: dict[TopicPartition, int], most: int) -> None:
    start = {one: Offset(100 * one.partition) for one in counts}
    end = {one: Offset(start[one] + count) for one, count in counts.items()}
    some = capped(start, end, most)
    busy = [one for one, count in counts.items() if count]
    assert all(start[one] <= some[one] <= end[one] for one in end)
    assert all(some[one] > start[one] for one in busy)
    assert total(start, some) <= max(most, len(busy))
    assert total(start, some) >= min(most, sum(counts.values())) - len(busy)


@given(waiting)
def test_micro_batches_cover_each_offset_once(counts: dict[TopicPartition, int]) -> None:
    at: dict[TopicPartition, Offset] = {one: Offset(0) for one in counts}
    end = {one: Offset(count) for one, count in counts.items()}
    seen = dict.fromkeys(counts, 0)
    for _ in range(100):
        after = capped(at, end, 2_000)
        for part in ranges(at, after):
            assert part.start == seen[part.partition]
            seen[part.partition] = part.end
        at = after
    assert seen == counts


@given(waiting, st.none() | st.integers(1, 60), st.none() | st.integers(1, 5_000))
def test_tasks_cover_each_offset_once(counts: dict[TopicPartition, int], least: int | None, most: int | None) -> None:
    whole = ranges({one: Offset(7) for one in counts}, {one: Offset(7 + count) for one, count in counts.items()})
    tasks = split(whole, at_least=least, records_max=most)
    at: dict[TopicPartition, int] = {}
    for one in tasks:
        assert len(one) > 0
        assert at.setdefault(one.partition, 7) == one.start
        at[one.partition] = one.end
        assert most is None or len(one) <= most
    assert at == {one: 7 + count for one, count in counts.items() if count}
    assert len(tasks) >= min(least or 0, sum(counts.values()))


def test_the_largest_range_is_split_first() -> None:
    tasks = split([Range(P0, Offset(0), Offset(900)), Range(P1, Offset(0), Offset(90))], at_least=4, records_max=None)
    assert [(one.partition, len(one)) for one in tasks] == [(P0, 300), (P0, 300), (P0, 300), (P1, 90)]


offsets = st.dictionaries(
    st.builds(tp, st.integers(0, 2_000), st.sampled_from(["a", "orders", "a.b-c_d", "_start"])),
    st.integers(0, 2**62).map(Offset),
    max_size=20,
)


@given(offsets, offsets)
def test_offsets_as_json(some: dict[TopicPartition, Offset], begin: dict[TopicPartition, Offset]) -> None:
    found = json.loads(json.dumps(to_json(some, begin)))
    assert from_json(found) == some
    assert begin_of(found) == begin
    shuffled = dict(reversed(list(some.items())))
    assert json.dumps(to_json(shuffled)) == json.dumps(to_json(some))  # Spark compares the texts


def test_a_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(StreamlogSparkError, match="offsets of another source"):
        from_json({"logOffset": 3})


def of_sizes(*sizes: int) -> list[Range]:
    return [Range(TopicPartition("t", PartitionId(n)), Offset(0), Offset(size)) for n, size in enumerate(sizes)]


def planned(whole: list[Range], *, bytes_each: float | None = 100.0, **more: int | None) -> list[list[int]]:
    """Partitions by task."""
    options = {"at_least": None, "records_max": None} | more
    return [
        [int(one.partition.partition) for one in some]
        for some in tasks(whole, bytes_each=lambda: bytes_each, **options)
    ]


def test_small_ranges_go_together_in_tasks_of_about_one_size() -> None:
    assert planned(of_sizes(*[33_000] * 6)) == [[0, 2, 4], [1, 3, 5]]
    assert planned(of_sizes(*[3_300] * 6), bytes_each=1_000.0) == [[0, 2, 4], [1, 3, 5]]
    assert planned(of_sizes(1, 2, 3), bytes_each=None) == [[0, 1, 2]]
    assert planned(of_sizes(90_000, 10_000, 50_000, 60_000)) == [[0, 1], [2, 3]]


def test_large_ranges_have_a_task_each() -> None:
    assert tasks(of_sizes(10**6, 10**6), at_least=None, records_max=None, bytes_each=pytest.fail) == [
        (one,) for one in of_sizes(10**6, 10**6)
    ], "how large their records are is not asked"
    assert planned(of_sizes(10**6, 10**6, 10**6)) == [[0], [1], [2]]
    assert planned(of_sizes(10**9)) == [[0]]
    assert planned([]) == []


def test_who_says_how_many_tasks_there_are_gets_them() -> None:
    assert planned(of_sizes(1, 1, 1, 1), at_least=4) == [[0], [1], [2], [3]]
    assert planned(of_sizes(1, 1, 1, 1), at_least=3) == [[0, 3], [1], [2]]
    assert planned(of_sizes(4, 4), at_least=4) == [[0], [0], [1], [1]]
    assert planned(of_sizes(2, 1, 1), records_max=1) == [[0], [0], [1], [2]]


@given(
    st.lists(st.integers(1, 10**7), max_size=30),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(10**4, 10**7),
    st.none() | st.floats(1.0, 1e5),
)
def test_each_offset_is_in_one_task(
    sizes: list[int], at_least: int | None, records_max: int | None, bytes_each: float | None
) -> None:
    whole = of_sizes(*sizes)
    found = tasks(whole, at_least=at_least, records_max=records_max, bytes_each=lambda: bytes_each)
    parts = sorted((one for some in found for one in some), key=lambda one: (one.partition, one.start))
    assert ranges_joined(parts) == whole
    assert all(some for some in found), "none is empty"
    assert all(len({one.partition for one in some}) == len(some) for some in found)
    assert len(found) >= min(at_least or 0, sum(sizes))


def ranges_joined(parts: list[Range]) -> list[Range]:
    """Neighbours as one, where one begins where the other ends."""
    joined: list[Range] = []
    for one in parts:
        if joined and joined[-1].partition == one.partition:
            assert joined[-1].end == one.start
            one = Range(one.partition, joined.pop().start, one.end)
        joined.append(one)
    return joined
