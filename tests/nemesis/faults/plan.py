"""Faults as data: what happens, to whom, for how long, drawn from a seed before the run.

A plan is a list of events; an event is one fault or two that overlap. The striker carries out one event after another,
each when the cluster has come back from the one before. Kinds are dealt like cards, so a run of an hour has had each of
them as often as any other. Targets may be roles, looked up when the fault strikes: most defects live around leaders.

The same seed gives the same plan on every machine that has the same abilities. The timing of real processes is theirs.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from .machine import Needs


class Kind(enum.Enum):
    """What happens to the target; `other` is the second node where there is one. (name, what it needs, in words)"""

    KILL = "kill", Needs.NOTHING, "kill -9; started again afterwards"
    KILL_ALL = "kill all", Needs.NOTHING, "kill -9 of every node"
    PAUSE = "pause", Needs.NOTHING, "SIGSTOP, SIGCONT afterwards"
    STUTTER = "stutter", Needs.NOTHING, "SIGSTOP and SIGCONT in turn, a tenth of a second each: a CPU that others use"
    RESTART = "restart", Needs.NOTHING, "SIGTERM: a stop in good order; started again afterwards"
    ROLLING = "rolling restart", Needs.NOTHING, "every node in turn, stopped in good order and started again"
    LOST_VOTE = (
        "lost vote",
        Needs.NOTHING,
        "kill -9 and its metadata directory is gone; started again, its vote restored",
    )
    CUT = "cut", Needs.NETWORK, "target and other are cut off from each other; all others reach both"
    CUT_IN = "cut in", Needs.NETWORK, "frames from the other one to the target are dropped"
    CUT_OUT = "cut out", Needs.NETWORK, "frames from the target to the other one are dropped"
    ISOLATE = "isolate", Needs.NETWORK, "the target is cut off from all, clients included"
    ISOLATE_NODES = "isolate from nodes", Needs.NETWORK, "the target is cut off from the nodes; clients still reach it"
    LOSS = "loss", Needs.NETWORK, "of the target's frames so many per mille are lost, both ways"
    DELAY = "delay", Needs.NETWORK, "the target's frames take so many ms longer, both ways"
    BANDWIDTH = "bandwidth", Needs.NETWORK, "each of the target's links passes so many kbit/s"
    RESET = "reset", Needs.NETWORK, "the connections between the target and everybody are broken by RST"
    POWER = "power", Needs.DISK, "power cut: what is not on stable storage is gone; back afterwards"
    POWER_ALL = "power all", Needs.DISK, "of every node at once"
    DISK_FULL = "disk full", Needs.DISK, "64 KiB are left"
    READ_ONLY = "read-only", Needs.DISK, "the file system turns read-only; repaired and mounted again afterwards"
    CLOCK = "clock", Needs.SHIM, "the target's wall clock jumps by so many seconds, and back afterwards"
    SLOW_SYNC = "slow sync", Needs.SHIM, "each sync takes so many ms longer"
    SYNC_ERROR = "sync error", Needs.SHIM, "the next sync fails with EIO"
    READ_ERROR = "read error", Needs.SHIM, "the next read fails with EIO"
    WRITE_ERROR = "write error", Needs.SHIM, "every write fails with EIO"

    def __init__(self, title: str, needs: Needs, what: str) -> None:
        self.title = title
        self.needs = needs
        self.what = what


WHOLE: Final = frozenset({Kind.KILL_ALL, Kind.ROLLING, Kind.POWER_ALL})
"""These strike every node: no target."""
MAY_STOP: Final = frozenset(
    {Kind.DISK_FULL, Kind.READ_ONLY, Kind.SYNC_ERROR, Kind.READ_ERROR, Kind.WRITE_ERROR, Kind.POWER, Kind.POWER_ALL}
)
"""A node that stops itself by one of these does right."""

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
CONTROLLER: Final = "controller"
COORDINATOR: Final = "coordinator"
ROLES: Final = (LEADER, LEADER, FOLLOWER, CONTROLLER, COORDINATOR)

LASTS_S: Final = (0.5, 2.0, 5.0, 12.0, 25.0)
PAIR_CHANCE: Final = 0.45
AMOUNTS: Final[Mapping[Kind, Sequence[int]]] = {
    Kind.LOSS: (20, 100, 300),
    Kind.DELAY: (20, 100, 400),
    Kind.BANDWIDTH: (256, 1000, 4000),
    Kind.SLOW_SYNC: (20, 100, 500),
    Kind.CLOCK: (-7200, -60, 5, 60, 3600, 9 * 86400),
}


class Fault(Struct, frozen=True, kw_only=True):
    kind: Kind
    target: str  # a role, or the number of a node; empty: every node
    other: int = 0  # counted from the target on: 1 is the next node; 0 where there is none
    after_s: float = 0.0  # since its event began
    lasts_s: float = 1.0
    amount: int = 0  # of what the kind says; 0 where it says nothing

    def __str__(self) -> str:
        on = f" {self.target}" if self.target else ""
        other = f"+{self.other}" if self.other else ""
        amount = f" {self.amount}" if self.amount else ""
        after = f" after {self.after_s:g} s" if self.after_s else ""
        return f"{self.kind.title}{on}{other}{amount} for {self.lasts_s:g} s{after}"


class Event(Struct, frozen=True):
    number: int
    faults: tuple[Fault, ...]
    rest_s: float  # until the next one, when all is well again

    def __str__(self) -> str:
        return f"{self.number:3}  {'  +  '.join(str(fault) for fault in self.faults)}"


def draw_plan(
    seed: int,
    *,
    nodes: int,
    events: int,
    lacking: Collection[Needs],
    kinds: Sequence[Kind] = (),
    longest_s: float = LASTS_S[-1],
) -> list[Event]:
    """`lacking`: what this machine has not got. `kinds`: these alone. `longest_s`: what lasts longer is cut to it."""
    rng = random.Random(f"nemesis/{seed}")
    cards = _dealt(rng, [kind for kind in kinds or Kind if kind.needs not in lacking])
    plan = []
    for number in range(1, events + 1):
        first = _fault(rng, next(cards), nodes, longest_s)
        faults = [first]
        if rng.random() < PAIR_CHANCE:
            faults.append(_fault(rng, next(cards), nodes, longest_s, after_s=round(rng.uniform(0, first.lasts_s), 2)))
        plan.append(Event(number, tuple(faults), round(rng.uniform(0.3, 3.0), 2)))
    return plan


def _dealt(rng: random.Random, kinds: Sequence[Kind]) -> Iterator[Kind]:
    while True:
        yield from rng.sample(kinds, len(kinds))


def _fault(rng: random.Random, kind: Kind, nodes: int, longest_s: float, *, after_s: float = 0.0) -> Fault:
    target = rng.choice([*ROLES, *(str(node) for node in range(1, nodes + 1))])
    other = rng.randint(1, nodes - 1)
    lasts_s = min(longest_s, round(max(0.2, rng.choice(LASTS_S) * rng.uniform(0.5, 1.0)), 2))
    amount = rng.choice(AMOUNTS[kind]) if kind in AMOUNTS else 0
    return Fault(
        kind=kind,
        target="" if kind in WHOLE else target,
        other=other if kind in (Kind.CUT, Kind.CUT_IN, Kind.CUT_OUT) else 0,
        after_s=after_s,
        lasts_s=lasts_s,
        amount=amount,
    )
