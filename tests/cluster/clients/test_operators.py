"""The changer of voters keeps enough of them, whatever becomes of its changes."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.errors import RequestTimedOutError
from streamlog.model import BrokerId

from .operators import VOTERS_MIN, VoterChanger

NODES = tuple(BrokerId(number) for number in range(1, 5))


class FailingAdmin:
    """A replacement may end after the removal, and a change that was made may be reported as timed out."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.voters = set(NODES[:3])
        self.replaced_halfway = 0

    async def describe_cluster(self) -> SimpleNamespace:
        return SimpleNamespace(voters=[SimpleNamespace(node_id=node) for node in sorted(self.voters)])

    async def remove_voter(self, node_id: BrokerId) -> None:
        self.voters.discard(node_id)
        self._maybe_time_out()

    async def add_voter(self, node_id: BrokerId, *, replaced_node_id: BrokerId | None) -> None:
        if replaced_node_id is not None:
            self.voters.discard(replaced_node_id)
            self.replaced_halfway += 1
            self._maybe_time_out()
            self.replaced_halfway -= 1
        self.voters.add(node_id)
        self._maybe_time_out()

    def _maybe_time_out(self) -> None:
        if self._rng.random() < 0.3:
            raise RequestTimedOutError("not answered")


@pytest.mark.parametrize("loses_disk", [True, False])
async def test_enough_voters_remain(loses_disk: bool) -> None:
    """Seed 135 of the cluster simulation: two voters remained, and one of the two lost its disk."""
    least, halfway = len(NODES), 0
    for seed in range(200):
        rng = random.Random(seed)
        admin = FailingAdmin(rng)
        changer = VoterChanger(_typed(admin), NODES, rng, loses_disk=loses_disk)
        for _ in range(10):
            await changer.change()
            least = min(least, len(admin.voters))
        halfway += admin.replaced_halfway
    assert least == (VOTERS_MIN if loses_disk else VOTERS_MIN - 1)
    assert (halfway > 0) == (not loses_disk)


def _typed(admin: FailingAdmin) -> AsyncAdmin:
    return admin  # type: ignore[return-value]  # it has the three methods that are called
