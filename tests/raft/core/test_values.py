"""Settings, voters, sessions: values and their limits."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.errors import DuplicateVoterError, InvalidRequestError, VoterChangeInProgressError, VoterNotFoundError
from streamlog.model import BrokerId, RaftIndex
from streamlog.raft.core.sessions import Sessions
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import UNKNOWN_DIRECTORY, DirectoryId, Voter, VoterSet, parse_voters

from ..kit import voter, voters

DIRECTORY = DirectoryId(bytes(16))


# Settings.


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_ms": 0},
        {"heartbeat_ms": 300},
        {"election_timeout_min_ms": 700},
        {"idle_heartbeat_ms": 50},
        {"window_bytes": -1},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        QuorumSettings(**wrong)


# Voters.


def test_voters_are_parsed() -> None:
    parsed = parse_voters("3@c.example:9092, 1@a.example:9092,2@[::1]:9093")
    assert [(v.node_id, v.address) for v in parsed] == [
        (1, "a.example:9092"),
        (2, "[::1]:9093"),
        (3, "c.example:9092"),
    ]
    assert str(parsed) == "1@a.example:9092,2@[::1]:9093,3@c.example:9092"


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "1@", "@a:1", "x@a:1", "1@a", "1@:9", "1@a:x", "1@a:70000", "-1@a:1", "1@a:1,", "1@a:1,1@b:1",
        "9" * 4_400 + "@a:1", "1@a:" + "9" * 4_400,
        "9999999999@a:1", "١@a:1", "1@" + "h" * 300 + ":1", ",".join(f"{n}@a:{n}" for n in range(1, 9)),
    ],
)  # fmt: skip
def test_what_is_no_list_of_voters_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_voters(text)


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_majorities(size: int, majority: int) -> None:
    assert voters(*range(1, size + 1)).majority == majority


def test_any_two_majorities_of_neighbouring_sets_meet() -> None:
    """What makes a change by one voter safe."""
    for size in range(1, 7):
        smaller, larger = voters(*range(size)), voters(*range(size + 1))
        assert smaller.majority + larger.majority > len(larger)


def test_changes_make_new_sets() -> None:
    three = voters(1, 2, 3)
    assert three.with_added(voter(4)).with_removed(BrokerId(2)) == voters(1, 3, 4)
    assert three == voters(3, 2, 1)
    with pytest.raises(DuplicateVoterError):
        three.with_added(voter(3))
    with pytest.raises(VoterNotFoundError):
        three.with_removed(BrokerId(4))
    with pytest.raises(InvalidRequestError):
        voters(1).with_removed(BrokerId(1))
    with pytest.raises(InvalidRequestError):
        VoterSet((voter(2), voter(1)))


def test_a_voter_to_be_added_is_not_forgotten_for_another() -> None:
    short = voters(1, 2, 3, 5).with_removed(BrokerId(5), pending=voter(6))
    assert short.with_removed(BrokerId(6), pending=voter(7)).pending == voter(7)
    with pytest.raises(VoterChangeInProgressError):
        short.with_removed(BrokerId(3), pending=voter(4))


def test_a_directory_is_known_or_not() -> None:
    known = voters(1, 2).with_directory(BrokerId(2), DIRECTORY)
    first, second = known
    assert (first.directory_id, second.directory_id) == (UNKNOWN_DIRECTORY, DIRECTORY)
    assert first.is_directory(DIRECTORY)
    assert second.is_directory(DIRECTORY)
    assert not second.is_directory(DirectoryId(b"x" * 16))
    assert known.get(BrokerId(3)) is None
    assert isinstance(known.get(BrokerId(1)), Voter)


# Sessions.


def test_an_answer_is_remembered() -> None:
    sessions = Sessions()
    assert sessions.answer_to("c", 5) is None
    first = sessions.remember("c", 5, RaftIndex(9), b"r")
    again = sessions.answer_to("c", 5)
    assert again is not None
    assert (again.index, again.result, again.repeated, first.repeated) == (9, b"r", True, False)
    assert sessions.answer_to("d", 5) is None
    assert sessions.answer_to("c", 4) is None  # not seen, and nothing is forgotten: it may come late


def test_what_is_forgotten_is_not_taken_for_new() -> None:
    sessions = Sessions(sequences_max=3)
    for sequence in (10, 12, 11, 13, 14):
        sessions.remember("c", sequence, RaftIndex(sequence), b"")
    for sequence in (10, 12, 5):
        with pytest.raises(LookupError):
            sessions.answer_to("c", sequence)
    assert sessions.answer_to("c", 11) is not None  # the latest three, though one is below what is forgotten
    assert sessions.answer_to("c", 15) is None


def test_the_client_that_was_silent_for_longest_goes() -> None:
    sessions = Sessions(clients_max=2)
    sessions.remember("a", 1, RaftIndex(1), b"")
    sessions.remember("b", 1, RaftIndex(2), b"")
    sessions.remember("a", 2, RaftIndex(3), b"")
    sessions.remember("c", 1, RaftIndex(4), b"")
    assert sessions.answer_to("b", 1) is None
    assert sessions.answer_to("a", 1) is not None


def test_a_dump_makes_the_same_sessions() -> None:
    sessions, other = Sessions(sequences_max=2), Sessions(sequences_max=2)
    for sequence in range(5):
        sessions.remember("a", sequence, RaftIndex(sequence), b"%d" % sequence)
        sessions.remember("b", sequence, RaftIndex(sequence), b"")
    other.load(sessions.dump())
    assert other.dump() == sessions.dump()
    for each in (sessions, other):
        each.remember("a", 9, RaftIndex(99), b"")
    assert other.dump() == sessions.dump()
