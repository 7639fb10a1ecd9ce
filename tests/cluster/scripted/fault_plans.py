"""Plans with faults at given moments: damage, lost disks, hostile peers, votes, skewed clocks, deletions, upgrades."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from streamlog.metadata.records import MetadataVersion
from streamlog.sim.faults import Fault, FaultKind, Hardware

from ..plan import BEGIN_S, CONTROLLER, LEADER, Load, Plan, Restart, Upgrade, base_plan, with_upgrade
from .scripts import BUSY, plain_plan

FIVE: Final = ("n1", "n2", "n3", "n4", "n5")
SEVEN: Final = (*FIVE, "n6", "n7")
_TAKE_A_DIRECTORY: Final = frozenset({FaultKind.SYNC_ERROR, FaultKind.READ_ERROR, FaultKind.FULL_DISK})
AN_HOUR_AHEAD: Final = 4.6
"""Of a CLOCK_JUMP: (lasts - 1) * 1000 s."""
SLOW_LOAD: Final = Load(
    producers=1,
    sends_per_s=4.0,
    burst_chance=0.0,
    value_bytes_max=100,
    consumers=1,
    producer={"linger.ms": "0"},
    consumer={},
)
"""The last batches that a follower names reach back over several segments."""


def closing(plan: Plan) -> Plan:
    """Segments are closed each second."""
    topics = tuple(replace(topic, configs={**topic.configs, "segment.ms": "1000"}) for topic in plan.topics)
    return replace(plan, topics=topics)


def with_nodes(plan: Plan, nodes: tuple[str, ...]) -> Plan:
    return replace(plan, nodes=nodes, hardware=Hardware.healthy(nodes))


def directories_plan(seed: int) -> Plan:
    """Faults as in other seeds; nodes have two log directories, and replicas move between them. Not a disk that fails:
    with two of them, the node goes on without one. And none that is so slow that moves last longer than the run.
    """
    plan = base_plan(seed)
    settings = {**plan.settings, "replica.alter.log.dirs.io.max.bytes.per.second": "100000"}
    faults = tuple(fault for fault in plan.faults if fault.kind not in _TAKE_A_DIRECTORY)
    hardware = replace(
        plan.hardware, disk_slow={name: min(slow, 5.0) for name, slow in plan.hardware.disk_slow.items()}
    )
    return replace(plan, log_dirs=("/data", "/data2"), settings=settings, faults=faults, hardware=hardware)


def damage_plan(seed: int, kind: FaultKind, target: str) -> Plan:
    faults = [Fault(at, kind, target, "n1", 1.0) for at in (8.0, 11.0, 14.0)]
    return closing(plain_plan(seed, *faults))


def served_damage_plan(seed: int) -> Plan:
    return damage_plan(seed, FaultKind.DAMAGE, LEADER)


def tail_damage_plan(seed: int) -> Plan:
    """One node's logs are damaged again and again while it is down."""
    faults = [Fault(6.0 + 1.5 * time, FaultKind.CRASH_THEN_DAMAGE, "n2", "n1", 0.5) for time in range(7)]
    return plain_plan(seed, *faults)


def damaged_leader_plan(seed: int) -> Plan:
    """The leader's damage has not been read when both followers come back and are compared with it."""
    faults = [
        Fault(8.0, FaultKind.DAMAGE, LEADER, "n1"),
        Fault(8.1, FaultKind.CRASH, "n2", "n1", 1.0),
        Fault(8.1, FaultKind.CRASH, "n3", "n1", 1.0),
    ]
    return replace(closing(plain_plan(seed, *faults)), load=SLOW_LOAD)


def torn_plan(seed: int) -> Plan:
    """All nodes are killed at once, and the log of one of them is damaged: it seems to have a torn tail. That one is
    back first.
    """
    faults = [
        Fault(8.0, FaultKind.CRASH_THEN_DAMAGE, "n2", "n1", 0.5),
        Fault(8.0, FaultKind.CRASH, "n1", "n2", 0.5),
        Fault(8.0, FaultKind.CRASH, "n3", "n2", 3.0),
    ]
    plan = plain_plan(seed, *faults)
    slow = replace(plan.hardware, disk_slow={"n1": 100.0, "n2": 1.0, "n3": 1.0})
    return replace(plan, hardware=slow)


def wiped_plan(seed: int) -> Plan:
    """A voter's disk is lost, and another one is killed once the vote has been restored."""
    wiped = Fault(7.0, FaultKind.POWER_WIPE, "n2", "n1", 0.5)
    return plain_plan(seed, wiped, Fault(13.0, FaultKind.CRASH, "n3", "n1", 3.0))


def late_voter_plan(seed: int) -> Plan:
    """Voter 2 has not met voter 1 when the disk of that one is to be lost: its first start takes seconds, and is cut
    short (seed 2778).
    """
    faults = [Fault(3.05, FaultKind.POWER, "n2", "n1", 0.01), Fault(3.6, FaultKind.POWER_WIPE, "n1", "n2", 2.0)]
    plan = plain_plan(seed, *faults)
    return replace(plan, hardware=replace(plan.hardware, disk_slow={"n1": 1.0, "n2": 150.0, "n3": 1.0}))


