"""What came of a run: a summary in text, and one HTML page with a timeline of each round."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from streamlog.sim.history import Outcome
from tests.cluster.checking.checks import POLL, PRODUCE
from tests.nemesis.faults.machine import Needs
from tests.nemesis.faults.plan import Kind
from tests.nemesis.faults.striker import Came
from tests.nemesis.round import Result

from .svg import NO_LEADER, Chart, colour

_STYLE: Final = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 24px auto; max-width: 1240px; padding: 0 16px; color: #222 }
h1 { font-size: 22px } h2 { font-size: 18px; margin-top: 36px } h3 { font-size: 15px }
table { border-collapse: collapse; margin: 8px 0 }
th, td { padding: 2px 12px 2px 0; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: #b00020 } .good { color: #1a7f37 } pre { white-space: pre-wrap; background: #f6f6f6; padding: 8px }
svg text { font: 11px system-ui, sans-serif; fill: #333 } svg .title { font-weight: 600; font-size: 12px }
svg .scale { font-size: 9px; fill: #777 } svg .grid { stroke: #e5e5e5 } svg .field { fill: #fafafa }
svg polyline { stroke-width: 1.2 } details { margin: 8px 0 }
"""
_POLLED_BY: Final = "r0"


class Run(Struct, frozen=True, kw_only=True):
    """All rounds, and what the report shows with them."""

    command: str
    lacking: Mapping[Needs, str]
    results: Sequence[Result]

    @property
    def findings(self) -> list[str]:
        return [f"round of seed {result.seed}: {line}" for result in self.results for line in result.findings.lines()]


# Text.


def summary(run: Run) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for result in run.results:
        counts.update(result.counts)
    yield ""
    yield f"{len(run.results)} rounds, seeds {', '.join(str(result.seed) for result in run.results)}"
    yield ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    for result in run.results:
        for text in latencies(result):
            yield f"seed {result.seed}: {text}"
    yield ""
    yield f"{'fault':<24}{'times':>6}{'pause':>9}{'longest':>9}{'back after':>12}{'longest':>9}"
    for row in outcomes(run.results):
        yield f"{row[0]:<24}{row[1]:>6}{row[2]:>9}{row[3]:>9}{row[4]:>12}{row[5]:>9}"
    errors: Counter[str] = Counter()
    for result in run.results:
        errors.update(result.errors)
    if errors:
        yield ""
        yield "clients met: " + ", ".join(f"{name} {count}" for name, count in errors.most_common(12))
    for needs, reason in run.lacking.items():
        kinds = ", ".join(kind.title for kind in Kind if kind.needs is needs)
        yield f"skipped for want of {needs.value} ({reason}): {kinds}"
    yield ""
    findings = run.findings
    yield from (f"FOUND  {line}" for line in findings)
    if not run.results:
        yield "no round was finished"
    else:
        yield f"{len(findings)} findings" if findings else "nothing found"


def latencies(result: Result) -> Iterator[str]:
    taken = sorted(
        row.completed - row.invoked
        for row in result.history.select(PRODUCE, Outcome.OK)
        if row.completed is not None and row.partition is not None
    )
    if taken:
        shares = ", ".join(f"{name} {_ms(_at(taken, share))}" for name, share in (("p50", 0.5), ("p99", 0.99)))
        yield f"{len(taken):,} acknowledged in {result.ended:.0f} s: {shares}, longest {_ms(taken[-1])}"


def outcomes(results: Iterable[Result]) -> Iterator[tuple[str, str, str, str, str, str]]:
    """A row for each kind that struck alone, one for pairs: times, pause (median, longest), back (median, longest)."""
    groups: dict[str, list[Came]] = {}
    for result in results:
        for came in result.came:
            name = came.event.faults[0].kind.title if len(came.event.faults) == 1 else "two at once"
            groups.setdefault(name, []).append(came)
    for name, cases in sorted(groups.items()):
        pauses = sorted(came.pause_s for came in cases)
        backs = sorted(came.back_s if came.back_s is not None else float("inf") for came in cases)
        yield (
            name,
            str(len(cases)),
            _s(_at(pauses, 0.5)),
            _s(pauses[-1]),
            _s(_at(backs, 0.5)),
            _s(backs[-1]),
        )


def _at(rising: Sequence[float], share: float) -> float:
    return rising[min(len(rising) - 1, int(share * len(rising)))]


def _s(seconds: float) -> str:
    return "never" if seconds == float("inf") else f"{seconds:.1f} s"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


# The page.


def page(run: Run) -> str:
    findings = run.findings
    verdict = f'<p class="bad">{len(findings)} findings</p>' if findings else '<p class="good">Nothing found.</p>'
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>streamlog nemesis</title>",
        f"<style>{_STYLE}</style><h1>streamlog nemesis</h1>",
        f"<p><code>{html.escape(run.command)}</code></p>{verdict}",
    ]
    if findings:
        parts.append(f"<pre>{html.escape(chr(10).join(findings))}</pre>")
    parts.append("<h2>Faults</h2>" + _outcomes(run))
    if run.lacking:
        parts.append("<p>Skipped: " + html.escape("; ".join(_skipped(run.lacking))) + "</p>")
    parts += [_round(result) for result in run.results]
    parts.append("</html>")
    return "\n".join(parts)


