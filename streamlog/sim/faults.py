"""Faults as data: a plan is drawn completely before the run, so that it can be printed, shortened and repeated.

`lasts` is the fault's one number: seconds until it is repaired or, for a clock jump, its size. A target is a host or a
role such as "leader" that is resolved when the fault occurs: most bugs are around the leader, and a name drawn
beforehand rarely hits it.

Two faults that must coincide to show a bug rarely do at random, so some kinds combine two. Each seed has its own
hardware: unequal speeds open race windows that equal speeds do not.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct


class FaultKind(enum.Enum):
    """What happens to the target; `other` is the second host where there is one."""

    CRASH = enum.auto()  # kill -9; back after `lasts`
    POWER = enum.auto()  # power cut; back after `lasts`
    POWER_ALL = enum.auto()  # of every node at once
    CRASH_THEN_POWER = enum.auto()  # the page cache left by kill -9 is recovered, used, then lost
    POWER_ALL_WIPE = enum.auto()  # of every node at once; the target comes back with a new, empty disk
    POWER_STAGGERED = enum.auto()  # all lose power; the target is back first, and for a while alone
    SLOW_THEN_POWER = enum.auto()  # much is unsynced when the power goes
    PAUSE = enum.auto()  # SIGSTOP, SIGCONT after `lasts`
    CUT = enum.auto()  # between target and other, both ways
    CUT_IN = enum.auto()  # from other to target only
    CUT_OUT = enum.auto()  # from target to other only
    ISOLATE = enum.auto()  # the target from all hosts, clients too
    FLAP = enum.auto()  # four short cuts in a row: a leader loses and regains its followers
    RESET = enum.auto()  # the connections between target and other
    SLOW_DISK = enum.auto()  # a hundred times
    SLOW_NETWORK = enum.auto()  # thirty times, all of it
    SYNC_ERROR = enum.auto()  # the next sync fails and loses its pages
    READ_ERROR = enum.auto()  # the next read fails
    FULL_DISK = enum.auto()  # for `lasts`
    CLOCK_JUMP = enum.auto()  # the target's wall clock, by (`lasts` - 1) * 1000 s
    POWER_WIPE = enum.auto()  # of the target alone; it comes back with a new, empty disk
    DAMAGE = enum.auto()  # bytes of the target's files change while it runs
    CRASH_THEN_DAMAGE = enum.auto()  # kill -9; bytes of its files change while it is down
    HOSTILE = enum.auto()  # a program that is not a node sends false messages to target, as `other` or as a stranger
    FALSE_ANSWERS = enum.auto()  # what other nodes receive from the target in answer to their calls is false


ONCE: Final = frozenset({FaultKind.POWER_ALL_WIPE, FaultKind.POWER_WIPE, FaultKind.DAMAGE, FaultKind.CRASH_THEN_DAMAGE})
"""Kinds that take records which were on stable storage: one node of a plan may be their target."""

OF_THE_PROGRAM: Final = frozenset(
    {FaultKind.DAMAGE, FaultKind.CRASH_THEN_DAMAGE, FaultKind.HOSTILE, FaultKind.FALSE_ANSWERS}
)
"""Kinds that need the formats of the simulated program: the nemesis is given what carries them out."""

SURVIVABLE: Final = tuple(kind for kind in FaultKind if kind not in ONCE | OF_THE_PROGRAM)
"""Kinds that a plan may mix in any number."""


class Fault(Struct, frozen=True, order=True):
    """Ordered by its time, in virtual seconds."""

    at: float
    kind: FaultKind
    target: str
    other: str = ""
    lasts: float = 1.0

    def __repr__(self) -> str:
        """As a test would write it."""
        return f"Fault({self.at!r}, {self.kind}, {self.target!r}, {self.other!r}, {self.lasts!r})"


GAPS_S: Final = (0.4, 1.0, 2.5)
LASTS_S: Final = (0.05, 0.5, 2.0, 6.0)


def draw_plan(
    rng: random.Random,
    *,
    targets: Sequence[str],
    hosts: Sequence[str],
    from_s: float,
    to_s: float,
    kinds: Sequence[FaultKind] = SURVIVABLE,
    kinds_max: int = 6,
) -> list[Fault]:
    """Swarm testing: each seed draws a few kinds and a rate of its own, which finds more than a mix of all kinds.

    `targets` may contain roles, and repetitions for more weight; `other` is drawn from `hosts`.
    """
    chosen = rng.sample(list(kinds), rng.randint(1, min(kinds_max, len(kinds))))
    gap_s, plan, now = rng.choice(GAPS_S), [], from_s
    while (now := round(now + rng.expovariate(1 / gap_s), 3)) < to_s:
        target = rng.choice(targets)
        other = rng.choice([host for host in hosts if host != target])
        plan.append(Fault(now, rng.choice(chosen), target, other, round(rng.choice(LASTS_S) * rng.random(), 3)))
    return plan


class Hardware(Struct, frozen=True, kw_only=True):
    """Speeds of the machines of one seed without faults: factors on the default delays."""

    disk_slow: Mapping[str, float]
    network_slow: float

    @classmethod
    def draw(cls, rng: random.Random, hosts: Sequence[str]) -> Hardware:
        return cls(
            disk_slow={host: rng.choice((1.0, 1.0, 1.0, 20.0, 150.0)) for host in hosts},
            network_slow=rng.choice((1.0, 1.0, 5.0, 25.0)),
        )

    @classmethod
    def healthy(cls, hosts: Sequence[str]) -> Hardware:
        return cls(disk_slow=dict.fromkeys(hosts, 1.0), network_slow=1.0)
