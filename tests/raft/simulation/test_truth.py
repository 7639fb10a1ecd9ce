"""What the simulation holds to be true of nodes that are down (simulation/truth.py)."""

from __future__ import annotations

from streamlog.model import RaftIndex, RaftTerm
from streamlog.raft.protocol.entries import FIRST_ENTRY, NO_OP, LogEntry

from .truth import Promise, Truth

REPORTED = Promise(term=1, vote=None, index=3, index_term=1)


def log(end: int) -> list[LogEntry]:
    return [FIRST_ENTRY, *(LogEntry(NO_OP, RaftIndex(index), RaftTerm(1)) for index in range(2, end))]


def test_a_node_that_its_disk_has_stopped_has_what_it_reported() -> None:
    """Seed 5189: it counted for the majority of an entry, and had failed when the leader applied that."""
    truth = Truth(lambda node, index: True)
    assert truth.durable_index_of("n1") == 0
    truth.reported("n1", REPORTED)
    assert truth.durable_index_of("n1") == 3
    truth.went_down("n1")
    assert truth.durable_index_of("n1") == 3


def test_a_node_that_its_disk_has_stopped_must_have_it_when_it_comes_back() -> None:
    truth = Truth(lambda node, index: True)
    truth.reported("n1", REPORTED)
    truth.went_down("n1")
    truth.came_up("n1", 1, None, log(4))
    assert truth.problems == []
    truth.reported("n1", REPORTED)
    truth.went_down("n1")
    truth.came_up("n1", 1, None, log(3))
    assert truth.problems == ["n1 had entry 3 durably, and came back with 2"]
