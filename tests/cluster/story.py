"""A run for a reader: what the seed made, what happened when, what came of it; and a short plan as a test."""

from __future__ import annotations

from collections.abc import Iterator

from streamlog.sim.shrink import Shrunk

from .plan import Plan
from .run import Report


def lines(plan: Plan, report: Report) -> Iterator[str]:
    """Of a run with a story (`simulate(..., with_story=True)`)."""
    yield f"seed {plan.seed}: {len(plan.nodes)} nodes, {plan.voters} of them voters, callbacks by {plan.order.name}"
    slow = {name: factor for name, factor in plan.hardware.disk_slow.items() if factor != 1.0}
    yield f"hardware: disks slower by {slow or 'nothing'}, network slower by {plan.hardware.network_slow}"
    yield "settings: " + ", ".join(f"{name}={value}" for name, value in plan.settings.items())
    for topic in plan.topics:
        size = f"{topic.partitions} partitions, {topic.replication_factor} replicas"
        yield f"topic {topic.name}: {size}, {dict(topic.configs)}"
    yield f"load: {plan.load}"
    yield from ending(report)


def ending(report: Report) -> Iterator[str]:
    """What happened, and what came of it."""
    yield ""
    yield from report.story
    yield ""
    yield ", ".join(f"{name} {number}" for name, number in sorted(report.stats.items()))
    yield f"fingerprint {report.fingerprint}, {report.virtual_s:.1f} virtual seconds"
    if report.ok:
        yield "nothing that must hold is broken"
    for violation in report.violations:
        yield f"BROKEN {violation}"


def as_test(seed: int, plan: Plan, shrunk: Shrunk, report: Report) -> str:
    """To be put into test_scripts.py."""
    return "\n".join(
        [
            f"# {len(plan.faults)} faults -> {len(shrunk.plan)} in {shrunk.runs} runs; breaks {report.violations[0]}",
            shrunk.source(f"SEED_{seed}"),
            "",
            f"def test_seed_{seed}() -> None:",
            f"    assert simulate({seed}, with_faults(make_plan({seed}), SEED_{seed})).violations == []",
        ]
    )
