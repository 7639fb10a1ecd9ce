"""The comparison in docs/performance.md: its tables and its picture, from figures that are kept beside this file.

    make bench-peers WRITE=1 --rows of the parts measured--> measured.json --render--> docs/performance.md, docs/images

A part that is measured again replaces that part alone. Only the table between the two marks of the page is written.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.peers.clients import PARTS, Row, number
from bench.peers.systems import NATS_VERSION, kafka_version
from streamlog.release import RELEASE

ROOT: Final = Path(__file__).resolve().parents[2]
MEASURED: Final = Path(__file__).parent / "measured.json"
PAGE: Final = ROOT / "docs" / "performance.md"
PICTURE: Final = ROOT / "docs" / "images" / "peers.svg"
BEGIN: Final = "<!-- bench-peers: written by make bench-peers WRITE=1 -->\n"
END: Final = "<!-- bench-peers: end -->\n"
_PACKAGES: Final = ("confluent-kafka", "aiokafka", "nats-py", "pyspark")
_BAR_INCHES: Final = 0.3
_TICKS: Final = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Of one part's run."""

    day: str
    rounds: int
    load: float
    """The load average at the end, that of the systems themselves included."""
    cpus: int
    python: str
    system: str
    versions: dict[str, str]


class MeasuredPart(msgspec.Struct, frozen=True, kw_only=True):
    conditions: Conditions
    rows: list[Row]


def conditions(rounds: int) -> Conditions:
    return Conditions(
        day=datetime.date.today().isoformat(),
        rounds=rounds,
        load=round(os.getloadavg()[0], 1),
        cpus=os.cpu_count() or 0,
        python=platform.python_version(),
        system=f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        versions={"streamlog": RELEASE, "Kafka": kafka_version(), "NATS": NATS_VERSION.lstrip("v"), **_packages()},
    )


def _packages() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def measured() -> dict[str, MeasuredPart]:
    """By part, in the order of the page."""
    found = msgspec.json.decode(MEASURED.read_bytes(), type=dict[str, MeasuredPart]) if MEASURED.exists() else {}
    return {part: found[part] for part in PARTS if part in found}


def write(rows: Mapping[str, Sequence[Row]], rounds: int) -> None:
    """`rows`: by part, of those measured now."""
    now = conditions(rounds)
    parts = measured() | {part: MeasuredPart(conditions=now, rows=list(of)) for part, of in rows.items() if of}
    MEASURED.write_bytes(msgspec.json.format(msgspec.json.encode(parts), indent=1) + b"\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{render(measured())}{END}{rest.partition(END)[2]}")
    draw([row for part in measured().values() for row in part.rows], PICTURE)


def render(parts: Mapping[str, MeasuredPart]) -> str:
    """What stands between the marks; empty: nothing has been measured."""
    if not parts:
        return ""
    return "\n" + "\n".join(_lines(parts)) + "\n\n"


def _lines(parts: Mapping[str, MeasuredPart]) -> Iterator[str]:
    yield f"![How many times as fast as the others](images/{PICTURE.name})"
    for of in _by_conditions(parts):
        yield ""
        yield _sentence(of, parts)
        yield ""
        yield "| | client | median | range | ours / it | target | CPU, us a record |"
        yield "|---|---|---|---|---|---|---|"
        for part in of:
            yield from map(_table_row, parts[part].rows)


def _by_conditions(parts: Mapping[str, MeasuredPart]) -> Iterator[list[str]]:
    """The parts that differ in the load alone share a table."""
    tables: dict[bytes, list[str]] = {}
    for part, found in parts.items():
        tables.setdefault(msgspec.json.encode(msgspec.structs.replace(found.conditions, load=0)), []).append(part)
    yield from tables.values()


def _sentence(parts: Sequence[str], all_of: Mapping[str, MeasuredPart]) -> str:
    of = all_of[parts[0]].conditions
    loads = sorted({all_of[part].conditions.load for part in parts})
    load = f"{loads[0]:g}" if len(loads) == 1 else f"{loads[0]:g} to {loads[-1]:g}"
    versions = ", ".join(f"{name} {version}" for name, version in of.versions.items())
    return (
        f"Measured on {of.day} (parts {', '.join(parts)}): {of.rounds} rounds after one to warm up, {of.cpus} cores,\n"
        f"load average {load} at the end, Python {of.python}, {of.system}; {versions}."
    )


def _table_row(row: Row) -> str:
    met = row.ratio is None or row.target is None or row.ratio >= row.target
    cells = (
        row.cell,
        row.client,
        f"{number(row.median)} {row.unit}",
        f"{number(row.smallest)} to {number(row.largest)}",
        "" if row.ratio is None else f"{row.ratio:.2f}" if met else f"**{row.ratio:.2f}**",
        "" if row.target is None else f"{row.target:g}",
        "" if row.cpu_us is None else number(row.cpu_us),
    )
    return f"| {' | '.join(cells)} |"


def draw(rows: Sequence[Row], file: Path) -> None:
    """A bar for each comparison: right of 1 streamlog is better. The mark is the target."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "streamlog"  # the same figures, the same file
    from matplotlib import pyplot as plt

    compared = [(row, row.ratio) for row in rows if row.ratio is not None][::-1]
    figure, axis = plt.subplots(figsize=(10, 1 + _BAR_INCHES * len(compared)), layout="constrained")
    for at, (row, ratio) in enumerate(compared):
        axis.barh(at, ratio - 1, left=1, color="#2e7d32" if ratio >= 1 else "#c62828", height=0.6)
        axis.annotate(
            f"{ratio:.2f}",
            (ratio, at),
            xytext=(4 if ratio >= 1 else -4, 0),
            textcoords="offset points",
            ha="left" if ratio >= 1 else "right",
            va="center",
            fontsize=8,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )
        if row.target is not None:
            axis.plot([row.target] * 2, [at - 0.4, at + 0.4], color="black", linewidth=1.5)
    axis.set_yticks(range(len(compared)), [f"{row.cell} / {row.client}" for row, _ in compared], fontsize=8)
    axis.set_xscale("log")
    ratios = [ratio for _, ratio in compared]
    axis.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axis.minorticks_off()
    axis.set_xlim(min(0.5, *ratios) / 1.3, max(2.0, *ratios) * 1.3)
    axis.margins(y=0.02)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.grid(visible=True, axis="x", which="both", alpha=0.3)
    axis.set_xlabel("times as fast as the other; black mark: the target")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
