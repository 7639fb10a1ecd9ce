"""What a chart shows of the history."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from streamlog.console.collection.history import Point
from streamlog.console.widgets.charts import chart_options


@pytest.mark.parametrize(
    ("unit", "values", "title", "shown"),
    [
        ("bytes/s", [0, 1023], "Growth (bytes/s)", [0, 1023]),
        ("bytes/s", [512, None, 2048], "Growth (KiB/s)", [0.5, None, 2]),
        ("bytes/s", [3 << 20], "Growth (MiB/s)", [3]),
        ("bytes/s", [5 << 40], "Growth (GiB/s)", [5120]),
        ("bytes/s", [], "Growth (bytes/s)", []),
        ("records/s", [4096], "Growth (records/s)", [4096]),
        ("", [4096], "Growth", [4096]),
    ],
)
def test_rates_of_bytes_are_in_the_unit_of_the_highest(
    unit: str, values: list[float | None], title: str, shown: list[float | None]
) -> None:
    points = [Point(at_s, value) for at_s, value in enumerate(values)]
    options = chart_options("Growth", {"all": points}, unit)
    assert options["title"]["text"] == title
    assert [value for _, value in options["series"][0]["data"]] == shown
