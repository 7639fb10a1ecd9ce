"""What a seed does, as data: the settings of its cluster and the faults, with their times.

Made before the run from streams of randomness of its own, so that a fault can be left out without throwing the dice of
the others again.
"""

from __future__ import annotations

import enum
import random

from msgspec import Struct
from msgspec.structs import replace

from streamlog.raft.settings import QuorumSettings

FAULTS_S = 1.1
"""How long faults strike; then all is healed."""


class Kind(enum.Enum):
    CRASH = "kill -9, and a restart"
    POWER_CUT = "unsynced data gone, and a restart"
    BLACKOUT = "power cut of all, and a staggered return"
    ONE_WAY_CUT = "one direction of one link"
    ISOLATE = "all links of a node"
    RESET = "connections between two nodes"
    SLOW_NETWORK = "every delay"
    SLOW_DISK = "syncs of a node"
    DISK_ERROR = "the next sync of a node fails; it comes back by a power cycle"
    PAUSE = "SIGSTOP, SIGCONT"
    SNAPSHOT = "forced compaction"
    CLOCK_JUMP = "the wall clock"
    TRANSFER = "the leader hands over"
    HOSTILE = "a program that speaks the protocol and is no node: as a stranger, or under a voter's name"
    DEPOSE = "the leader is alone with clients that read from it, for longer than it may lead"


WEIGHTS = {
    Kind.CRASH: 5,
    Kind.POWER_CUT: 6,
    Kind.BLACKOUT: 1,
    Kind.ONE_WAY_CUT: 6,
    Kind.ISOLATE: 4,
    Kind.RESET: 5,
    Kind.SLOW_NETWORK: 1,
    Kind.SLOW_DISK: 2,
    Kind.DISK_ERROR: 1,
    Kind.PAUSE: 2,
    Kind.SNAPSHOT: 6,
    Kind.CLOCK_JUMP: 1,
    Kind.TRANSFER: 2,
    Kind.DEPOSE: 2,
}

LEADER = 0
"""As a target: the leader at that time."""


class Fault(Struct, frozen=True):
    at_s: float
    kind: Kind
    target: int  # node id, or LEADER
    other: int  # of a pair
    lasts_s: float
    amount: float  # in [0, 1): what else the kind needs


class Plan(Struct, frozen=True):
    seed: int
    size: int  # voters at the beginning
    spares: int  # nodes that may become voters
    changes_voters: bool
    wipes: bool  # a voter loses its disk once, and is replaced by itself
    fifo: bool  # order of the loop's callbacks
    settings: QuorumSettings
    faults: tuple[Fault, ...]


def make_plan(seed: int) -> Plan:
    rng = random.Random(f"plan/{seed}")
    size = 5 if seed % 7 == 6 else 3
    changes_voters = rng.random() < 0.3
    wipes = changes_voters and rng.random() < 0.3
    return Plan(
        seed=seed,
        size=size,
        spares=1 if changes_voters else 0,
        changes_voters=changes_voters,
        wipes=wipes,
        fifo=rng.random() < 0.5,
        settings=_settings(rng),
        faults=_with_hostile(seed, size, _faults(rng, size + (1 if changes_voters else 0))),
    )


def for_untouched(plan: Plan) -> Plan:
    """Without what the library does not offer."""
    faults = tuple(
        fault
        for fault in plan.faults
        if fault.target <= plan.size and fault.other <= plan.size and fault.kind is not Kind.HOSTILE
    )
    return replace(plan, spares=0, changes_voters=False, wipes=False, faults=faults)


def _settings(rng: random.Random) -> QuorumSettings:
    """Small limits in most seeds, so that each of them is met."""
    return QuorumSettings(
        append_bytes_max=rng.choice([60, 300, 1 << 20]),
        window_bytes=rng.choice([200, 1 << 20]),
        window_entries=rng.choice([3, 1000]),
        apply_entries_max=rng.choice([2, 512]),
        snapshot_entries=rng.choice([8, 40, 10_000]),
        snapshot_trailing_entries=rng.choice([1, 10, 40]),
        snapshot_chunk_bytes=rng.choice([100, 1 << 18]),
        catch_up_entries=rng.choice([2, 100]),
        catch_up_timeout_ms=1500,
        reconnect_max_ms=200,
        seal_after_ms=rng.choice([50, 1000]),
        heartbeat_ms=rng.choice([100, 140]),
        idle_after_ms=rng.choice([50, 1000]),
    )


def _faults(rng: random.Random, nodes: int) -> list[Fault]:
    kinds = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=rng.randint(2, 7))
    faults = []
    for kind in kinds:
        target, other = rng.sample(range(1, nodes + 1), 2)
        if rng.random() < 0.45:
            target = LEADER
        faults.append(
            Fault(
                at_s=rng.uniform(0.35, FAULTS_S),
                kind=kind,
                target=target,
                other=other,
                lasts_s=rng.choice([0.03, 0.3, 0.8]) * rng.uniform(0.5, 1.5),
                amount=rng.random(),
            )
        )
    return sorted(faults, key=lambda fault: fault.at_s)


def _with_hostile(seed: int, size: int, faults: list[Fault]) -> tuple[Fault, ...]:
    """In two of five seeds. From a stream of its own: the other faults of a seed are what they were without."""
    rng = random.Random(f"hostile/{seed}")
    if rng.random() < 0.4:
        for _ in range(rng.randint(1, 6)):
            target, other = rng.sample(range(1, size + 1), 2)
            if rng.random() < 0.45:
                target = LEADER
            at_s = rng.uniform(0.2, FAULTS_S)
            faults.append(
                Fault(at_s=at_s, kind=Kind.HOSTILE, target=target, other=other, lasts_s=0.0, amount=rng.random())
            )
    return tuple(sorted(faults, key=lambda fault: fault.at_s))
