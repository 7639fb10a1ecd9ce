"""Whole lives of three nodes by seed; and bugs planted into the streams are found by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.leading.follower_slot import FollowerSlot
from streamlog.broker.leading.follower_stream import FollowerStream
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.model import LeaderEpoch, Offset
from streamlog.replication.follower import PartitionFollower
from tests.broker.replication_lives import live

Patch = Callable[[pytest.MonkeyPatch], None]
SEEDS = 16
SEEDS_FOR_BUGS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    live(seed)


def reported_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    write = FollowerReplica.on_batches

    def on_batches(self: FollowerReplica, *news: Any) -> None:
        write(self, *news)
        self.on_ackable_end()  # at once, and not when the sync has finished

    patch.setattr(PartitionFollower, "ackable_end", property(lambda self: self._log.log_end_offset))
    patch.setattr(FollowerReplica, "on_batches", on_batches)


def no_comparison(patch: pytest.MonkeyPatch) -> None:
    async def difference(self: LeaderReplica, held: object, fetch_offset: Offset) -> None:
        return None

    patch.setattr(LeaderReplica, "difference", difference)


def no_divergence_check(patch: pytest.MonkeyPatch) -> None:
    def divergence(self: LeaderReplica, last_epoch: LeaderEpoch, offset: Offset) -> None:
        return None

    patch.setattr(LeaderReplica, "divergence", divergence)
    no_comparison(patch)  # which would find it too


def never_reads_on_from_the_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FollowerSlot, "is_behind", property(lambda self: False))


def follows_from_anywhere_unchecked(patch: pytest.MonkeyPatch) -> None:
    def no_check(self: FollowerStream, replica: LeaderReplica, follow: object) -> None:
        return None

    patch.setattr(FollowerStream, "_check", no_check)
    no_comparison(patch)


def lives(first: int) -> None:
    for seed in range(first, first + SEEDS_FOR_BUGS):
        live(seed)


@pytest.mark.parametrize(
    ("plant", "first"),  # a seed shortly before one that finds it: searching takes a minute, finding a second
    [
        (reported_before_it_is_synced, 4),
        (no_divergence_check, 13),
        (never_reads_on_from_the_disk, 0),
        (follows_from_anywhere_unchecked, 0),
    ],
)
def test_a_planted_bug_is_found(plant: Patch, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011  # which check finds it differs from bug to bug
        lives(first)
