"""Which voter is changed next, and that what is wrong with a quorum is seen."""

from __future__ import annotations

import random

from tests.nemesis.clients.membership import VoterChange, disagreement, next_change, restores_votes, two_leaders

WELL = (1, ((1, False), (2, False), (4, False)))


def test_a_spare_node_is_added_and_then_any_voter_removed() -> None:
    rng = random.Random(1)
    assert next_change(rng, [1, 2, 3, 4], [1, 2, 3]) == VoterChange(node_id=4, add=True)
    removed = {next_change(rng, [1, 2, 3, 4], [1, 2, 3, 4]) for _ in range(100)}
    assert removed == {VoterChange(node_id=one, add=False) for one in (1, 2, 3, 4)}
    assert next_change(rng, [1, 2, 3], [1, 2, 3]) is None


def test_rounds_differ_in_who_restores_a_vote() -> None:
    assert {restores_votes(seed) for seed in range(20)} == {True, False}


def test_a_quorum_that_is_well() -> None:
    assert disagreement({1: WELL, 2: WELL, 3: WELL}) == ""


def test_what_is_wrong_is_said() -> None:
    assert "controller" in disagreement({1: WELL, 2: (None, WELL[1])})
    assert "controller" in disagreement({1: WELL, 2: (2, WELL[1])})
    assert "voters are" in disagreement({1: WELL, 2: (1, ((1, False), (2, False), (3, False)))})
    assert "voters are" in disagreement({1: (1, WELL[1][:2]), 2: (1, WELL[1][:2])})
    lost = (1, ((1, False), (2, True), (4, False)))
    assert disagreement({1: WELL, 2: lost}) == "voters [2] have no vote"


def test_two_leaders_of_a_term_are_found_in_the_logs() -> None:
    first = "INFO  node 1: the quorum's leader is None, term 3\nINFO  node 1: is the active controller, term 3\n"
    agreed = "INFO  node 2: the quorum's leader is 1, term 3\nINFO  node 2: the quorum's leader is 2, term 4\n"
    assert list(two_leaders([first, agreed])) == []
    other = "INFO  node 3: the quorum's leader is 3, term 3\n"
    assert list(two_leaders([first, agreed, other])) == ["the quorum's leader in term 3 was each of [1, 3]"]
