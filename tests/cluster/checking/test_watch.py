"""The watch is watched: what it must find, on a log directory of a simulated machine, and what it must not blame."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest

from streamlog.model import BrokerId, LeaderEpoch, Offset, TopicId
from streamlog.records import validate
from streamlog.replication.follower import PartitionFollower
from streamlog.replication.leader import LeaderTerm, PartitionLeader
from streamlog.sim.machine import Machine
from streamlog.sim.process import Process
from streamlog.storage.log.durability import Durability
from streamlog.storage.log.log import Log
from tests.storage.batches import batch
from tests.storage.rig import LIMITS, PARTITION, Rig

from .eyes import looking
from .watch import Term, Watch

T = TypeVar("T")

ME = BrokerId(0)
TOPIC_ID = TopicId(b"t" * 16)


def term_of(epoch: int, topic_id: TopicId = TOPIC_ID) -> Term:
    return Term(topic_id, PARTITION, LeaderEpoch(epoch))


class Scene:
    """One machine with one log, seen by a watch through the eyes."""

    def __init__(self, watch: Watch, seed: int = 1) -> None:
        self.watch = watch
        self.rig = Rig(Machine(seed, name="n1"))

    @property
    def process(self) -> Process:
        return self.rig.machine.process

    def power_cut(self) -> None:
        self.watch.dies(self.process, self.rig.machine.disk)
        self.rig.power_cut()

    def do(self, call: Callable[[], T]) -> T:
        """In the machine's process."""

        async def now() -> T:
            return call()

        return self.rig.machine.run(now())

    def leader(self, epoch: int = 0, isr: tuple[BrokerId, ...] = (ME,)) -> PartitionLeader:
        term = LeaderTerm(
            partition=PARTITION,
            me=ME,
            leader_epoch=LeaderEpoch(epoch),
            partition_epoch=0,
            replicas=isr,
            isr=isr,
            min_insync_replicas=1,
            others_eligible=False,
            lag_max_ms=1000,
        )
        log = self.rig.log
        leader = self.do(
            lambda: PartitionLeader(log, term, high_watermark=Offset(0), now_ms=0, may_join=lambda broker: True)
        )
        self.watch.leads(self.process, term_of(epoch), log.log_start_offset)
        return leader


def found(play: Callable[[Watch, Scene], None]) -> list[str]:
    watch = Watch()
    with looking(watch):
        play(watch, Scene(watch))
    return [violation.invariant for violation in watch.violations]


def test_a_life_without_fault_is_not_blamed() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        for round_ in range(3):
            leader = scene.leader(epoch=round_)
            scene.rig.append(b"a", b"b", epoch=round_)
            scene.rig.sync()
            scene.do(leader.on_ackable_end)
            assert leader.high_watermark == scene.rig.log.log_end_offset
            scene.rig.append(b"lost", epoch=round_)
            watch.given("c", PARTITION, Offset(leader.high_watermark - 1))
            watch.acknowledged("p", PARTITION, Offset(leader.high_watermark - 1), 1)
            scene.power_cut()
            watch.acknowledged("p", PARTITION, Offset(leader.high_watermark - 1), 1)

    assert found(play) == []


