"""What a seed does, as data: the cluster, its hardware and settings, its topics, the load, and the faults.

Made before the run from streams of randomness of its own, so that a fault can be left out without throwing the dice of
the rest again. Swarm testing: each seed draws its own few kinds of faults, its own speeds and limits.

    0 s         BEGIN_S       FAULTS_END_S   HEAL_S        LOAD_END_S   then          END_S
    start,      load and faults              healed, the   calm: pairs of requests    the last
    topics                                   load goes on  between silences           readers

Where slow disks make the start longer than BEGIN_S, all is so much later.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.metadata.features import LAST_KNOWN_ELR, METADATA_VERSION_MAX, METADATA_VERSION_MIN
from streamlog.metadata.records import MetadataVersion
from streamlog.sim.faults import SURVIVABLE, Fault, FaultKind, Hardware, draw_plan
from streamlog.sim.loop import Order

from .special.special_faults import UNTRUSTED, is_damaged, with_special_faults

BEGIN_S: Final = 3.0
FAULTS_END_S: Final = 17.0
HEAL_S: Final = 18.0
LOAD_END_S: Final = 22.0
END_S: Final = 30.0
"""A seed lives at least so long."""

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
CONTROLLER: Final = "controller"
"""Roles as targets: of the partition that most is sent to, and of the cluster, when the fault strikes."""

FAULTS_MAX: Final = 16
"""Of a seed: more of them, and nothing is up for long enough to be struck."""

LOST_DISK: Final = 0.4
"""Share of the seeds that can bear it in which a disk is lost."""

VOTES: Final = 0.5
"""Share of the seeds with more than three nodes in which an operator changes the voters."""

DELETES: Final = 0.2
"""Share of the seeds in which an operator deletes records."""

UPGRADES: Final = 0.15
"""Share of the seeds in which the nodes get another release, one after the other."""
UPGRADED_S: Final = 13.0
"""By then all nodes have the new release, and some faults are left for the raised metadata.version."""
BACK: Final = 0.5
"""Share of the upgrades in which one node goes back for a while."""
RESTART_S: Final = 0.4
"""Until a node that was killed for its upgrade starts again."""

CLIENTS: Final = ("c0", "c1", "c2")
"""Hosts that clients run on."""

PLAIN: Final = "plain"
PAIR: Final = "pair"
KEYED: Final = "keyed"


class TopicPlan(Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    configs: Mapping[str, str]

    @property
    def compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"


class Load(Struct, frozen=True, kw_only=True):
    producers: int
    sends_per_s: float  # of each, on average
    burst_chance: float  # of a send to be many at once
    value_bytes_max: int
    consumers: int
    producer: Mapping[str, str]  # settings
    consumer: Mapping[str, str]


class Restart(Struct, frozen=True, kw_only=True):
    """A node is killed, and starts with this release."""

    at: float
    node: str
    new: bool


class Upgrade(Struct, frozen=True, kw_only=True):
    """All nodes begin with an earlier release, whose metadata.version is the cluster's, and get the present one."""

    level: MetadataVersion  # the highest that the earlier release supports
    restarts: tuple[Restart, ...]  # by rising time; some nodes go back to the earlier release, and on again
    raised_from_s: float  # from when on an operator tries to raise metadata.version: no node goes back afterwards

    def is_new(self, node: str, at: float) -> bool:
        return next((one.new for one in reversed(self.restarts) if one.node == node and one.at <= at), False)

    @property
    def faults(self) -> list[Fault]:
        return [Fault(one.at, FaultKind.CRASH, one.node, "", RESTART_S) for one in self.restarts]


class Plan(Struct, frozen=True, kw_only=True):
    seed: int
    order: Order
    nodes: tuple[str, ...]  # "n1" is node 1
    voters: int  # the first so many; the others observe
    hardware: Hardware
    settings: Mapping[str, str]  # of every node
    topics: tuple[TopicPlan, ...]
    load: Load
    tunes: bool  # an operator writes a config over and over
    moves: bool  # and one moves replicas
    votes: bool  # and one changes the voters of the quorum
    deletes: bool  # and one deletes the oldest records
    faults: tuple[Fault, ...]
    log_dirs: tuple[str, ...] = ("/data",)  # of every node; several: an operator moves replicas between them
    upgrade: Upgrade | None = None
    untouched: tuple[str, ...] = ()  # nodes that keep their sessions, whatever these faults do to others

    @property
    def compacted(self) -> frozenset[str]:
        return frozenset(topic.name for topic in self.topics if topic.compacted)

    @property
    def may_vote(self) -> tuple[str, ...]:
        """Those that are voters from the start, and the observer that may be added."""
        return self.nodes[: self.voters + 1] if self.votes else self.nodes[: self.voters]

    @property
    def loses_disk(self) -> bool:
        return any(fault.kind in (FaultKind.POWER_WIPE, FaultKind.POWER_ALL_WIPE) for fault in self.faults)

    def topic(self, name: str) -> TopicPlan:
        return next(topic for topic in self.topics if topic.name == name)


