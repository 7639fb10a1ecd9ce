"""Plans are a function of their seed, and give every kind its turn."""

from __future__ import annotations

from collections import Counter

from tests.nemesis.faults.machine import Needs
from tests.nemesis.faults.plan import WHOLE, Kind, draw_plan


def test_a_seed_gives_the_same_plan() -> None:
    def drawn(seed: int) -> list[str]:
        return [str(event) for event in draw_plan(seed, nodes=3, events=20, lacking=())]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_kind_has_its_turn() -> None:
    plan = draw_plan(1, nodes=3, events=10 * len(Kind), lacking=())
    struck = Counter(fault.kind for event in plan for fault in event.faults)
    assert set(struck) == set(Kind)
    assert max(struck.values()) - min(struck.values()) <= 1
    assert {len(event.faults) for event in plan} == {1, 2}


def test_what_the_machine_lacks_is_left_out() -> None:
    plan = draw_plan(1, nodes=3, events=100, lacking=(Needs.NETWORK, Needs.DISK, Needs.SHIM))
    assert {fault.kind.needs for event in plan for fault in event.faults} == {Needs.NOTHING}


def test_kinds_and_lengths_can_be_chosen() -> None:
    plan = draw_plan(1, nodes=5, events=50, lacking=(), kinds=[Kind.CUT, Kind.POWER_ALL], longest_s=3.0)
    faults = [fault for event in plan for fault in event.faults]
    assert {fault.kind for fault in faults} == {Kind.CUT, Kind.POWER_ALL}
    assert max(fault.lasts_s for fault in faults) <= 3.0
    assert all((fault.target == "") == (fault.kind in WHOLE) for fault in faults)
    assert all(1 <= fault.other <= 4 for fault in faults if fault.kind is Kind.CUT)
