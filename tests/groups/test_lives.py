"""The group's decisions in random lives, and that planted faults are found by them."""

from __future__ import annotations

import pytest

from streamlog.errors import InvariantError, StreamlogError
from streamlog.groups import committing, reconcile
from streamlog.groups.records import CurrentValue, MemberState
from streamlog.groups.state import NOTHING, Group

from .lives import Life

SEEDS = 300
STEPS = 120


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_random_lives(first: int) -> None:
    for seed in range(first, first + 50):
        Life(seed).run(STEPS)


def is_found(seeds: int = 100) -> bool:
    for seed in range(seeds):
        try:
            Life(seed).run(STEPS)
        except (AssertionError, InvariantError, StreamlogError):
            return True
    return False


def test_a_grant_before_the_release_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def release_at_once(group: Group, member_id: str, before: CurrentValue, owned: object) -> CurrentValue:
        target = group.target(member_id)
        return CurrentValue(
            epoch=group.target_epoch,
            previous_epoch=before.epoch,
            state=MemberState.STABLE,
            assigned=target,
            revoking=NOTHING,
        )

    monkeypatch.setattr(reconcile, "_step", release_at_once)
    monkeypatch.setattr(Group, "check_owner", lambda self, member_id, current: None)
    assert is_found()


def test_a_revocation_that_counts_before_it_is_acknowledged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = reconcile._step

    def trusting(group: Group, member_id: str, before: CurrentValue, owned: object) -> CurrentValue:
        return honest(group, member_id, before, NOTHING)

    monkeypatch.setattr(reconcile, "_step", trusting)
    assert is_found()


def test_a_commit_of_a_member_that_member_was_removed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "check_member", lambda group, member: None)
    assert is_found()