def base_plan(seed: int) -> Plan:
    """Without the faults of `special_faults`."""
    rng = random.Random(f"cluster/{seed}/plan")
    size = rng.choice((3, 3, 3, 4, 5))
    nodes = tuple(f"n{number}" for number in range(1, size + 1))
    voters = rng.choice((3, 5)) if size == 5 else 3
    topics = _topics(random.Random(f"cluster/{seed}/topics"))
    faults = _faults(random.Random(f"cluster/{seed}/faults"), nodes)
    if size > voters and all(topic.min_insync_replicas > 1 for topic in topics):
        faults = _with_lost_disk(random.Random(f"cluster/{seed}/lost disk"), faults, nodes[voters:])
    return Plan(
        seed=seed,
        order=rng.choice(tuple(Order)),
        nodes=nodes,
        voters=voters,
        hardware=_hardware(random.Random(f"cluster/{seed}/hardware"), nodes),
        settings=_settings(random.Random(f"cluster/{seed}/settings")),
        topics=topics,
        load=_load(random.Random(f"cluster/{seed}/load")),
        tunes=rng.random() < 0.3,
        moves=size > 3 and rng.random() < 0.6,
        votes=False,
        deletes=False,
        faults=tuple(faults),
    )


DRAWN: Final = frozenset(FaultKind) - {FaultKind.FALSE_ANSWERS}
"""Kinds of faults that the plans of seeds have. The others occur at given moments alone (scripted/)."""


def make_plan(seed: int) -> Plan:
    plan = base_plan(seed)
    rng = random.Random(f"cluster/{seed}/special")
    faults = with_special_faults(
        random.Random(f"cluster/{seed}/special faults"),
        plan.faults,
        nodes=plan.nodes,
        voters=plan.nodes[: plan.voters],
        from_s=BEGIN_S,
        to_s=FAULTS_END_S,
        bears_a_loss=all(topic.min_insync_replicas > 1 for topic in plan.topics),
    )
    plan = replace(plan, faults=tuple(faults), votes=len(plan.nodes) > 3 and rng.random() < VOTES)
    # Damage to deleted records that share a segment with others stays: no replica may give them away. And an empty
    # disk keeps no log start.
    keeps = not is_damaged(faults) and not plan.loses_disk
    deletes = keeps and random.Random(f"cluster/{seed}/deletes").random() < DELETES
    plan = replace(plan, deletes=deletes)
    rng = random.Random(f"cluster/{seed}/upgrade")
    if rng.random() < UPGRADES:
        upgrade = _upgrade(rng, plan.nodes)
        # Where all have stopped uncleanly, older levels do not know who else has everything, nor whose log was cut.
        if plan.loses_disk or is_damaged(faults):
            upgrade = replace(upgrade, level=max(upgrade.level, LAST_KNOWN_ELR))
        plan = with_upgrade(plan, upgrade)
    return replace(plan, topics=tuple(map(_with_closed_segments, plan.topics))) if is_damaged(faults) else plan


def with_upgrade(plan: Plan, upgrade: Upgrade) -> Plan:
    faults = sorted([*plan.faults, *upgrade.faults], key=lambda fault: fault.at)
    return replace(plan, faults=tuple(faults), upgrade=upgrade)


def _upgrade(rng: random.Random, nodes: Sequence[str]) -> Upgrade:
    """One node after the other. Before the last one has the new release, one of the first may go back; then
    metadata.version is not raised before it has the new one again.
    """
    order = rng.sample(list(nodes), len(nodes))
    steps = [(node, True) for node in order]
    if rng.random() < BACK:
        undone = rng.randrange(len(steps) - 1)
        steps.insert(rng.randrange(undone + 1, len(steps)), (order[undone], False))
        steps.append((order[undone], True))
    times = sorted(round(rng.uniform(BEGIN_S, UPGRADED_S), 3) for _ in steps)
    restarts = [Restart(at=at, node=node, new=new) for at, (node, new) in zip(times, steps, strict=True)]
    return Upgrade(
        level=MetadataVersion(rng.randrange(METADATA_VERSION_MIN, METADATA_VERSION_MAX)),
        restarts=tuple(restarts),
        raised_from_s=times[-1] if len(restarts) > len(nodes) else BEGIN_S,
    )


