"""A picture for each part: one small chart a column, the varied quantity on a logarithmic axis."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.growth.parts import Growth

_COLUMNS: Final = 3
_CHART_INCHES: Final = (4.2, 2.6)


def why_not() -> str | None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return "no matplotlib: pip install 'streamlog[bench]', or leave PLOT out"
    return None


def draw(growth: Growth, folder: Path) -> Path:
    """The file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = growth.names
    rows = -(-len(names) // _COLUMNS)
    size = (_CHART_INCHES[0] * _COLUMNS, _CHART_INCHES[1] * rows)
    figure, axes = plt.subplots(rows, _COLUMNS, figsize=size, squeeze=False, layout="constrained")
    for axis, name in zip(axes.flat, names, strict=False):
        found = [(point.value, point.columns[name]) for point in growth.points if name in point.columns]
        axis.plot(*zip(*found, strict=True), marker="o")
        if len(found) > 1:
            axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(growth.varied, fontsize=8)
        axis.grid(visible=True, alpha=0.3)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{growth.part}.png"
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file
