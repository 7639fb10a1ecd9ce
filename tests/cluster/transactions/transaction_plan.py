"""What a seed of the simulation of transactions does, as data: `plan` for the cluster, and the writers.

A writer is a transactional id. It has two hosts for its programs, so two of them may be at work at a time, and what
happens to a program is drawn before the run, as faults are.

    0 s       BEGIN_S       FAULTS_END_S   HEAL_S                then
    start,    load, faults,                healed, writers work  all writers are killed: nothing may stay open for
    topics    writers come and go          for a while           longer than a time-out; each id commits once more

Coordinators are struck more often than others. Clocks of nodes jump in a third of the seeds: a time-out that is carried
on by another node may come early then, and never later than its whole time after.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.sim.faults import SURVIVABLE, Fault, FaultKind, Hardware, draw_plan

from ..plan import CONTROLLER, LEADER, PLAIN, Load, Plan, TopicPlan, base_plan

BEGIN_S: Final = 3.0
FAULTS_END_S: Final = 14.0
HEAL_S: Final = 14.5
WORK_S: Final = 2.0
"""After the heal, before all are killed."""

COORDINATOR: Final = "coordinator"
"""A role as target: the leader of the partition that remembers the first writer."""
OTHER: Final = "other"
"""A second topic."""
NODES: Final = ("n1", "n2", "n3")
KINDS: Final = tuple(kind for kind in SURVIVABLE if kind is not FaultKind.CLOCK_JUMP)
"""Of the faults that all seeds may draw; a third of them have clocks that jump beside."""
JUMPS_MAX: Final = 4


class Event(enum.Enum):
    """What happens to a program; where none runs, one is started instead."""

    KILL = enum.auto()  # another one is there after `lasts`
    PAUSE = enum.auto()  # a zombie for `lasts`: it comes back in the middle of what it did
    CUT = enum.auto()  # off from all nodes


class Action(Struct, frozen=True):
    at: float
    host: str
    event: Event
    lasts: float


class WriterPlan(Struct, frozen=True, kw_only=True):
    name: str  # transactional id, and group
    hosts: tuple[str, str]
    by_stream: bool  # PublishStream by raw messages; else the client library
    timeout_ms: int
    abort_chance: float
    offset_chance: float  # of a transaction to commit an offset


class TransactionsPlan(Struct, frozen=True, kw_only=True):
    cluster: Plan
    writers: tuple[WriterPlan, ...]
    actions: tuple[Action, ...]

    @property
    def timeout_max_s(self) -> float:
        return max(writer.timeout_ms for writer in self.writers) / 1000


def make_transactions_plan(seed: int) -> TransactionsPlan:
    rng = random.Random(f"transactions/{seed}/plan")
    writers = tuple(_writer(rng, number) for number in range(3))
    hosts = [host for writer in writers for host in writer.hosts]
    return TransactionsPlan(
        cluster=_cluster(seed, hosts),
        writers=writers,
        actions=tuple(_actions(random.Random(f"transactions/{seed}/actions"), hosts)),
    )


def _writer(rng: random.Random, number: int) -> WriterPlan:
    return WriterPlan(
        name=f"w{number}",
        hosts=(f"w{number}a", f"w{number}b"),
        by_stream=number == 2 or rng.random() < 0.2,
        timeout_ms=rng.choice((1_500, 4_000, 6_000)),
        abort_chance=rng.choice((0.1, 0.3)),
        offset_chance=rng.choice((0.5, 1.0)),
    )


def _cluster(seed: int, hosts: Sequence[str]) -> Plan:
    base = base_plan(seed)
    rng = random.Random(f"transactions/{seed}/cluster")
    faults = draw_plan(
        random.Random(f"transactions/{seed}/faults"),
        targets=[*NODES, COORDINATOR, COORDINATOR, COORDINATOR, LEADER, LEADER, CONTROLLER],
        hosts=[*NODES, *NODES, *hosts],
        from_s=BEGIN_S + 1.0,
        to_s=FAULTS_END_S,
        kinds=KINDS,
        kinds_max=4,
    )
    disk_slow = {name: min(base.hardware.disk_slow.get(name, 1.0), 20.0) for name in NODES}
    plain = base.topic(PLAIN)
    return replace(
        base,
        nodes=NODES,
        voters=3,
        hardware=Hardware(disk_slow=disk_slow, network_slow=rng.choice((1.0, 1.0, 5.0))),
        settings={
            **base.settings,
            "transaction.state.log.num.partitions": str(rng.choice((1, 2, 3))),
            "offsets.topic.num.partitions": str(rng.choice((1, 2))),
        },
        topics=(replace(plain, partitions=2), _other(plain)),
        load=_load(base.load),
        tunes=False,
        moves=False,
        faults=tuple(sorted([*faults, *_jumps(random.Random(f"transactions/{seed}/clocks"))], key=lambda one: one.at)),
    )


def _jumps(rng: random.Random) -> list[Fault]:
    """Of the wall clocks of nodes, by up to an hour and a half forward, or a quarter of an hour back."""
    if rng.random() > 1 / 3:
        return []
    return [
        Fault(
            round(rng.uniform(BEGIN_S + 1.0, FAULTS_END_S), 3),
            FaultKind.CLOCK_JUMP,
            rng.choice((*NODES, COORDINATOR)),
            "",
            round(rng.choice((0.0, 0.5, 1.5, 6.0)) * rng.random(), 3),
        )
        for _ in range(rng.randint(1, JUMPS_MAX))
    ]


def _other(plain: TopicPlan) -> TopicPlan:
    return replace(plain, name=OTHER, partitions=2)


def _load(base: Load) -> Load:
    """Plain records between those of transactions."""
    settings = {**base.producer, "delivery.timeout.ms": "6000"}
    return replace(base, producers=1, sends_per_s=8.0, value_bytes_max=30, consumers=0, producer=settings)


def _actions(rng: random.Random, hosts: Sequence[str]) -> list[Action]:
    chosen = rng.sample(list(Event), rng.randint(1, 3))
    found, now = [], BEGIN_S + 1.0
    while (now := round(now + rng.expovariate(1 / rng.choice((0.5, 1.5))), 3)) < FAULTS_END_S:
        lasts = round(rng.choice((0.2, 1.0, 5.0)) * rng.random(), 3)
        found.append(Action(now, rng.choice(hosts), rng.choice(chosen), lasts))
    return found
