"""Members that a node is for a client's stream: when that node has gone, so has the member, and not 45 s later."""

from __future__ import annotations

import pytest

from streamlog.errors import UnreleasedInstanceIdError
from streamlog.groups.decision import MemberSessionTimer
from streamlog.groups.membership import GRACE_MS, RemoveMember, timers_of_gone
from streamlog.groups.records import AWAY

from .rig import Coordinator, FakeTopics, Member, settle

SESSION_MS = 45_000
NODE, RESTARTED, OTHER = 7, 19, 8
"""Broker epochs: of a node, of the same one after its next start, of another node."""


def make(instance_id: str = "") -> tuple[Coordinator, Member, Member]:
    """One member on a stream that NODE serves, one that is a client itself."""
    coordinator = Coordinator(FakeTopics(t=4), live_epochs=frozenset({NODE, OTHER}))
    served = Member(coordinator, "served", instance_id=instance_id, serving_epoch=NODE)
    client = Member(coordinator, "client")
    settle(served, client)
    return coordinator, served, client


def session_ms(coordinator: Coordinator, member: str) -> int:
    return coordinator.timers[MemberSessionTimer("g", member)]


@pytest.mark.parametrize("live", [{OTHER}, {OTHER, RESTARTED}])
def test_the_node_that_died_was_the_coordinator_as_well(live: set[int]) -> None:
    coordinator, _, client = make()
    coordinator.live_epochs = frozenset(live)
    coordinator.fail_over()
    assert session_ms(coordinator, "served") == GRACE_MS
    assert session_ms(coordinator, "client") == SESSION_MS, "it finds the new coordinator in its own time"
    coordinator.together(RemoveMember(group="g", member_id="served"))  # the timer is due
    client.beat()
    assert client.indexes == [0, 1, 2, 3]


def test_a_new_coordinator_gives_a_whole_session_while_the_node_lives() -> None:
    coordinator, _, _ = make()
    coordinator.fail_over()
    assert session_ms(coordinator, "served") == SESSION_MS


def test_the_node_dies_and_the_coordinator_lives() -> None:
    coordinator, _, _ = make()
    coordinator.live_epochs = frozenset({OTHER})
    [timer] = timers_of_gone(coordinator.group(), coordinator.context)
    assert (timer.timer, timer.after_ms) == (MemberSessionTimer("g", "served"), GRACE_MS)


def test_a_node_that_was_fenced_and_lives_keeps_its_member() -> None:
    coordinator, served, _ = make()
    coordinator.live_epochs = frozenset({OTHER})
    coordinator.fail_over()
    served.beat()
    assert session_ms(coordinator, "served") == SESSION_MS


def test_a_static_member_comes_back_at_another_node_at_once() -> None:
    coordinator, before, client = make(instance_id="one")
    back = Member(coordinator, "back", instance_id="one", serving_epoch=OTHER)
    with pytest.raises(UnreleasedInstanceIdError):
        back.beat()
    coordinator.live_epochs = frozenset({OTHER})
    coordinator.fail_over()
    back.beat()
    assert back.indexes == before.indexes
    assert "served" not in coordinator.group().members
    client.beat()
    assert sorted(client.indexes + back.indexes) == [0, 1, 2, 3]


def test_an_away_member_keeps_its_session_when_the_node_that_served_it_before_restarts() -> None:
    coordinator, served, _ = make(instance_id="one")
    coordinator.heartbeat(served.request(epoch=AWAY))
    coordinator.live_epochs = frozenset({OTHER, RESTARTED})
    assert timers_of_gone(coordinator.group(), coordinator.context) == ()
    coordinator.fail_over()
    assert session_ms(coordinator, "served") == SESSION_MS