def test_a_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log counts what it has written as synced."""
    monkeypatch.setattr(Durability, "wrote", lambda self, segment, size, end: setattr(self, "synced_end", end))

    def play(watch: Watch, scene: Scene) -> None:
        for _ in range(20):
            scene.rig.append(b"x" * 2000)
            scene.power_cut()

    assert "I11" in found(play)


def test_what_damage_has_destroyed_counts_for_what_was_acknowledged_before() -> None:
    """The acknowledgement comes when the node is up again: the leader counts what it had reported (seed 1004291)."""

    def play(watch: Watch, scene: Scene) -> None:
        scene.rig.append(b"one")
        scene.rig.sync()
        watch.dies(scene.process, scene.rig.machine.disk)
        watch.damaged("n1", PARTITION)
        scene.rig.machine.run(scene.rig.log.truncate(Offset(0)))  # as the start does, of a torn tail
        scene.rig.sync()
        scene.rig.power_cut()
        watch.acknowledged("p", PARTITION, Offset(0), 1)
        assert watch.violations == []
        watch.acknowledged("p", PARTITION, Offset(1), 1)

    assert found(play) == ["I11"]


def test_only_the_newest_leader_must_know_of_a_deletion() -> None:
    """One that was paused learns late that it led, with its successor (seed 1003797)."""

    def play(watch: Watch, scene: Scene) -> None:
        other = Scene(watch, seed=2)
        watch.leads(other.process, term_of(3), Offset(0))
        watch.acknowledged_deletion(PARTITION, Offset(5))
        watch.leads(scene.process, term_of(2), Offset(0))
        assert watch.violations == []
        watch.leads(scene.process, term_of(4), Offset(0))

    assert found(play) == ["I23"]


def test_other_bytes_than_promised_are_found() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        scene.rig.append(b"one")
        scene.rig.sync()
        scene.watch.dies(scene.process, scene.rig.machine.disk)
        scene.rig.machine.run(scene.rig.log.truncate(Offset(0)))  # behind its back
        scene.rig.append(b"two")
        scene.rig.sync()
        scene.rig.power_cut()

    assert found(play) == ["I11"]


def test_a_promise_lasts_until_the_log_is_opened() -> None:
    """Of a node that dies again before it has come so far."""

    def play(watch: Watch, scene: Scene) -> None:
        scene.rig.append(b"one")
        scene.rig.sync()
        scene.watch.dies(scene.process, scene.rig.machine.disk)
        scene.rig.machine.run(scene.rig.log.truncate(Offset(0)))
        scene.rig.sync()
        scene.rig.machine.power_cut()
        scene.watch.dies(scene.process, scene.rig.machine.disk)
        scene.rig.power_cut()

    assert found(play) == ["I11"]


def test_a_log_that_is_gone_is_found_unless_it_was_removed() -> None:
    def lose(watch: Watch, scene: Scene) -> None:
        scene.rig.append(b"one")
        scene.rig.sync()
        scene.watch.dies(scene.process, scene.rig.machine.disk)
        scene.rig.machine.run(scene.rig.directory.remove_log(PARTITION))  # behind its back
        scene.rig.power_cut()

    def remove(watch: Watch, scene: Scene) -> None:
        leader = scene.leader()
        scene.rig.append(b"one")
        scene.rig.sync()
        scene.do(leader.on_ackable_end)
        scene.rig.machine.run(scene.rig.directory.remove_log(PARTITION))
        scene.power_cut()
        assert scene.leader(epoch=1).high_watermark == 0

    assert found(lose) == ["I11"]
    assert found(remove) == []


def test_an_acknowledgement_that_too_few_hold_is_found() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        scene.rig.append(b"one")
        watch.acknowledged("p", PARTITION, Offset(0), 1)

    assert found(play) == ["I11"]


def test_an_acknowledgement_may_arrive_after_the_disk_was_lost() -> None:
    """It was sent before; the client was cut off, and the node has come back with an empty disk (seed 4859)."""

    def play(watch: Watch, scene: Scene) -> None:
        leader = scene.leader()
        scene.rig.append(b"one")
        scene.rig.sync()
        scene.do(leader.on_ackable_end)
        scene.rig.append(b"two")
        watch.dies(scene.process, scene.rig.machine.disk)
        watch.disk_lost(scene.process.name)
        scene.rig.machine.run(scene.rig.directory.remove_log(PARTITION))
        scene.rig.power_cut()
        watch.acknowledged("p", PARTITION, Offset(0), 1)
        assert not watch.violations
        watch.acknowledged("p", PARTITION, Offset(1), 1)  # never committed

    assert found(play) == ["I11"]


def test_a_high_watermark_that_falls_is_found() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        leader = scene.leader()
        scene.rig.append(b"a", b"b")
        scene.rig.sync()
        scene.do(leader.on_ackable_end)
        scene.do(lambda: PartitionFollower(scene.rig.log, LeaderEpoch(1), high_watermark=Offset(1)))

    assert found(play) == ["I9"]


def test_a_high_watermark_may_fall_where_the_log_was_damaged() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        process = scene.rig.machine.process
        watch.high_watermark(process, PARTITION, Offset(2))
        watch.damaged(process.name, PARTITION)
        watch.high_watermark(process, PARTITION, Offset(1))

    assert found(play) == []


def test_a_read_beyond_the_high_watermark_is_found() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        scene.leader()
        scene.rig.append(b"a")
        watch.given("c", PARTITION, Offset(0))

    assert found(play) == ["I9"]


def test_deleting_beyond_the_high_watermark_is_found() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        scene.rig.append(b"a", b"b")
        scene.do(lambda: Log.advance_log_start(scene.rig.log, Offset(1)))

    assert found(play) == ["I18"]


def test_two_that_append_in_an_epoch_are_found() -> None:
    def play(watch: Watch, scene: Scene) -> None:
        for _ in range(2):
            leader = scene.leader()
            scene.do(partial(append_through, leader))
            scene.power_cut()

    assert found(play) == ["I10", "I10"], "it leads, and it appends"


def test_two_that_lead_in_an_epoch_are_found() -> None:
    """As a node would that took its leadership from metadata older than its start."""
    watch = Watch()
    for start in (1, 2):
        watch.leads(Process("n1", start), term_of(3), Offset(0))
    assert [violation.invariant for violation in watch.violations] == ["I10"]


def test_an_epoch_that_falls_is_found() -> None:
    watch, process = Watch(), Process("n1")
    watch.leads(process, term_of(3), Offset(0))
    watch.leads(process, term_of(2), Offset(0))
    assert [violation.invariant for violation in watch.violations] == ["I10"]


def test_a_topic_of_the_same_name_begins_its_epochs_again() -> None:
    """A node whose disk failed has not removed the deleted one before it leads the next (seed 66 of the groups)."""
    watch, epoch = Watch(), LeaderEpoch(3)
    offline, other = Process("n1"), Process("n2")
    watch.leads(offline, term_of(epoch), Offset(0))
    watch.appended(offline, PARTITION, epoch)
    recreated = TopicId(b"u" * 16)
    watch.leads(offline, term_of(epoch - 1, recreated), Offset(0))
    watch.leads(other, term_of(epoch, recreated), Offset(0))
    watch.appended(other, PARTITION, epoch)
    assert watch.violations == []


def append_through(leader: PartitionLeader) -> None:
    data = batch([b"v"])
    leader.append(data, validate(data, 0, len(data), LIMITS, 0), 0, acks_all=True)


def test_a_leader_that_brings_deleted_records_back_is_found() -> None:
    def play(log_start: int, watch: Watch, scene: Scene) -> None:
        for _ in range(3):
            scene.rig.append(b"a")
        scene.rig.sync()
        scene.do(lambda: scene.rig.log.advance_log_start(Offset(log_start)))
        watch.high_watermark(scene.process, PARTITION, Offset(3))
        watch.acknowledged_deletion(PARTITION, Offset(2))
        scene.leader(epoch=1)

    assert "I23" in found(partial(play, 1))
    assert "I23" not in found(partial(play, 2))
