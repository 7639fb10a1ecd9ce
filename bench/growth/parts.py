"""The parts: what each varies, its values, and the function that measures one value on a cluster of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from bench.growth import clients, fan_out, logs, partitions, record_sizes

Columns: TypeAlias = dict[str, float]


class Part(Struct, frozen=True, kw_only=True):
    varied: str
    """The quantity, with its unit."""
    values: tuple[int, ...]
    """By default: small, so that all parts together take a quarter of an hour."""
    largest: int
    """Larger values are refused: they would take hours, or all of the machine."""
    measure: Callable[[Path, int], Awaitable[Columns]] | None = None
    steps: Callable[[Path, int], Awaitable[dict[int, Columns]]] | None = None
    """Instead of `measure`: several points of one cluster, up to the value."""

    async def points(self, base: Path, value: int) -> dict[int, Columns]:
        if self.steps is not None:
            return await self.steps(base, value)
        assert self.measure is not None
        return {value: await self.measure(base, value)}


PARTS: Final[dict[str, Part]] = {
    "partitions": Part(varied="partitions", values=(1, 100, 1_000), largest=20_000, measure=partitions.measure),
    "producers": Part(varied="producers", values=(1, 10, 50, 200), largest=2_000, measure=clients.measure_producers),
    "consumers": Part(varied="consumers", values=(1, 10, 100), largest=5_000, measure=clients.measure_consumers),
    "polls": Part(varied="waiting consumers", values=(1, 50, 200), largest=5_000, measure=clients.measure_polls),
    "log": Part(varied="MB of the log", values=(10, 100, 400), largest=100_000, measure=logs.measure_log),
    "volume": Part(varied="MB written", values=(1_000,), largest=1_000_000, steps=logs.measure_volume),
    "nodes": Part(varied="nodes", values=(3, 5, 7), largest=9, measure=clients.measure_nodes),
    "sizes": Part(
        varied="bytes of a value",
        values=(10, 100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000),
        largest=7_000_000,
        measure=record_sizes.measure,
    ),
    "fanout": Part(varied="readers", values=(1, 10, 50), largest=500, measure=fan_out.measure),
}


class Point(Struct, frozen=True, kw_only=True):
    value: int
    columns: Columns


class Growth(Struct, frozen=True, kw_only=True):
    """What a part found."""

    part: str
    varied: str
    points: Sequence[Point]

    @property
    def names(self) -> list[str]:
        """Of all columns."""
        return list(dict.fromkeys(name for point in self.points for name in point.columns))
