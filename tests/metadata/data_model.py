"""The nodes' logs beside the controller, as plain lists: enough to see whether a decision has lost a committed record.

Replicas copy the log of the leader that the image names; what every member of the ISR holds, while they are enough, is
committed. Nodes die with the controller unaware, come back cleanly or not, lose disks. A leader must have what
was committed. In one world a stop keeps everything (SEMANTICS 5: acknowledged means synced); in the other an unclean
stop loses the end of a log (Kafka's flush policy), and then only a leader that was in sync or eligible is trusted.
With `damages`, an unclean stop of one node may cut its logs, which it notices when it opens them.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec import Struct, field

from streamlog.config import ConfigChange
from streamlog.errors import InvalidRequestError
from streamlog.metadata.brokers.drain import DrainBroker
from streamlog.metadata.cluster import TakeOver
from streamlog.metadata.configs.changes import AlterConfigs, ResourceChange
from streamlog.metadata.configs.rules import Rulebook, effective_min_isr
from streamlog.metadata.decision import BrokerSessionTimer
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import AlterPartition, ReportOfflineReplicas
from streamlog.metadata.partitions.leaders import BalanceLeaders, ElectLeaders, RequestedElection
from streamlog.metadata.partitions.reassignment import AlterReassignments, PartitionReassignment
from streamlog.metadata.partitions.recovery import PartitionAnswers, RecoverPartitions, to_query
from streamlog.metadata.records import ConfigTarget, ConfigTargetType, Partition
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import CreatableTopic, CreateTopics
from streamlog.metadata.topics.deletion import DeleteTopics
from streamlog.metadata.topics.growth import CreatePartitions, GrowTopic
from streamlog.model import NO_BROKER, BrokerId
from tests.metadata.examples import ids
from tests.metadata.rig import Rig, replica_state

NODES = (1, 2, 3, 4)
TOPICS = ("t", "u", "v")


class Replicas(Struct):
    """What the nodes have of one partition."""

    logs: dict[int, list[int]] = field(default_factory=lambda: {node: [] for node in NODES})
    committed: list[int] = field(default_factory=list)
    epoch_start: int = 0  # where the leader's log ended when it was elected
    leader_epoch: int = -1
    epochs: dict[int, int] = field(default_factory=dict)  # of each record
    incomplete: set[int] = field(default_factory=set)  # nodes whose log was cut, until they are in sync


class DataModel:
    def __init__(self, seed: int, *, synced: bool, damages: bool = False) -> None:
        self.random = random.Random(seed)
        self.synced = synced
        self.damage = random.Random(f"{seed}/damage") if damages else None
        self.victim = 1 + seed % len(NODES)  # the node that is damaged
        self.rig = Rig(settings=ControllerSettings(drain_partitions_max=1))
        self.alive = dict.fromkeys(NODES, True)
        self.clean = dict.fromkeys(NODES, False)
        self.disks = dict.fromkeys(NODES, 0)
        self.replicas: dict[PartitionKey, Replicas] = {}
        self.records = 0
        self.counts: dict[str, int] = {}  # what happened, so that a test can check that it did
        self.rig.watch = self.follow
        for node in NODES:
            self.rig.start(node, directories=self.directories(node))
        self.rig.create("t", assignments=(ids(1, 2, 3), ids(2, 3, 4)))
        self.rig.create("u", assignments=(ids(1),))
        self.rig.create("v", assignments=(ids(3, 4),), configs={"min.insync.replicas": "2"})

    # --- the world

    def directories(self, node: int) -> tuple[bytes, ...]:
        return (bytes([node, self.disks[node]]) * 8,)

    def kill(self, node: int) -> None:
        """kill -9, or the power goes."""
        if not self.alive[node]:
            return
        self.alive[node] = self.clean[node] = False
        if not self.synced:
            for replicas in self.replicas.values():
                log = replicas.logs[node]
                del log[self.random.randint(0, len(log)) :]
        if self.damage is not None and node == self.victim:
            self.cut(node, self.damage)

    def cut(self, node: int, rng: random.Random) -> None:
        for replicas in self.replicas.values():
            log = replicas.logs[node]
            if log and rng.random() < 0.5:
                del log[rng.randint(0, len(log) - 1) :]
                replicas.incomplete.add(node)
                self.count("cut")

    def stop(self, node: int) -> None:
        if self.alive[node] and self.rig.broker(node).active:
            while not self.rig.heartbeat(node, want_shut_down=True).should_shut_down:
                pass
            self.alive[node], self.clean[node] = False, True

    def notice(self, node: int) -> None:
        """The session lapses."""
        timer = BrokerSessionTimer(BrokerId(node))
        if not self.alive[node] and timer in self.rig.timers:
            self.rig.fire(timer)

    def start(self, node: int, *, unnoticed: bool, lost_disk: bool) -> None:
        if self.alive[node]:
            return
        if unnoticed:
            self.rig.timers.pop(BrokerSessionTimer(BrokerId(node)), None)
        else:
            self.notice(node)
        if lost_disk:
            self.disks[node] += 1
            for replicas in self.replicas.values():
                replicas.logs[node].clear()
        self.rig.start(node, clean=self.clean[node], directories=self.directories(node))
        self.alive[node] = True

    def lose_directory(self, node: int) -> None:
        """One partition's log directory fails under a running node."""
        keys = [key for key, partition in self.rig.image.partitions() if node in partition.replicas]
        if self.alive[node] and keys:
            key = self.random.choice(keys)
            self.replicas[key].logs[node].clear()
            self.rig.do(
                ReportOfflineReplicas(broker_id=BrokerId(node), broker_epoch=self.rig.epoch(node), partitions=(key,))
            )
            # it is sound again, and empty, when the node has restarted without that directory
            self.disks[node] += 1

    # --- data

    def served(self, key: PartitionKey) -> tuple[Partition, Replicas] | None:
        """The partition, if its leader can serve; then it must have all that was committed."""
        partition, replicas = self.rig.image.partition(key), self.replicas[key]
        if partition.leader == NO_BROKER or not self.alive[partition.leader]:
            return None
        log = replicas.logs[partition.leader]
        if partition.leader_epoch != replicas.leader_epoch:
            replicas.leader_epoch, replicas.epoch_start = partition.leader_epoch, len(log)
        assert log[: len(replicas.committed)] == replicas.committed, f"{key[1]}: leader {partition.leader} lacks data"
        return partition, replicas

    def append(self, key: PartitionKey) -> None:
        if served := self.served(key):
            partition, replicas = served
            self.records += 1
            replicas.logs[partition.leader].append(self.records)
            replicas.epochs[self.records] = partition.leader_epoch
            self.commit(key)

    def copy(self, key: PartitionKey, node: int) -> None:
        """The follower cuts off what the leader has not, and fetches some."""
        served = self.served(key)
        if served is None or not self.alive[node] or node in served[0].offline or node not in served[0].replicas:
            return
        partition, replicas = served
        source, log = replicas.logs[partition.leader], replicas.logs[node]
        common = next(
            (at for at, (a, b) in enumerate(zip(source, log, strict=False)) if a != b), min(len(source), len(log))
        )
        log[common:] = source[common : common + self.random.randint(1, 4)]
        self.commit(key)

    def commit(self, key: PartitionKey) -> None:
        """The high watermark: what the whole ISR has, while it is large enough (SEMANTICS 1)."""
        partition, replicas = self.rig.image.partition(key), self.replicas[key]
        rules = Rulebook(self.rig.image, self.rig.settings).of_topic(self.rig.image.topics[key[0]])
        if len(partition.isr) < effective_min_isr(rules.min_insync_replicas, partition):
            return
        log = replicas.logs[partition.leader]
        held = min(self.held(log, replicas.logs[node]) for node in partition.isr)
        if held > len(replicas.committed):
            replicas.committed = log[:held]
            self.count("committed")

    def held(self, source: list[int], log: list[int]) -> int:
        return len(log) if log == source[: len(log)] else 0

    def join(self, key: PartitionKey, node: int) -> None:
        """SEMANTICS 3: a follower may join with LEO >= HW and >= the start of the leader's epoch."""
        served = self.served(key)
        if served is None or node not in served[0].replicas or node in served[0].isr or not self.alive[node]:
            return
        partition, replicas = served
        reached = self.held(replicas.logs[partition.leader], replicas.logs[node])
        if reached >= max(len(replicas.committed), replicas.epoch_start):
            self.propose(key, partition, (*partition.isr, BrokerId(node)))

    def leave(self, key: PartitionKey, node: int) -> None:
        served = self.served(key)
        if served is not None and node in served[0].isr and node != served[0].leader:
            self.propose(key, served[0], tuple(b for b in served[0].isr if b != node))

    def propose(self, key: PartitionKey, partition: Partition, isr: tuple[BrokerId, ...]) -> None:
        name = self.rig.image.topics[key[0]].name
        command = AlterPartition(
            broker_id=partition.leader,
            broker_epoch=self.rig.epoch(partition.leader),
            proposals=(self.rig.proposal(isr, name, key[1]),),
        )
        self.rig.do(command)

    # --- recovery

    def answers(self) -> tuple[PartitionAnswers, ...]:
        """The running nodes' reports on leaderless partitions."""
        found = []
        for key, nodes in to_query(self.rig.image):
            replicas = self.replicas[key]
            states = tuple(
                replica_state(
                    node,
                    max((replicas.epochs[record] for record in replicas.logs[node]), default=-1),
                    len(replicas.logs[node]),
                    broker_epoch=self.rig.epoch(node),
                    durable=self.synced,
                    incomplete=node in replicas.incomplete,
                )
                for node in nodes
                if self.alive[node]
            )
            leader_epoch = self.rig.image.partition(key).leader_epoch
            found.append(PartitionAnswers(key=key, leader_epoch=leader_epoch, states=states))
        return tuple(found)

    def recover(self) -> None:
        self.rig.do(RecoverPartitions(answers=self.answers()))

    # --- what the controller did

    def follow(self, before: MetadataImage, after: MetadataImage) -> None:
        """New partitions get logs; an unclean election is allowed to lose what only it may lose."""
        self.replicas = {key: what for key, what in self.replicas.items() if key[0] in after.topics}
        for key, partition in after.partitions():
            replicas = self.replicas.setdefault(key, Replicas())
            old = self.old_state(before, key)
            was_cut = partition.leader in replicas.incomplete
            replicas.incomplete.difference_update(b for b in partition.isr if old is not None and b not in old.isr)
            if old is None or partition.leader_epoch == old.leader_epoch or partition.leader == NO_BROKER:
                continue
            if partition.leader in (*old.isr, *old.elr):
                self.count("by ELR" if partition.leader in old.elr else "by ISR")
            elif partition.leader == old.last_leader and self.synced and not was_cut:
                self.count("last leader")
            elif self.synced and not was_cut and any(self.alive[b] for b in old.last_known_elr):
                self.count("last known")
            else:
                self.count("unclean")
                self.check_choice(key, partition)
                log = replicas.logs[partition.leader]
                replicas.committed = [a for a, b in zip(replicas.committed, log, strict=False) if a == b]

    def check_choice(self, key: PartitionKey, partition: Partition) -> None:
        """FAULTS I1: nothing that was acknowledged is lost where a live replica has all of it. Where logs lose their
        ends without anybody's knowledge, a later epoch may stand on less.
        """
        if not self.synced:
            return
        replicas = self.replicas[key]
        able = [b for b in partition.replicas if self.alive[b] and self.rig.broker(b).active]
        full = [b for b in able if replicas.logs[b][: len(replicas.committed)] == replicas.committed]
        log = replicas.logs[partition.leader]
        assert not full or log[: len(replicas.committed)] == replicas.committed, (
            f"{key[1]}: leader {partition.leader} lacks data"
        )

    def old_state(self, before: MetadataImage, key: PartitionKey) -> Partition | None:
        topic = before.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- operators

    def operate(self, which: int, node: int) -> None:
        rig = self.rig
        name = self.random.choice(TOPICS)
        at = self.random.randrange(len(rig.topic(name).partitions))
        command: Any
        match which:
            case 0:
                live = [b for b in NODES if not rig.broker(b).fenced]
                self.random.shuffle(live)
                target = ids(*live[: self.random.randint(1, 3)])
                if not target:
                    return
                command = AlterReassignments(
                    reassignments=(
                        PartitionReassignment(topic=name, partition_id=rig.key(name, at)[1], replicas=target),
                    )
                )
            case 1:
                command = AlterReassignments(
                    reassignments=(PartitionReassignment(topic=name, partition_id=rig.key(name, at)[1], replicas=None),)
                )
            case 2:
                command = DrainBroker(broker_id=BrokerId(node), cancel=rig.broker(node).draining)
            case 3:
                value = str(self.random.randint(1, 3))
                change = ConfigChange(name="min.insync.replicas", value=value)
                resource = ConfigTarget(ConfigTargetType.TOPIC, name)
                command = AlterConfigs(resources=(ResourceChange(resource=resource, changes=(change,)),))
            case 4:
                command = ElectLeaders(type=RequestedElection.PREFERRED)
            case 5:
                command = BalanceLeaders()
            case 6:
                rig.timers.clear()
                command = TakeOver()
            case 7 if rig.image.topic_named("w") is None:
                able = sum(broker.active and not broker.draining for broker in rig.image.brokers.values())
                if able == 0:
                    return
                command = CreateTopics(topics=(CreatableTopic(name="w", partitions=2),))
            case 7:
                command = DeleteTopics(names=("w",))
            case 8:
                command = CreatePartitions(topics=(GrowTopic(name="u", count=len(rig.topic("u").partitions) + 1),))
            case _:
                command = ElectLeaders(type=RequestedElection.UNCLEAN, answers=self.answers())
        try:
            rig.do(command)
        except InvalidRequestError:
            assert which == 2, "only a drain may be refused as a whole"

    def step(self) -> None:
        node = self.random.choice(NODES)
        key = self.random.choice(list(self.replicas))
        chance = self.random.random()
        if chance < 0.30:
            self.append(key)
        elif chance < 0.55:
            self.copy(key, node)
        elif chance < 0.68:
            self.join(key, node)
        elif chance < 0.72:
            self.leave(key, node)
        elif chance < 0.77:
            self.kill(node)
        elif chance < 0.82:
            self.notice(node)
        elif chance < 0.90:
            unnoticed, lost_disk = self.random.random() < 0.2, self.random.random() < 0.1
            self.start(node, unnoticed=unnoticed, lost_disk=lost_disk)
        elif chance < 0.92:
            self.stop(node)
        elif chance < 0.93:
            self.lose_directory(node)
        elif chance < 0.95:
            self.recover()
        else:
            self.operate(self.random.randrange(9) if self.random.random() < 0.97 else 9, node)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            for key in list(self.replicas):
                self.served(key)
