"""Each hardening switched off is found: by random search, or, where that seldom gets there, by a script."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamlog.errors import InvariantError

from ..core import test_raft_paper as paper
from ..core import test_raft_paper_membership as membership
from ..core import test_raft_paper_reads as reads
from ..library import test_library_defects as defects
from ..library.our_lab import OurLab
from .mutants import MUTANTS
from .run import simulate

SEEDS_MAX = 400
"""Most are found within ten, all of those below within a hundred."""

SCRIPTED: dict[str, tuple[Callable[[], None], str]] = {
    "acknowledgements_of_any_term": (
        lambda: defects.test_t2_an_acknowledgement_counts_in_a_later_term(OurLab, shows=False),
        "an answer must stay on a stalled link for two elections, and its node must have lost what it acknowledged",
    ),
    "library_append": (
        paper.test_3_5_only_a_conflict_cuts,
        "masked: after a reconnect a leader sends one message at a time until it is answered; some hundred seeds",
    ),
    "lost_disks_are_elected": (
        membership.test_a_voter_without_its_disk_is_not_elected_by_who_knew_it,
        "one voter has seen nothing yet, one has lost its disk, one is down; found once in some two thousand seeds",
    ),
    "commits_entries_of_older_terms": (
        paper.test_3_6_2_figure_3_7_entries_of_older_terms_are_not_counted,
        "five leaderships in one order (Figure 3.7), with crashes between them; found once in some hundred seeds",
    ),
    "snapshot_vouches_for_the_tail": (
        reads.test_7_a_snapshot_replaces_a_log_that_it_does_not_agree_with,
        "a deposed leader with a longer tail than the snapshot that it is sent; found once in some hundred seeds",
    ),
    "reads_before_applied": (
        reads.test_6_4_a_read_waits_until_its_index_is_applied,
        "a leader applies within microseconds what a read must receive from the others: only a long backlog shows it",
    ),
    "reads_before_the_own_entry": (
        reads.test_6_4_a_new_leader_reads_after_its_own_entry_is_committed,
        "the window is one round trip after an election",
    ),
}
"""Mutant -> the test that fails with it, and why random search seldom finds it."""


@pytest.mark.parametrize("name", [name for name in MUTANTS if name not in SCRIPTED])
def test_random_search_finds(name: str) -> None:
    for seed in range(SEEDS_MAX):
        with MUTANTS[name]():
            report = simulate(seed)
        if not report.ok:
            return
    pytest.fail(f"{name} is not found in {SEEDS_MAX} seeds")


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_script_finds(name: str) -> None:
    script, _ = SCRIPTED[name]
    script()
    with MUTANTS[name](), pytest.raises((AssertionError, InvariantError)):
        script()
