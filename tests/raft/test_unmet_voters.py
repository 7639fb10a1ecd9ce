"""A voter loses its disk before another voter has ever met it (seed 2778 of the cluster's simulation): the two of them
only have the settings, and are a majority of three. The third one, which has the log, reaches one or both of them for
a moment, before they reach each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from streamlog.model import BrokerId
from streamlog.raft.core.library import RaftRole
from streamlog.raft.voters import DirectoryId
from streamlog.sim import SimLoop
from streamlog.sim import run as run_simulation
from streamlog.sim.wires.fabric import Link
from streamlog.sim.world import World

from .kit import Cluster, voter, voters

WIPED, LATE, INTACT = 1, 2, 3
MET_WITHIN_S = 5.0
HELD_UP_S = 5.0
"""Many election time-outs."""


async def formed_by_two(cluster: Cluster) -> DirectoryId:
    """Voter 2 has never run; voter 1 has lost its disk since. Returns the directory that was on it."""
    cluster.start(WIPED, INTACT)
    await cluster.put("k=1")
    await cluster.settle()
    lost = cluster.member(WIPED).core.log.directory_id
    wiped = cluster.host(WIPED)
    wiped.power_cut()
    wiped.disk.replace()
    cluster.host(INTACT).crash()
    return lost


def between(one: int, others: Sequence[int]) -> list[Link]:
    there = [(f"n{one}", f"n{other}") for other in others]
    return there + [(target, source) for source, target in there]


def block(cluster: Cluster, links: Sequence[Link]) -> None:
    for link in links:
        cluster.world.fabric.block(*link)


def misses(cluster: Cluster, node_id: int, directory: DirectoryId) -> bool:
    """Whether a voter, once it runs, would notice that this directory of voter 1 is lost."""
    member = cluster.member_on(cluster.host(node_id))
    if member is None:
        return False
    named = member.core.voter_sets.voters.get(BrokerId(WIPED))
    return named is not None and directory == (named.directory_id or member.core.log.peers.get(BrokerId(WIPED)))


@pytest.mark.parametrize("met", [(WIPED, LATE), (WIPED,), (LATE,)], ids=["both", "the wiped one", "the late one"])
@pytest.mark.parametrize("seed", range(4))
def test_two_that_only_have_the_settings_do_not_begin_again(seed: int, met: Sequence[int]) -> None:
    async def main(loop: SimLoop) -> None:
        cluster = Cluster(World(loop, seed))
        lost = await formed_by_two(cluster)
        block(cluster, between(WIPED, [LATE]))
        block(cluster, between(INTACT, [node_id for node_id in (WIPED, LATE) if node_id not in met]))
        cluster.start()
        async with asyncio.timeout(MET_WITHIN_S):
            while not all(misses(cluster, node_id, lost) for node_id in met):  # noqa: ASYNC110  in virtual time
                await asyncio.sleep(0.001)
        block(cluster, between(INTACT, [WIPED, LATE]))
        cluster.world.fabric.heal(between(WIPED, [LATE]))
        await asyncio.sleep(HELD_UP_S)
        assert cluster.leader() is None
        cluster.world.fabric.heal()
        await cluster.put("k=2")
        await cluster.settle()
        assert [member.machine.count for member in cluster.members()] == [2, 2, 2]
        cluster.world.stop()

    run_simulation(main, seed=seed)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_two_that_a_running_quorum_does_not_name_are_no_second_one(seed: int, restarted: bool) -> None:
    """The settings are to grow from one voter to three: the two new ones have no log, and are a majority of three."""

    async def main(loop: SimLoop) -> None:
        cluster = Cluster(World(loop, seed))
        cluster.start(INTACT, bootstrap=voters(INTACT))
        await cluster.put("k=1")
        block(cluster, between(WIPED, [LATE]))
        cluster.start(WIPED, LATE)
        newcomers = (WIPED, LATE)
        async with asyncio.timeout(MET_WITHIN_S):
            while not all(knows_of_a_quorum(cluster, node_id) for node_id in newcomers):  # noqa: ASYNC110  virtual time
                await asyncio.sleep(0.001)
        block(cluster, between(INTACT, newcomers))
        if restarted:
            await asyncio.sleep(0.1)  # until it is durable
            for node_id in newcomers:
                cluster.host(node_id).crash()
            cluster.start(*newcomers)
        cluster.world.fabric.heal(between(WIPED, [LATE]))
        await asyncio.sleep(HELD_UP_S)
        assert [member.node_id for member in cluster.members() if member.core.role == RaftRole.LEADER] == [INTACT]
        cluster.world.fabric.heal()
        leader = await cluster.wait_for_leader()
        for node_id in newcomers:
            await cluster.call(leader, leader.raft.add_voter(voter(node_id)))
        await cluster.put("k=2")
        await cluster.settle()
        assert [member.machine.count for member in cluster.members()] == [2, 2, 2]
        cluster.host(INTACT).crash()
        await cluster.put("k=3")  # the two have votes now
        cluster.world.stop()

    run_simulation(main, seed=seed)


def knows_of_a_quorum(cluster: Cluster, node_id: int) -> bool:
    """It has met the voter with the log, and has connected to no other."""
    member = cluster.member_on(cluster.host(node_id))
    return member is not None and bool(member.core.voter_sets._noticed_index)
