"""Three replicas of one partition on simulated disks, and a quorum that never fails: the plainest cluster there is.

Messages are calls that a test makes or leaves out. The controller keeps to SEMANTICS 3 and 4: a new leader comes from
the ISR, a leader change raises both epochs, a node that died leaves the ISR, unless it is the last one in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from streamlog.errors import OffsetOutOfRangeError, StreamlogError
from streamlog.model import BrokerId, LeaderEpoch, Offset
from streamlog.records import decode_batch, scan_headers, validate
from streamlog.replication.follower import PartitionFollower
from streamlog.replication.isr import ProposedIsr
from streamlog.replication.leader import LeaderTerm, PartitionLeader
from streamlog.sim.machine import Machine
from streamlog.storage.log.log import Log
from tests.storage.batches import batch
from tests.storage.rig import LIMITS, PARTITION, Rig

T = TypeVar("T")

LAG_MAX_MS = 1000


class Replica(Struct):
    broker: BrokerId
    rig: Rig
    high_watermark: Offset
    up: bool = True
    leader: PartitionLeader | None = None
    follower: PartitionFollower | None = None

    @property
    def log(self) -> Log:
        return self.rig.log

    def do(self, call: Callable[[], T]) -> T:
        """A plain call inside the machine's process."""
        return self.rig.do(call)


