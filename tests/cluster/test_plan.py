"""A plan is a function of its seed, and all seeds together meet everything that there is."""

from __future__ import annotations

from itertools import product

from msgspec.structs import replace

from streamlog.config import load_consumer, load_producer
from streamlog.config.settings.topic_settings import TOPIC
from streamlog.metadata.features import METADATA_VERSION_MAX, METADATA_VERSION_MIN
from streamlog.sim.loop import Order

from .nodes import load
from .plan import BEGIN_S, CLIENTS, CONTROLLER, DRAWN, FAULTS_END_S, FOLLOWER, LEADER, make_plan

PLANS = [make_plan(seed) for seed in range(300)]


def test_a_plan_is_drawn_from_its_seed_alone() -> None:
    assert make_plan(7) == PLANS[7]
    assert len({repr(plan) for plan in PLANS}) == len(PLANS)


def test_plans_meet_everything() -> None:
    faults = [fault for plan in PLANS for fault in plan.faults]
    assert {fault.kind for fault in faults} == DRAWN
    assert {fault.target for fault in faults} == {"n1", "n2", "n3", "n4", "n5", LEADER, FOLLOWER, CONTROLLER}
    assert {fault.other for fault in faults} >= set(CLIENTS)
    assert all(BEGIN_S < fault.at < FAULTS_END_S for fault in faults)
    assert {(len(plan.nodes), plan.voters) for plan in PLANS} == {(3, 3), (4, 3), (5, 3), (5, 5)}
    assert {plan.order for plan in PLANS} == set(Order)
    upgrades = [plan.upgrade for plan in PLANS if plan.upgrade is not None]
    assert {one.level for one in upgrades} == set(range(METADATA_VERSION_MIN, METADATA_VERSION_MAX))
    assert {all(restart.new for restart in one.restarts) for one in upgrades} == {True, False}
    assert {topic.name for plan in PLANS for topic in plan.topics} == {"plain", "pair", "keyed"}
    assert {(bool(plan.compacted), plan.tunes, plan.moves) for plan in PLANS} == set(product((True, False), repeat=3))


def test_every_node_gets_the_new_release_and_none_goes_back_once_metadata_version_may_be_raised() -> None:
    for upgrade in [plan.upgrade for plan in PLANS if plan.upgrade is not None]:
        nodes = {restart.node for restart in upgrade.restarts}
        assert not any(upgrade.is_new(node, BEGIN_S) for node in nodes)
        assert all(upgrade.is_new(node, FAULTS_END_S) for node in nodes)
        assert all(restart.new for restart in upgrade.restarts if restart.at > upgrade.raised_from_s)


def test_a_fault_can_be_left_out_without_a_change_of_the_rest() -> None:
    plan = PLANS[3]
    shorter = replace(plan, faults=plan.faults[1:])
    assert replace(shorter, faults=plan.faults) == plan


def test_settings_are_those_of_nodes_topics_and_clients() -> None:
    """An unknown name would be drawn for nothing."""
    for plan in PLANS[:50]:
        for name in plan.nodes:
            warnings = load(plan, name).warnings
            assert all("4 voters tolerate no more failures than 3" in warning for warning in warnings), (
                "who may be added"
            )
        assert load_producer(plan.load.producer).warnings == ()
        assert load_consumer(plan.load.consumer).warnings == ()
        for topic in plan.topics:
            assert all(TOPIC.get(name) is not None for name in topic.configs)
