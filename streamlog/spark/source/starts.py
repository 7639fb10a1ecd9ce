"""Where reading begins and ends: what the options say, as an offset of each partition.

    startingTimestamp > startingOffsetsByTimestamp > startingOffsets > the default        (ending...: likewise)

Decided by options and by what the cluster answers; `Places` is that answer's shape, so tests need no cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from streamlog.model import Offset, PartitionId, TopicPartition
from streamlog.spark.failures import OptionError
from streamlog.spark.options import Options

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_EARLIEST_NUMBER: Final = -2
_LATEST_NUMBER: Final = -1


class Places(Protocol):
    """What is asked of the cluster."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]: ...

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """Of the first record of that time or later; None: there is none."""
        ...


def starting(
    options: Options, partitions: tuple[TopicPartition, ...], places: Places, *, default: str
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
            f"{missing[0]} has no record of the time {at[missing[0]]} or later;"
            " with startingOffsetsByTimestampStrategy=latest it begins at its end",
        )
    ends = places.latest(missing) if missing else {}
    return {one: offset if offset is not None else ends[one] for one, offset in found.items()}


def ending(options: Options, partitions: tuple[TopicPartition, ...], places: Places) -> dict[TopicPartition, Offset]:
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
    """By which option, and the time of each partition; None where no time is given."""
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
    places: Places,
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
    """A number for each partition: all of them, and no others."""
    given = {
        TopicPartition(topic, PartitionId(partition)): number
        for topic, numbers in spec.items()
        for partition, number in numbers.items()
    }
    for one in sorted(given):
        if one not in partitions:
            raise OptionError(name, f"{one} is not read, or does not exist")
    for one in partitions:
        if one not in given:
            raise OptionError(name, f"says nothing of {one}: name every partition")
    return given