def stale_voter_plan(seed: int) -> Plan:
    """Voter 1 is stale and voter 2 has lost its disk while voter 3, which has everything, is down."""
    faults = [
        Fault(5.0, FaultKind.CRASH, "n1", "n2", 5.1),
        Fault(10.0, FaultKind.POWER_WIPE, "n2", "n1", 0.1),
        Fault(10.0, FaultKind.CRASH, "n3", "n1", 3.0),
    ]
    return replace(plain_plan(seed, *faults), tunes=True)


def hostile_plan(seed: int) -> Plan:
    nodes = ("n1", "n2", "n3")
    faults = [
        Fault(5.0 + place * 0.4, FaultKind.HOSTILE, nodes[place % 3], nodes[(place + 1) % 3]) for place in range(24)
    ]
    return plain_plan(seed, *faults)


def false_answers_plan(seed: int) -> Plan:
    """The controller, the leader of a partition, or all nodes give false answers, while others are restarted."""
    nodes = ("n1", "n2", "n3")
    faults = []
    for number in range(5):
        at = 5.0 + 2.4 * number
        faults.append(Fault(at, FaultKind.FALSE_ANSWERS, (CONTROLLER, LEADER)[(seed + number) % 2], "n1", 1.0))
        faults.append(Fault(at + 0.3, FaultKind.CRASH, nodes[(seed + number) % 3], "n1", 0.3))
        faults += [Fault(at + 1.2, FaultKind.FALSE_ANSWERS, name, "n1", 0.7) for name in nodes]
    return plain_plan(seed, *faults)


def voters_plan(seed: int) -> Plan:
    """One observer may become a voter, another one stays an observer."""
    killed = Fault(9.0, FaultKind.CRASH, LEADER, "n1", 2.0)
    return replace(with_nodes(plain_plan(seed, killed), FIVE), votes=True)


def silent_source_plan(seed: int) -> Plan:
    """A voter is cut off from the others for longer than a session, and not from its observers."""
    cuts = [Fault(4.0, FaultKind.CUT, "n1", other, 13.0) for other in ("n2", "n3")]
    return replace(with_nodes(plain_plan(seed, *cuts), SEVEN), tunes=True, untouched=SEVEN[3:])


def skewed_plan(seed: int, target: str = LEADER, jump: float = AN_HOUR_AHEAD) -> Plan:
    """Half an hour of retention, looked at twice a second; the clock jumps while records are seconds old."""
    plan = plain_plan(seed, Fault(7.0, FaultKind.CLOCK_JUMP, target, "n1", jump))
    topic = plan.topics[0]
    configs = {**topic.configs, "retention.ms": "1800000", "segment.ms": "1500"}
    settings = {**plan.settings, "log.retention.check.interval.ms": "500"}
    return replace(plan, topics=(replace(topic, configs=configs),), settings=settings, load=BUSY)


def deleting_plan(seed: int) -> Plan:
    """Records are deleted over and over. Three times the leader is cut off from its followers, not from its clients,
    and then killed; at last all nodes lose power.
    """
    nodes = ("n1", "n2", "n3")
    faults = [Fault(15.5, FaultKind.POWER_ALL, "n1", "n2", 0.5)]
    for at in (5.0, 8.5, 12.0):
        faults += [Fault(at, FaultKind.CUT, LEADER, other, 1.5) for other in nodes]
        faults.append(Fault(at + 1.0, FaultKind.CRASH, LEADER, "n1", 1.0))
    return replace(plain_plan(seed, *faults), deletes=True)


def rejoining_plan(seed: int) -> Plan:
    """Records are deleted over and over. Five times a node misses deletions, rejoins, and soon all nodes lose power."""
    faults = []
    for number in range(5):
        at = 4.0 + 2.6 * number
        faults.append(Fault(at, FaultKind.CRASH, f"n{1 + number % 3}", "", 1.0))
        faults.append(Fault(at + 1.3 + 0.1 * (seed % 5), FaultKind.POWER_ALL, "n1", "n2", 0.05))
    return replace(plain_plan(seed, *faults), deletes=True)


def upgrade_plan(seed: int) -> Plan:
    """Node 3 is down for longer than a session while others get the new release, and returns with the earlier one."""
    steps = (("n1", 4.0), ("n2", 6.0), ("n3", 15.0))
    upgrade = Upgrade(
        level=MetadataVersion(1 + seed % 4),
        restarts=tuple(Restart(at=at, node=node, new=True) for node, at in steps),
        raised_from_s=BEGIN_S,
    )
    return with_upgrade(plain_plan(seed, Fault(5.0, FaultKind.CRASH, "n3", "n1", 7.0)), upgrade)