def _skipped(lacking: Mapping[Needs, str]) -> Iterator[str]:
    for needs, reason in lacking.items():
        yield f"{', '.join(kind.title for kind in Kind if kind.needs is needs)} ({reason})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int) -> str:
    """From column `numbers` on they are numbers."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if number >= numbers else ''}>{html.escape(cell)}</{tag}>"
            for number, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', head)}</tr>{body}</table>"


def _outcomes(run: Run) -> str:
    head = ("fault", "times", "pause, median", "longest", "back after the heal, median", "longest")
    words = "<p>Pause: the longest time without an acknowledgement in some partition while it held.</p>"
    return _table(head, outcomes(run.results), numbers=1) + words


def _round(result: Result) -> str:
    found = result.findings.lines()
    parts = [f"<h2>Seed {result.seed}</h2>", *(f"<p>{html.escape(text)}</p>" for text in latencies(result))]
    parts.append(_timeline(result))
    if found:
        parts.append(f'<h3 class="bad">Findings</h3><pre>{html.escape(chr(10).join(found))}</pre>')
    if result.seen.stops:
        stops = "\n".join(f"t={at:.1f} {words}" for at, _, words in result.seen.stops)
        parts.append(
            "<details><summary>Nodes that stopped because of their disk</summary>"
            f"<pre>{html.escape(stops)}</pre></details>"
        )
    counts = _table(("what", "how many"), [(name, f"{n:,}") for name, n in sorted(result.counts.items())], numbers=1)
    errors = _table(
        ("client and code", "times", "the first one"),
        [(name, f"{n:,}", result.error_texts.get(name, "")) for name, n in result.errors.most_common()],
        numbers=9,
    )
    plan = html.escape("\n".join(str(came.event) for came in result.came))
    parts.append(f"<details><summary>Counts</summary>{counts}</details>")
    parts.append(f"<details><summary>Errors that clients met</summary>{errors}</details>")
    parts.append(f"<details><summary>Plan, as far as it was carried out</summary><pre>{plan}</pre></details>")
    return "\n".join(parts)


def _timeline(result: Result) -> str:
    end, seconds = result.ended, int(result.ended) + 1
    chart = Chart(end)
    chart.title("Faults")
    for target in sorted({struck.target for struck in result.struck}):
        spans = [
            (s.begin, max(s.end, s.begin), colour(s.target) if s.target else "#555", f"event {s.event}: {s.fault}")
            for s in result.struck
            if s.target == target
        ]
        for lane in _lanes(spans):
            chart.bands(f"node {target}" if target else "all nodes", lane)
    if result.findings:
        chart.marks("findings", [(at, str(violation)) for at, violation in result.findings.all])
    chart.title("Nodes that run")
    for node, ups in sorted(result.seen.up.items()):
        chart.bands(f"node {node}", [(a, b, colour(node), "runs") for a, b, up in _spans(ups, end) if up])
    chart.title("Throughput and time to the acknowledgement")
    acks, latest = [0.0] * seconds, [0.0] * seconds
    for row in result.history.select(PRODUCE, Outcome.OK):
        if row.completed is not None and row.completed < seconds:
            at = int(row.completed)
            acks[at] += 1
            latest[at] = max(latest[at], row.completed - row.invoked)
    polled = [0.0] * seconds
    for row in result.history.select(POLL, Outcome.OK):
        if row.process == _POLLED_BY and row.invoked < seconds:
            polled[int(row.invoked)] += 1
    ended = [0.0] * seconds
    for _, at_s in result.transactions:
        ended[min(seconds - 1, int(at_s))] += 1
    chart.columns("acknowledged", acks, 1.0, "#59a14f", "records/s")
    chart.columns("longest wait", latest, 1.0, "#f28e2b", "s")
    chart.columns("read", polled, 1.0, "#4e79a7", "records/s", height=40)
    chart.columns("committed", ended, 1.0, "#b07aa1", "transactions/s", height=40)
    chart.title("Leaders (colours of the nodes; red: none)")
    chart.bands("controller", _owners(result.seen.controller, end))
    for partition, leaders in sorted(result.seen.leaders.items()):
        chart.bands(str(partition), _owners(leaders, end))
    chart.title("Memory of the nodes")
    memory = [
        (f"node {node}", colour(node), [(when, size / (1 << 20)) for when, size in points])
        for node, points in sorted(result.seen.memory.items())
    ]
    chart.lines("resident", memory, "MiB")
    chart.axis()
    return chart.svg()


def _spans(series: Sequence[tuple[float, bool]], end: float) -> Iterator[tuple[float, float, bool]]:
    for number, (at, value) in enumerate(series):
        yield at, series[number + 1][0] if number + 1 < len(series) else end, value


def _owners(series: Sequence[tuple[float, int]], end: float) -> Iterator[tuple[float, float, str, str]]:
    for number, (at, node) in enumerate(series):
        until = series[number + 1][0] if number + 1 < len(series) else end
        yield at, until, colour(node) if node else NO_LEADER, f"node {node}" if node else "no leader"


def _lanes(spans: Sequence[tuple[float, float, str, str]]) -> list[list[tuple[float, float, str, str]]]:
    """Those that overlap go one below the other."""
    lanes: list[list[tuple[float, float, str, str]]] = []
    for span in sorted(spans):
        lane = next((lane for lane in lanes if lane[-1][1] <= span[0]), None)
        if lane is None:
            lanes.append([span])
        else:
            lane.append(span)
    return lanes
