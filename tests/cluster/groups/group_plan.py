"""What a seed of the simulation of groups does, as data: `plan` for the cluster, and the groups with their members.

A member is a program on a host of its own, so that it can be killed, cut off or stopped like a node; what happens to it
is drawn before the run, as faults are.

    0 s         BEGIN_S       FAULTS_END_S   HEAL_S            then
    start,      load, faults,                healed, two       calm: one more member joins, is killed, joins, leaves;
    topics      members come and go          of each group     all leave

Coordinators are struck more often than others: a fault's target may be the leader of what remembers a group.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.sim.faults import SURVIVABLE, Fault, FaultKind, Hardware, draw_plan

from ..plan import CONTROLLER, LEADER, PLAIN, Load, Plan, TopicPlan, base_plan

BEGIN_S: Final = 3.0
FAULTS_END_S: Final = 12.0
HEAL_S: Final = 12.5

COORDINATOR: Final = "coordinator"
"""A role as target: the leader of the partition that remembers the first group."""

FLEETING: Final = "fleeting"
"""A topic that is deleted and recreated while groups read it: nothing is promised of its offsets."""
FLEETING_PARTITIONS: Final = 2
NODES: Final = ("n1", "n2", "n3")
SESSION_MS: Final = 2000
MEMBERS_MAX: Final = 3


class Event(enum.Enum):
    """What happens to a member. It is up again, or goes on, after `lasts`."""

    LEAVE = enum.auto()  # closes its consumer
    KILL = enum.auto()  # kill -9: the kernel ends its connections
    POWER = enum.auto()  # no peer is notified
    PAUSE = enum.auto()  # SIGSTOP
    STUCK = enum.auto()  # asks for no records meanwhile
    CUT = enum.auto()  # from all nodes


class Action(Struct, frozen=True):
    at: float  # virtual seconds
    member: str  # its host
    event: Event
    lasts: float


class MemberPlan(Struct, frozen=True, kw_only=True):
    host: str
    instance_id: str  # empty: not static
    commits: bool  # by itself, each time; else automatically
    handling_s: float  # of what one poll gave it
    starts_at: float


class GroupPlan(Struct, frozen=True, kw_only=True):
    name: str
    topics: tuple[str, ...]
    pattern: str
    assignor: str
    members: tuple[MemberPlan, ...]


class GroupsPlan(Struct, frozen=True, kw_only=True):
    cluster: Plan
    groups: tuple[GroupPlan, ...]
    consumer: Mapping[str, str]  # settings of each member
    actions: tuple[Action, ...]
    grows_at: float  # the plain topic gets more partitions; 0: never
    fleeting_at: tuple[float, ...]  # FLEETING is made, deleted, made ...

    def names(self, group: GroupPlan) -> tuple[str, ...]:
        """The topics that it reads when all is healed, whether there or not."""
        return (*group.topics, *((PLAIN, FLEETING) if group.pattern else ()))


def make_groups_plan(seed: int) -> GroupsPlan:
    rng = random.Random(f"groups/{seed}/plan")
    groups = tuple(_group(rng, number) for number in range(rng.choice((1, 1, 2))))
    hosts = [member.host for group in groups for member in group.members]
    return GroupsPlan(
        cluster=_cluster(seed, hosts),
        groups=groups,
        consumer=_consumer(rng),
        actions=tuple(_actions(random.Random(f"groups/{seed}/actions"), hosts)),
        grows_at=round(rng.uniform(5.0, 11.0), 3) if rng.random() < 0.4 else 0.0,
        fleeting_at=tuple(sorted(round(rng.uniform(4.0, 12.0), 3) for _ in range(rng.choice((0, 0, 2, 3))))),
    )


def _cluster(seed: int, hosts: Sequence[str]) -> Plan:
    base = base_plan(seed)
    rng = random.Random(f"groups/{seed}/cluster")
    targets = [*NODES, COORDINATOR, COORDINATOR, COORDINATOR, LEADER, CONTROLLER]
    faults = draw_plan(
        random.Random(f"groups/{seed}/faults"),
        targets=targets,
        hosts=[*NODES, *NODES, *hosts],
        from_s=BEGIN_S + 1.0,
        to_s=FAULTS_END_S,
        kinds=SURVIVABLE,
        kinds_max=4,
    )
    if rng.random() < 0.5:
        faults += _deposed(rng)
    disk_slow = {name: min(base.hardware.disk_slow.get(name, 1.0), 20.0) for name in NODES}
    return replace(
        base,
        nodes=NODES,
        voters=3,
        hardware=Hardware(disk_slow=disk_slow, network_slow=rng.choice((1.0, 1.0, 5.0))),
        settings={
            **base.settings,
            "offsets.topic.num.partitions": str(rng.choice((1, 2))),
            "group.min.session.timeout.ms": "500",
            "log.index.size.max.bytes": "4096",
        },
        topics=(replace(_plain(base), partitions=rng.choice((4, 5))),),
        load=_load(base.load),
        tunes=False,
        moves=False,
        faults=tuple(faults),
    )


def _deposed(rng: random.Random) -> list[Fault]:
    """A coordinator that members reach and other nodes do not: it answers until it learns that it was replaced."""
    at, lasts = round(rng.uniform(BEGIN_S + 1.0, FAULTS_END_S - 3.0), 3), round(rng.uniform(1.0, 4.0), 3)
    return [Fault(at, FaultKind.CUT, COORDINATOR, other, lasts) for other in NODES]


def _plain(base: Plan) -> TopicPlan:
    """Nothing of it is deleted, so that offsets have no gaps."""
    return base.topic(PLAIN)


def _load(base: Load) -> Load:
    settings = {**base.producer, "compression.type": "none", "delivery.timeout.ms": "6000"}
    return replace(base, producers=1, sends_per_s=12.0, value_bytes_max=30, consumers=0, producer=settings)


def _consumer(rng: random.Random) -> dict[str, str]:
    return {
        "session.timeout.ms": str(SESSION_MS),
        "heartbeat.interval.ms": str(rng.choice((600, 1500))),
        "max.poll.interval.ms": str(rng.choice((1500, 3000))),
        "auto.commit.interval.ms": str(rng.choice((150, 800))),
        "auto.offset.reset": "earliest",
        "max.poll.records": str(rng.choice((3, 500))),
        "fetch.max.wait.ms": "500",
        "request.timeout.ms": "1500",
        "default.api.timeout.ms": "4000",
        "retry.backoff.max.ms": "300",
    }


def _group(rng: random.Random, number: int) -> GroupPlan:
    by_pattern = rng.random() < 0.3
    size, static = rng.randint(2, MEMBERS_MAX), rng.random() < 0.3
    members = [
        MemberPlan(
            host=f"m{number}{index}",
            instance_id=f"i{index}" if static and index < 2 else "",
            commits=rng.random() < 0.5,
            handling_s=rng.choice((0.0, 0.0, 0.02, 0.3)),
            starts_at=round(BEGIN_S + rng.random(), 3),
        )
        for index in range(size)
    ]
    return GroupPlan(
        name=f"g{number}",
        topics=() if by_pattern else rng.choice(((PLAIN,), (PLAIN, FLEETING))),
        pattern=f"{PLAIN}|{FLEETING[:3]}.*" if by_pattern else "",
        assignor=rng.choice(("", "range", "roundrobin")),
        members=tuple(members),
    )


def _actions(rng: random.Random, hosts: Sequence[str]) -> list[Action]:
    chosen = rng.sample(list(Event), rng.randint(2, 4))
    found, now = [], BEGIN_S + 1.0
    while (now := round(now + rng.expovariate(1 / rng.choice((0.5, 1.5))), 3)) < FAULTS_END_S:
        lasts = round(rng.choice((0.2, 1.0, 3.5)) * rng.random(), 3)
        event = rng.choice(chosen)
        if event is Event.PAUSE and rng.random() < 0.6:  # it is removed meanwhile, and does not know
            lasts = round(lasts + SESSION_MS / 1000, 3)
        found.append(Action(now, rng.choice(hosts), event, lasts))
    return found
