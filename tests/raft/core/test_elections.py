"""A leader that dies is replaced at once: followers that ask together do not take each other's votes."""

from __future__ import annotations

import asyncio

import pytest

from streamlog.model import BrokerId
from streamlog.raft.core.library import RaftRole

from ..kit import Cluster
from ..library.our_lab import OurLab
from ..stories import now, run_story

MOMENT_S = 0.1
"""settings.leader_lost_backoff_ms"""


def orphans() -> OurLab:
    """Three followers with equal logs whose leader is gone permanently."""
    lab = OurLab(4)
    lab.elect(4)
    lab.run(2)
    lab.partition([4], [1, 2, 3])
    lab.clock.now += 10
    return lab


def ask(lab: OurLab, *nodes: int) -> None:
    for node in nodes:
        lab.campaign(node)


def test_of_two_that_ask_together_one_is_elected() -> None:
    lab = orphans()
    ask(lab, 1, 2, 3)
    lab.flush()
    assert [lab.leads(node) for node in (1, 2, 3)] == [False, False, True]
    assert lab.core(3).term == 2  # in the first term that was tried


def test_the_longer_log_goes_first() -> None:
    """Not the greater id, which could not be elected."""
    lab = OurLab(4)
    lab.elect(4)
    lab.run(2)
    lab.partition([3], [1, 2, 4])
    lab.submit(4, "x")
    lab.run(3)
    lab.heal()
    lab.partition([4], [1, 2, 3])
    lab.clock.now += 10
    ask(lab, 3, 1)
    lab.flush()
    assert lab.leads(1)


def test_who_grants_a_pre_vote_gives_the_asker_a_moment() -> None:
    lab = orphans()
    core = lab.core(2)
    core.election_deadline = lab.clock.now
    ask(lab, 1)
    (request,) = lab.queues[1, 2]
    core.receive(BrokerId(1), request)
    assert core.election_deadline == lab.clock.now + MOMENT_S


def test_who_went_first_in_vain_gives_way_after_a_moment() -> None:
    """Its requests are lost: it must not keep the others from being elected."""
    lab = orphans()
    ask(lab, 3)
    for other in (1, 2):
        lab.queues[3, other].clear()
    ask(lab, 1)
    lab.flush()
    assert not lab.leads(1)
    lab.clock.now += 2 * MOMENT_S
    ask(lab, 1)
    lab.flush()
    assert lab.leads(1)
    assert lab.core(3).role == RaftRole.FOLLOWER


def test_who_was_refused_does_not_go_first() -> None:
    """By a follower that had not noticed yet: when it notices, it must not be refused in its turn."""
    lab = OurLab(3)
    lab.elect(2)
    lab.run(2)
    lab.partition([2], [3])  # the leader fails, and 1 notices it later
    ask(lab, 3)
    lab.flush()
    assert not lab.leads(3)
    lab.partition([2], [1])
    ask(lab, 1)
    lab.flush()
    assert lab.leads(1)


def test_who_asks_in_vain_is_patient_no_more() -> None:
    """The leader that announced a long silence is gone."""
    lab = OurLab(3, election_timeout_max_ms=600)
    lab.elect(1)
    for _ in range(20):
        lab.run(1)  # until heartbeats are rare
    lab.partition([1], [2, 3])
    core = lab.core(2)
    core.election_deadline = lab.clock.now
    core.turn()
    assert 0.3 <= core.election_deadline - lab.clock.now <= 0.6


@pytest.mark.parametrize("idle_s", [0.3, 3.0])
def test_no_fail_over_waits_for_an_election_timeout(idle_s: float) -> None:
    """In any of these clusters, when the leader's process is killed and nothing else goes wrong."""
    slowest_s = max(fail_over_s(seed, idle_s) for seed in range(60))
    assert slowest_s < 0.3  # settings.election_timeout_min_ms


def fail_over_s(seed: int, idle_s: float) -> float:
    """From the death of the leader to the first command that another node has carried out."""
    took: list[float] = []

    async def story(cluster: Cluster) -> None:
        await cluster.put("k=0")
        await cluster.settle()
        await asyncio.sleep(idle_s)
        leader = await cluster.wait_for_leader()
        died = now(cluster)
        cluster.host(leader.node_id).crash()
        await cluster.wait_for_leader(other_than=leader.node_id)
        await cluster.put("k=1")
        took.append(now(cluster) - died)

    run_story(story, seed=seed)
    return took[0]
