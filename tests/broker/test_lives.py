"""Random lives of a node's replicas: topics come and go under the same names, roles change, the power fails.

What must hold whenever the node has come to rest: each partition that the metadata gives to this node has a log of
that topic's id and the role that the metadata says; no other log is in use; and whatever was acknowledged in the life
of a topic is there, at its offset. A topic may be without its leader where a start found the log of an earlier topic of
its name: that could be its own under a damaged id, so no empty log leads in its place, also after another start.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamlog.errors import NotLeaderError, StorageError, StreamlogError
from streamlog.model import NO_BROKER, BrokerId, Offset
from streamlog.records import decode_batch, scan_headers
from streamlog.sim.process import Killed
from tests.broker.rig import ME, OTHER, Rig

NAMES = ("a", "b")
names = st.sampled_from(NAMES)


class Life(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.rig = Rig(seed)
        self.rig.start()
        self.count = 0  # topics and values made
        self.ids: dict[str, int] = {}  # by name, of the topics that live
        self.used: set[str] = set()  # names
        self.again: set[int] = set()  # topics that had their name from an earlier one
        self.leader: dict[int, BrokerId] = {}
        self.acknowledged: dict[int, dict[int, bytes]] = {}  # by topic: offset -> value

    @rule(name=names, leader=st.sampled_from((ME, ME, OTHER)))
    def create(self, name: str, leader: BrokerId) -> None:
        if name not in self.ids:
            self.count += 1
            self.ids[name] = number = self.count
            if name in self.used:
                self.again.add(number)
            self.used.add(name)
            self.leader[number] = leader
            self.acknowledged[number] = {}
            self.rig.create(name, number, replicas=(ME, OTHER), isr=(leader,), leader=leader)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name in self.ids:
            number = self.ids.pop(name)
            self.rig.delete(number)

    @rule(name=names, leader=st.sampled_from((ME, ME, OTHER, NO_BROKER)))
    def elect(self, name: str, leader: BrokerId) -> None:
        if name in self.ids:
            number = self.ids[name]
            self.leader[number] = leader
            isr = {} if leader == NO_BROKER else {"isr": (leader,)}
            self.rig.change(number, leader=leader, **isr)

    @rule(name=names)
    def produce(self, name: str) -> None:
        if self.leader.get(self.ids.get(name, 0)) == ME:
            self.rig.rest()
            if self._is_refused(name):
                return
            self.count += 1
            value = b"v%d" % self.count
            appended = self.rig.produce(value, name=name)
            self.acknowledged[self.ids[name]][int(appended.first_offset)] = value

    @rule()
    def rest(self) -> None:
        self.rig.rest()

    @rule()
    def restart(self) -> None:
        self.rig.restart()

    @rule()
    def crash(self) -> None:
        self.rig.crash()

    @rule()
    def power_cut(self) -> None:
        self.rig.power_cut()

    @rule(changes=st.integers(0, 30), name=names)
    def cut_in_the_middle(self, changes: int, name: str) -> None:
        """The power fails within what the table does about a topic that comes or goes."""
        self.rig.machine.cut_after(changes)
        with contextlib.suppress(Killed):
            if name in self.ids:
                self.delete(name)
            else:
                self.create(name, ME)
        with contextlib.suppress(Killed):
            if self.rig.machine.process.alive:
                self.rig.rest()
        self.rig.machine.cut_after(None)
        if not self.rig.machine.process.alive:
            self.rig.power_cut()

    @rule()
    def at_rest_all_is_as_the_metadata_says(self) -> None:
        rig = self.rig
        rig.rest()
        partitions = [name for name in rig.names() if not name.endswith(("-delete", "-stray"))]
        assert partitions == sorted(f"{name}-0" for name in self.ids)
        following = {replica.partition.topic: replica for replica in rig.links.following}
        for name, number in self.ids.items():
            leader = self.leader[number]
            if leader == ME and not self._is_refused(name):
                assert rig.leader(name).topic_id[-1] == number
                assert self._values(name).items() >= self.acknowledged[number].items()
            elif leader != ME:
                with pytest.raises(StreamlogError) as refused:
                    rig.leader(name)
                assert isinstance(refused.value, NotLeaderError) == (leader == OTHER)
            assert (name in following) == (leader == OTHER)
        assert sorted(following) == sorted(name for name, number in self.ids.items() if self.leader[number] == OTHER)

    def _is_refused(self, name: str) -> bool:
        """Before anything was acknowledged, and where there was an earlier topic of this name."""
        number = self.ids[name]
        if number not in self.again or self.acknowledged[number]:
            return False
        try:
            self.rig.leader(name)
        except StorageError as error:
            return "named another topic" in error.message or "may lack acknowledged records" in error.message
        return False

    def _values(self, name: str) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = Offset(0)
        while data := self.rig.read(offset, name):
            for position, header in scan_headers(data, 0, len(data)):
                found |= {record.offset: record.value or b"" for record in decode_batch(data, position)}
                offset = header.next_offset
        return found

    @invariant()
    def the_node_runs(self) -> None:
        if hasattr(self, "rig"):
            assert not self.rig.task.done()
            for leader in self.rig.replicas.leaders():
                assert leader.log_start_offset <= leader.high_watermark <= leader.log_end_offset

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.stop()
            self.rig.machine.close()


TestLives = Life.TestCase
TestLives.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
