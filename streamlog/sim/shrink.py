"""From a failing plan to a short one that still fails: delta debugging (Zeller and Hildebrandt, 2002).

It works because a plan is data, and because every part of a world draws from its own random stream: leaving out a fault
does not change the other parts' draws. The result is printed as a test that needs no generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.sim.faults import Fault, FaultKind

RUNS_MAX: Final = 250


class Shrunk(Struct, frozen=True, kw_only=True):
    plan: tuple[Fault, ...]
    runs: int

    def source(self, name: str) -> str:
        """A Python constant."""
        return f"{name} = [\n" + "".join(f"    {fault!r},\n" for fault in self.plan) + "]\n"


class _Trials:
    """Runs candidates and counts them; candidates beyond the limit count as passing."""

    def __init__(self, fails: Callable[[Sequence[Fault]], bool], runs_max: int) -> None:
        self._fails = fails
        self._runs_max = runs_max
        self.runs = 0

    def fails(self, plan: Sequence[Fault]) -> bool:
        if self.runs >= self._runs_max:
            return False
        self.runs += 1
        return self._fails(plan)


def shrink(plan: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], *, runs_max: int = RUNS_MAX) -> Shrunk:
    """`fails(plan)` runs it and returns whether the violation is still there. ValueError if the whole plan passes."""
    trials = _Trials(fails, runs_max)
    if not trials.fails(plan):
        raise ValueError("the plan does not fail: nothing to shrink")
    few = _drop(list(plan), trials)
    return Shrunk(plan=tuple(_simplify(few, trials)), runs=trials.runs)


def _drop(plan: list[Fault], trials: _Trials) -> list[Fault]:
    """Remove chunks, then smaller ones, then single faults, until none can be removed."""
    size = max(1, len(plan) // 2)
    while plan:
        before, index = len(plan), 0
        while index < len(plan):
            trial = plan[:index] + plan[index + size :]
            if trials.fails(trial):
                plan = trial
            else:
                index += size
        if size > 1:
            size //= 2
        elif len(plan) == before:
            break
    return plan


def _simplify(plan: list[Fault], trials: _Trials) -> list[Fault]:
    """Rounder numbers and milder kinds, one fault at a time."""
    for index in range(len(plan)):
        for simpler in _simpler(plan[index]):
            trial = [*plan[:index], simpler, *plan[index + 1 :]]
            if trials.fails(trial):
                plan = trial
                break
    return plan


_MILDER: Final = {
    FaultKind.SLOW_THEN_POWER: FaultKind.POWER_STAGGERED,
    FaultKind.CRASH_THEN_POWER: FaultKind.POWER,
    FaultKind.POWER_STAGGERED: FaultKind.POWER_ALL,
    FaultKind.POWER_ALL: FaultKind.POWER,
    FaultKind.POWER: FaultKind.CRASH,
    FaultKind.ISOLATE: FaultKind.CUT,
    FaultKind.FLAP: FaultKind.CUT,
}


def _simpler(fault: Fault) -> Iterator[Fault]:
    """Simplest first."""
    round_ = replace(fault, at=round(fault.at, 1), lasts=round(fault.lasts, 1))
    kind = fault.kind
    milder = []
    while kind in _MILDER:
        kind = _MILDER[kind]
        milder.append(kind)
    for kind in reversed(milder):
        yield replace(round_, kind=kind)
        yield replace(fault, kind=kind)
    for candidate in (
        replace(round_, lasts=0.0),
        round_,
        replace(fault, at=round_.at),
        replace(fault, lasts=round_.lasts),
    ):
        if candidate != fault:
            yield candidate
