"""Where reading starts and ends: the options, resolved to an offset for each partition.

    startingTimestamp > startingOffsetsByTimestamp > startingOffsets > the default        (ending...: likewise)

`OffsetLookup` is what it needs of the cluster, so tests need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.spark.failures import OptionError
from streamlog.spark.options import Options
from streamlog.spark.source.offsets import Offsets
from streamlog.spark.source.planning import Bounds

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_EARLIEST_NUMBER: Final = -2
_LATEST_NUMBER: Final = -1


class OffsetLookup(Protocol):
    """Offsets that the cluster knows."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """Of the first record with this timestamp or a later one; None: there is none."""
        ...


def starting(
    options: Options, partitions: tuple[TopicPartition, ...], places: OffsetLookup, *, default: str
) -> dict[TopicPartition, Offset]:
    """OptionError."""
    times = _times(options, "starting", partitions)
    if times is None:
        return _resolve("startingOffsets", options.get("startingOffsets") or default, partitions, places)
    name, at = times
    found = places.at_times(at)
    missing = sorted(one for one in at if found[one] is None)
    if missing and options.get("startingOffsetsByTimestampStrategy") != LATEST:
        raise OptionError(
            name,
            f"{missing[0]} has no record with timestamp {at[missing[0]]} or later;"
            " to start at its end, set startingOffsetsByTimestampStrategy=latest",
        )
    ends = places.latest(missing) if missing else {}
    return {one: offset if offset is not None else ends[one] for one, offset in found.items()}


def check_starts(options: Options, start: Offsets, bounds: Mapping[TopicPartition, Bounds]) -> None:
    """OptionError: an offset that the user requires is after its partition's end, unless losses are to be skipped."""
    spec = options.get("startingOffsets")
    times = "startingTimestamp" in options or "startingOffsetsByTimestamp" in options
    if not isinstance(spec, Mapping) or times or not options.truth("failOnDataLoss"):
        return
    for one in sorted(bounds):
        wanted, end = start.get(one, 0), bounds[one].latest
        if wanted > end and spec.get(one.topic, {}).get(int(one.partition)) == wanted:
            raise OptionError("startingOffsets", f"{one} ends at {end}, before the requested {wanted}")


def ending(
    options: Options, partitions: tuple[TopicPartition, ...], places: OffsetLookup
) -> dict[TopicPartition, Offset]:
    """Exclusive. OptionError."""
    times = _times(options, "ending", partitions)
    if times is None:
        return _resolve("endingOffsets", options.get("endingOffsets") or LATEST, partitions, places)
    found = places.at_times(times[1])
    missing = [one for one in found if found[one] is None]
    ends = places.latest(missing) if missing else {}
    return {one: offset if offset is not None else ends[one] for one, offset in found.items()}


def _times(
    options: Options, word: str, partitions: tuple[TopicPartition, ...]
) -> tuple[str, dict[TopicPartition, int]] | None:
    """The option's name, and the time for each partition; None: no time is given."""
    name = f"{word}Timestamp"
    if name in options:
        return name, dict.fromkeys(partitions, int(options.get(name)))
    name = f"{word}OffsetsByTimestamp"
    if name in options:
        return name, _each(name, options.get(name), partitions)
    return None


def _resolve(
    name: str,
    spec: str | Mapping[str, Mapping[int, int]],
    partitions: tuple[TopicPartition, ...],
    places: OffsetLookup,
) -> dict[TopicPartition, Offset]:
    if isinstance(spec, str):
        return places.earliest(partitions) if spec == EARLIEST else places.latest(partitions)
    numbers = _each(name, spec, partitions)
    first = [one for one in partitions if numbers[one] == _EARLIEST_NUMBER]
    last = [one for one in partitions if numbers[one] == _LATEST_NUMBER]
    known = (places.earliest(first) if first else {}) | (places.latest(last) if last else {})
    return {one: known.get(one, Offset(numbers[one])) for one in partitions}


def _each(
    name: str, spec: Mapping[str, Mapping[int, int]], partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, int]:
    """A number for each partition; the option must name all partitions, and no others."""
    given = {
        TopicPartition(topic, PartitionId(partition)): number
        for topic, numbers in spec.items()
        for partition, number in numbers.items()
    }
    for one in sorted(given):
        if one not in partitions:
            raise OptionError(name, f"{one} does not exist, or is not subscribed")
    for one in partitions:
        if one not in given:
            raise OptionError(name, f"has no value for {one}: name all partitions")
    return given
