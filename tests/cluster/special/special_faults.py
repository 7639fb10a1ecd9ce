"""Faults that a plan may have few of, or that need what a node's files and messages look like.

    lost disk      one voter comes back with an empty disk: its vote is restored, its replicas are copied
    damage         bytes of batches of one node's logs change, while it is down or in closed segments while it runs
    hostile peer   a program that is not a node sends false messages of the quorum and of the data plane
    false answers  what nodes receive from one of them is no answer (in plans with faults at given moments alone)

An acknowledged record is on two disks (`min.insync.replicas`), so at most one node of a plan loses what it had synced,
by a lost disk or by damage. They are drawn from a stream of their own: the other faults of a seed are as without them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from streamlog.sim.faults import ONCE, Fault, FaultKind

DAMAGED: Final = 0.25
WIPED: Final = 0.15
"""Shares of the seeds that can bear it in which one node's logs are damaged, one voter's disk is lost."""
HOSTILE: Final = 0.25
"""Share of the seeds with a hostile peer."""

UNTRUSTED: Final = (FaultKind.FULL_DISK, FaultKind.SYNC_ERROR, FaultKind.READ_ERROR)
"""Kinds that take a second log directory offline: one too many for two in-sync replicas (seeds 97, 106)."""


def has_lost(faults: Sequence[Fault]) -> bool:
    """Some node loses what it had synced."""
    return any(fault.kind in ONCE for fault in faults)


def is_damaged(faults: Sequence[Fault]) -> bool:
    return any(fault.kind in (FaultKind.DAMAGE, FaultKind.CRASH_THEN_DAMAGE) for fault in faults)


def with_special_faults(
    rng: random.Random,
    faults: Sequence[Fault],
    *,
    nodes: Sequence[str],
    voters: Sequence[str],
    from_s: float,
    to_s: float,
    bears_a_loss: bool,
) -> list[Fault]:
    """`bears_a_loss`: what is acknowledged is on two disks, always."""
    found = list(faults)
    loss = rng.random()
    bears_a_loss = bears_a_loss and not has_lost(faults)
    if bears_a_loss and loss < DAMAGED:
        found = [fault for fault in found if fault.kind not in UNTRUSTED]
        found += _damage(rng, rng.choice(nodes), nodes, from_s, to_s)
    elif bears_a_loss and loss < DAMAGED + WIPED:
        found = [fault for fault in found if fault.kind not in UNTRUSTED]
        found.append(
            Fault(_at(rng, from_s, to_s), FaultKind.POWER_WIPE, rng.choice(voters), "", rng.choice((0.3, 2.0)))
        )
    if rng.random() < HOSTILE:
        found += [_hostile(rng, nodes, from_s, to_s) for _ in range(rng.randint(2, 6))]
    return sorted(found, key=lambda fault: fault.at)


def _hostile(rng: random.Random, nodes: Sequence[str], from_s: float, to_s: float) -> Fault:
    target, other = rng.sample(list(nodes), 2)
    return Fault(_at(rng, from_s, to_s), FaultKind.HOSTILE, target, other)


def _damage(rng: random.Random, target: str, nodes: Sequence[str], from_s: float, to_s: float) -> list[Fault]:
    """Of one node. It is down for long enough that acknowledgements which counted it have arrived."""
    kinds = rng.choice(
        ((FaultKind.DAMAGE,), (FaultKind.CRASH_THEN_DAMAGE,), (FaultKind.DAMAGE, FaultKind.CRASH_THEN_DAMAGE))
    )
    other = next(name for name in nodes if name != target)
    return [
        Fault(_at(rng, from_s + 2.0, to_s), rng.choice(kinds), target, other, rng.choice((0.3, 1.0, 3.0)))
        for _ in range(rng.randint(1, 4))
    ]


def _at(rng: random.Random, from_s: float, to_s: float) -> float:
    return round(rng.uniform(from_s, to_s), 3)