class Cluster:
    def __init__(self, seed: int, *, size: int = 3, min_insync: int = 2) -> None:
        self.replicas = [Replica(BrokerId(i), Rig(Machine(f"{seed}/{i}")), Offset(0)) for i in range(size)]
        for replica in self.replicas:
            replica.rig.sync()
        self.min_insync = min_insync
        self.now_ms = 0
        self.isr = tuple(r.broker for r in self.replicas)
        self.leader_id: BrokerId | None = None
        self.epoch = -1
        self.partition_epoch = 0
        self.sent: dict[bytes, None] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.unanswered: list[tuple[asyncio.Future[None], int, bytes]] = []
        self.elect(BrokerId(0))

    # -- the quorum

    def elect(self, broker: BrokerId | None) -> None:
        """Make it leader, under the next epochs, or leave the partition without one."""
        self.leader_id = broker
        self.epoch += broker is not None
        self.partition_epoch += 1
        for replica in self.replicas:
            self._resign(replica)
            replica.follower = None
        for replica in self.replicas:
            if replica.up:
                self._take_role(replica)

    def _take_role(self, replica: Replica) -> None:
        if self.leader_id is None:
            return
        if replica.broker == self.leader_id:
            term = LeaderTerm(
                partition=PARTITION,
                me=replica.broker,
                leader_epoch=LeaderEpoch(self.epoch),
                partition_epoch=self.partition_epoch,
                replicas=tuple(r.broker for r in self.replicas),
                isr=self.isr,
                min_insync_replicas=self.min_insync,
                others_eligible=False,
                lag_max_ms=LAG_MAX_MS,
            )
            if replica.log.derived.producers_stale:
                replica.rig.machine.run(replica.log.restore_producers())
            replica.leader = replica.do(
                lambda: PartitionLeader(
                    replica.log,
                    term,
                    high_watermark=replica.high_watermark,
                    now_ms=self.now_ms,
                    may_join=lambda b: self.replicas[b].up,
                )
            )
        else:
            replica.follower = PartitionFollower(
                replica.log, LeaderEpoch(self.epoch), high_watermark=replica.high_watermark
            )

    def _resign(self, replica: Replica) -> None:
        if replica.leader is not None:
            replica.high_watermark = replica.leader.high_watermark
            replica.leader.resign()
            replica.leader = None
            self._collect()
            self.unanswered = []
        if replica.follower is not None:
            replica.high_watermark = replica.follower.high_watermark

    def _alter(self, proposal: ProposedIsr) -> None:
        """AlterPartition, answered at once."""
        leader = self.leader.leader
        assert leader is not None
        if proposal.partition_epoch != self.partition_epoch or not all(self.replicas[b].up for b in proposal.isr):
            self.leader.do(lambda: leader.on_refused(proposal))
            return
        self.isr = proposal.isr
        self.partition_epoch += 1
        self.leader.do(lambda: leader.on_isr(self.isr, self.partition_epoch, others_eligible=False, by_metadata=False))

    @property
    def leader(self) -> Replica:
        assert self.leader_id is not None
        return self.replicas[self.leader_id]

    # -- what nodes do

    def produce(self, value: bytes) -> None:
        """acks=all; the answer is noted when it comes."""
        if self.leader_id is None:
            return
        data = batch([value])
        leader, replica = self.leader.leader, self.leader
        assert leader is not None
        self.sent[value] = None

        async def send() -> None:
            found = validate(data, 0, len(data), LIMITS, 0)
            try:
                done = leader.append(data, found, self.now_ms, acks_all=True)
            except StreamlogError:
                return
            self.unanswered.append((leader.wait_for(done.next_offset), done.first_offset, value))

        replica.rig.machine.run(send())
        self._collect()

    def _collect(self) -> None:
        """Note what has been acknowledged."""
        for future, offset, value in self.unanswered:
            if future.done() and future.exception() is None:
                holders = [r.broker for r in self.replicas if r.log.durability.synced_end > offset]
                assert len(holders) >= self.min_insync, (
                    f"{value!r} is acknowledged, but only {holders} have synced it"
                )  # I11
                self.acknowledged[offset] = value
        self.unanswered = [entry for entry in self.unanswered if not entry[0].done()]

    def sync(self, broker: int) -> None:
        replica = self.replicas[broker]
        if not replica.up:
            return
        replica.rig.sync()
        if replica.leader is not None:
            replica.do(replica.leader.on_ackable_end)
            self._collect()

    def replicate(self, broker: int, size_max: int = 400) -> None:
        """One round of one follower: position checked, bytes sent, appended. Nothing is synced."""
        replica = self.replicas[broker]
        if self.leader_id is None or not replica.up or replica.follower is None:
            return
        leader, follower = self.leader.leader, replica.follower
        assert leader is not None
        at = follower.position()
        diverging = leader.divergence(at.last_epoch, at.fetch_offset)
        if diverging is not None:
            replica.rig.machine.run(follower.on_diverging(diverging.epoch, diverging.end_offset))
            return
        try:
            data = self.leader.rig.read(at.fetch_offset, size_max)
        except OffsetOutOfRangeError:
            log = self.leader.log
            replica.rig.machine.run(follower.on_out_of_range(log.log_start_offset, log.log_end_offset))
            return
        hw = leader.high_watermark
        replica.do(lambda: follower.on_batches(data, hw, self.leader.log.log_start_offset))

    def report(self, broker: int) -> None:
        """The follower's ackable end reaches the leader, if its log is a beginning of the leader's."""
        replica = self.replicas[broker]
        if self.leader_id is None or not replica.up or replica.follower is None:
            return
        leader, at = self.leader.leader, replica.follower.position()
        assert leader is not None
        if at.fetch_offset > self.leader.log.log_end_offset:
            return
        if leader.divergence(at.last_epoch, at.fetch_offset) is not None:
            return
        self.leader.do(lambda: leader.on_position(replica.broker, at.ackable_end, self.now_ms))
        self._collect()

    def look_at_isr(self) -> None:
        if self.leader_id is None or self.leader.leader is None:
            return
        proposal = self.leader.leader.propose_isr(self.now_ms)
        if proposal is not None:
            self._alter(proposal)
            self._collect()

    # -- what happens to nodes

    def die(self, broker: int, *, power: bool) -> None:
        replica = self.replicas[broker]
        if not replica.up:
            return
        self._resign(replica)
        replica.leader = replica.follower = None
        replica.up = False
        replica.high_watermark = Offset(0)
        if power:
            replica.rig.machine.power_cut()
        else:
            replica.rig.machine.crash()
        if len(self.isr) > 1:
            self.isr = tuple(b for b in self.isr if b != broker)
        if self.leader_id == broker or self.leader_id is None:
            self.elect(next((b for b in self.isr if self.replicas[b].up), None))
        else:
            self.partition_epoch += 1
            leader = self.leader.leader
            assert leader is not None
            self.leader.do(
                lambda: leader.on_isr(self.isr, self.partition_epoch, others_eligible=False, by_metadata=False)
            )
            self._collect()

    def come_back(self, broker: int) -> None:
        replica = self.replicas[broker]
        if replica.up:
            return
        replica.rig.start()
        assert replica.log.damage is None
        replica.up = True
        if self.leader_id is None and broker in self.isr:
            self.elect(replica.broker)
        else:
            self._take_role(replica)

    def heal(self) -> None:
        """Everybody up, everything replicated."""
        for replica in self.replicas:
            self.come_back(replica.broker)
        for _ in range(60):
            self.now_ms += 10
            for replica in self.replicas:
                self.replicate(replica.broker, 100_000)
                self.sync(replica.broker)
                self.report(replica.broker)
            self.look_at_isr()
            if self._is_calm():
                return

    def _is_calm(self) -> bool:
        """All replicas hold the same, all of it ackable, and are in sync."""
        ends = {r.log.ackable_end for r in self.replicas} | {r.log.log_end_offset for r in self.replicas}
        leader = self.leader.leader
        assert leader is not None
        return len(ends) == 1 and len(self.isr) == len(self.replicas) and leader.high_watermark in ends

    def records(self, broker: int) -> dict[int, bytes | None]:
        replica = self.replicas[broker]
        found: dict[int, bytes | None] = {}
        offset = replica.log.log_start_offset
        while data := replica.rig.read(offset):
            for position, header in scan_headers(data, 0, len(data)):
                found.update({record.offset: record.value for record in decode_batch(data, position)})
                offset = header.next_offset
        return found

    def close(self) -> None:
        for replica in self.replicas:
            replica.rig.machine.close()