def _with_closed_segments(topic: TopicPlan) -> TopicPlan:
    """Segments are closed while faults strike."""
    return replace(topic, configs={**topic.configs, "segment.ms": "1000"})


def _hardware(rng: random.Random, nodes: Sequence[str]) -> Hardware:
    """One disk at most is as slow as an election is long: with most of them so, there is no leader to speak of."""
    drawn = Hardware.draw(rng, nodes)
    slowest = max(nodes, key=lambda name: drawn.disk_slow[name])
    bounded = {name: slow if name == slowest else min(slow, 20.0) for name, slow in drawn.disk_slow.items()}
    return replace(drawn, disk_slow=bounded)


def _faults(rng: random.Random, nodes: Sequence[str]) -> list[Fault]:
    targets = [*nodes, LEADER, LEADER, LEADER, FOLLOWER, CONTROLLER, CONTROLLER]
    drawn = draw_plan(
        rng, targets=targets, hosts=[*nodes, *CLIENTS], from_s=BEGIN_S, to_s=FAULTS_END_S, kinds=SURVIVABLE
    )
    return sorted(rng.sample(drawn, min(FAULTS_MAX, len(drawn))), key=lambda fault: fault.at)


def _with_lost_disk(rng: random.Random, faults: Sequence[Fault], observers: Sequence[str]) -> list[Fault]:
    """In some seeds one disk is lost, and all nodes lose power: what two replicas had, one has still."""
    if rng.random() >= LOST_DISK:
        return list(faults)
    at = round(rng.uniform(BEGIN_S, FAULTS_END_S), 3)
    lost = Fault(at, FaultKind.POWER_ALL_WIPE, rng.choice(observers), lasts=rng.choice((0.05, 0.5, 2.0)))
    sound = [fault for fault in faults if fault.kind not in UNTRUSTED]
    return sorted([*sound, lost], key=lambda fault: fault.at)


def _settings(rng: random.Random) -> dict[str, str]:
    """Small limits in many seeds, so that each of them is met."""
    session_ms = rng.choice((800, 1500, 3000))
    return {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(session_ms // rng.choice((3, 4))),
        "replica.lag.time.max.ms": str(rng.choice((500, 2000, 10_000))),
        "replica.fetch.max.bytes": str(rng.choice((1 << 10, 1 << 14, 1 << 20))),
        "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((200, 5000))),
        "controller.quorum.election.timeout.ms": str(rng.choice((300, 600))),
        "log.index.size.max.bytes": "4096",
        "log.index.interval.bytes": str(rng.choice((0, 512, 4096))),
        "log.segment.delete.delay.ms": "1000",
    }


def _topics(rng: random.Random) -> tuple[TopicPlan, ...]:
    # Clocks jump: no node may refuse what the others' clocks have stamped.
    free = {"message.timestamp.after.max.ms": str(10**12), "message.timestamp.before.max.ms": str(10**12)}
    segment = {"segment.ms": str(rng.choice((1500, 5000, 1_000_000_000))), **free}
    topics = [
        TopicPlan(
            name=PLAIN,
            partitions=rng.choice((1, 2, 3)),
            replication_factor=3,
            min_insync_replicas=2,
            configs=segment,
        )
    ]
    if rng.random() < 0.3:
        topics.append(TopicPlan(name=PAIR, partitions=1, replication_factor=2, min_insync_replicas=1, configs=segment))
    if rng.random() < 0.3:
        compact = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            "segment.ms": "1000",
            **free,
        }
        topics.append(TopicPlan(name=KEYED, partitions=1, replication_factor=3, min_insync_replicas=2, configs=compact))
    return tuple(topics)


def _load(rng: random.Random) -> Load:
    return Load(
        producers=rng.choice((1, 1, 2)),
        sends_per_s=rng.choice((4.0, 8.0, 16.0)),
        burst_chance=0.04,
        value_bytes_max=rng.choice((30, 300, 1500)),
        consumers=1,
        producer={
            "linger.ms": str(rng.choice((0, 5, 50))),
            "batch.size": str(rng.choice((200, 16_384))),
            "delivery.timeout.ms": str(rng.choice((2000, 6000, 120_000))),
            "request.timeout.ms": str(rng.choice((500, 1500))),
            "compression.type": rng.choice(("none", "none", "lz4", "zstd")),
            "max.in.flight.requests.per.connection": str(rng.choice((1, 5))),
            "retry.backoff.max.ms": "300",
        },
        consumer={
            "max.poll.records": str(rng.choice((3, 500))),
            "fetch.max.wait.ms": str(rng.choice((100, 500))),
            "max.partition.fetch.bytes": str(rng.choice((1 << 10, 1 << 20))),
            "request.timeout.ms": "1500",
            "retry.backoff.max.ms": "300",
        },
    )
