"""FAULTS I1, I10, I11 as far as the controller decides them: no decision loses a committed record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from streamlog.metadata.brokers import registration
from streamlog.metadata.configs import changes as configs
from streamlog.metadata.configs.rules import TopicRules
from streamlog.metadata.partitions import election
from streamlog.metadata.partitions.election import Occasion
from streamlog.metadata.partitions.replica_states import LeaderChoice, ReplicaState
from streamlog.metadata.records import Partition, Replicas
from tests.metadata import rig
from tests.metadata.data_model import DataModel

SEEDS = 25
STEPS = 250


def run(synced: bool, seeds: range, *, damages: bool = False) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        model = DataModel(seed, synced=synced, damages=damages)
        model.run(STEPS)
        counts.update(model.counts)
    return counts


def test_what_was_committed_is_at_the_leader() -> None:
    """With synced acknowledgements, whatever was killed, however often."""
    counts = run(True, range(SEEDS))
    assert all(counts[what] for what in ("committed", "by ISR", "by ELR", "last leader", "last known")), counts


def test_with_logs_that_are_cut_by_damage() -> None:
    """A replica that is known to have everything has lost its end: a longer log leads, if there is one."""
    counts = run(True, range(SEEDS), damages=True)
    assert all(counts[what] for what in ("committed", "cut", "by ISR", "last leader", "last known", "unclean")), counts


def test_with_an_end_lost_at_each_unclean_stop() -> None:
    """Kafka's flush policy: the ELR is what can be trusted then (KIP-966)."""
    counts = run(False, range(SEEDS))
    assert all(counts[what] for what in ("committed", "by ISR", "by ELR", "unclean")), counts


@pytest.mark.long
@pytest.mark.parametrize("synced", [True, False])
def test_many_more_seeds(synced: bool) -> None:
    run(synced, range(10_000, 12_000))


# --- the model itself is tested: a planted bug must be found


def forget_unclean_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who came back uncleanly stays in ISR and ELR."""
    real = Occasion
    monkeypatch.setattr(
        registration, "Occasion", lambda **what: real(**{**what, "unclean_stops": (), "lost_disks": ()})
    )


def forget_lost_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last leader leads again, whatever became of its log."""
    real = Occasion
    monkeypatch.setattr(registration, "Occasion", lambda **what: real(**{**what, "lost_disks": ()}))


def take_the_first_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclean election does not ask what the logs have."""

    def chosen(
        partition: Partition, fit: Replicas, eligible: Replicas, states: Iterable[ReplicaState], *_: Any, **__: Any
    ) -> LeaderChoice | None:
        able = [b for b in partition.replicas if b in fit and any(state.broker_id == b for state in states)]
        return LeaderChoice(leader=able[0], proven=True) if able else None

    monkeypatch.setattr(election, "chosen", chosen)


def lead_again_after_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last leader leads at once, though its log was cut."""
    monkeypatch.setattr(election, "_may_lead_again", lambda partition, rules, occasion: True)


def keep_eligible_below_a_lower_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "_eligibility_lost", lambda records, image, context: iter(()))


def end_reassignments_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """When one of the new replicas is in sync, or none is."""

    def completed(partition: Partition, rules: TopicRules) -> Partition:
        replicas = election.without(partition.replicas, partition.removing)
        isr = tuple(b for b in replicas if b in partition.isr or b in rules.active)
        if not partition.removing or not isr:
            return partition
        return replace(partition, replicas=replicas, isr=isr, adding=(), removing=())

    monkeypatch.setattr(election, "reassignment_completed", completed)


def count_everybody_as_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ELR grows also while there are enough in sync."""
    monkeypatch.setattr(election, "effective_min_isr", lambda configured, partition: 99)


@pytest.mark.parametrize(
    ("plant", "synced"),
    [
        (forget_unclean_stops, False),
        (forget_lost_disks, True),
        (take_the_first_alive, True),
        (keep_eligible_below_a_lower_minimum, True),
        (end_reassignments_early, True),
        (count_everybody_as_eligible, True),
    ],
)
def test_planted_bugs_are_found(
    plant: Callable[[pytest.MonkeyPatch], None], synced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(rig, "check_image", lambda image, settings: None)  # by what it does to the data alone
    with pytest.raises(AssertionError, match="lacks data"):
        run(synced, range(60))


def test_a_last_leader_that_was_cut_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lead_again_after_a_cut(monkeypatch)
    monkeypatch.setattr(rig, "check_image", lambda image, settings: None)
    with pytest.raises(AssertionError, match="lacks data"):
        run(True, range(200), damages=True)
