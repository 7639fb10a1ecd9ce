"""Seeds of transactions on a cluster under faults, a sample here, more with `long`; planted defects.

`python -m tests.cluster.transactions.transaction_run --seeds 5000` runs more, `--seed 7` prints the story of one.
"""

from __future__ import annotations

import pytest

from tests.cluster.campaigns.seeds import stats_of
from tests.support.transaction_bench import Bench, check_that_no_marker_comes_before_its_decision_is_replicated

from .transaction_ledger import Ledger, Outcome
from .transaction_mutants import MUTANTS
from .transaction_plan import Event
from .transaction_run import simulate_transactions

SAMPLE = 15
SEEDS = 300
SHARD = 5
REPEATED = (1, 8)


@pytest.mark.parametrize("first", range(0, SAMPLE, SHARD))
def test_all_or_nothing_whatever_happens(first: int) -> None:
    check(first)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SAMPLE, SEEDS, SHARD))
def test_all_or_nothing_in_more_seeds(first: int) -> None:
    check(first)


def check(first: int) -> None:
    stats = stats_of(simulate_transactions, range(first, first + SHARD))
    # A simulation in which nothing happens proves nothing.
    assert stats["transactions committed"] > 15 * SHARD
    assert stats["transactions aborted"] > 3 * SHARD
    assert stats["transactions open"] > 2 * SHARD
    assert stats["writers fenced"] > SHARD // 2
    assert stats["transaction_timed_out"] > SHARD // 2
    assert sum(stats[f"writer {event.name.lower()}"] for event in Event) > 2 * SHARD


def test_what_is_aborted_is_left_out_though_the_partition_is_read_elsewhere_meanwhile() -> None:
    """Subscribe: the leader moved during the response, and with the feed the list of aborted
    transactions.
    """
    assert simulate_transactions(62).violations == []


def test_what_is_sent_after_an_abort_is_of_the_next_transaction_though_the_one_before_is_in_flight() -> None:
    assert simulate_transactions(230).violations == []


def test_a_partition_that_is_led_only_after_the_question_is_part_of_the_transaction() -> None:
    assert simulate_transactions(354).violations == []


def test_who_reads_from_the_disk_gets_nothing_that_is_appended_meanwhile() -> None:
    assert simulate_transactions(3631).violations == []


def test_a_journal_whose_seal_was_lost_by_a_failed_sync_is_sound() -> None:
    """The quorum's: tests/raft/storage/test_journal_recovery.py has it in few lines."""
    assert simulate_transactions(3569).violations == []


def test_a_seed_of_transactions_is_a_reproduction() -> None:
    first, second = ([simulate_transactions(seed).fingerprint for seed in REPEATED] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.masked])
def test_random_search_finds_in_transactions(name: str) -> None:
    assert MUTANTS[name].is_found_by(simulate_transactions)


def test_a_marker_before_its_decision_is_found_by_a_story_too() -> None:
    bench = Bench()
    try:
        with (
            MUTANTS["marker_before_the_decision_is_durable"].plant(),
            pytest.raises(AssertionError, match="before the decision"),
        ):
            check_that_no_marker_comes_before_its_decision_is_replicated(bench)
    finally:
        bench.settle()  # who waits gets an answer
        bench.end()
        bench.rig.stop()
        bench.rig.machine.close()


# -- the ledger itself


def kept(*outcomes: Outcome) -> tuple[Ledger, list[str]]:
    """Transactions of two values each, with offsets, that have ended so."""
    wrong: list[str] = []
    ledger = Ledger(lambda invariant, _: wrong.append(invariant))
    for outcome in outcomes:
        one = ledger.begin("w")
        one.next_value()
        one.next_value()
        one.offset = one.number
        one.outcome = outcome
    return ledger, wrong


ALL = [Outcome.COMMITTED, Outcome.ABORTED, Outcome.OPEN, Outcome.UNKNOWN]
GOOD = [b"#0/0", b"#0/1"]
FOUND = [
    ("good", GOOD, 0, []),
    ("unknown, and there", [*GOOD, b"#3/0", b"#3/1"], 3, []),
    ("plain records between", [b"plain", *GOOD, None], 0, []),
    ("lost", [], 0, ["I1"]),
    ("torn", [*GOOD, b"#3/1"], 3, ["I2"]),
    ("half of one that is committed", [b"#0/0"], 0, ["I2"]),
    ("aborted, and there", [*GOOD, b"#1/0", b"#1/1"], 1, ["I2"]),
    ("open, and there", [*GOOD, b"#2/0", b"#2/1"], 2, ["I2"]),
    ("twice", [*GOOD, b"#0/1"], 0, ["I4"]),
    ("a phantom", [*GOOD, b"#9/0"], 0, ["I2"]),
    ("offsets without their records", GOOD, 3, ["I14"]),
    ("records without their offset", GOOD, -1, ["I14"]),
]


@pytest.mark.parametrize(("final", "place", "broken"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_the_ledger_finds(final: list[bytes | None], place: int, broken: list[str]) -> None:
    ledger, wrong = kept(*ALL)
    ledger.check(final, {"w": place})
    assert wrong == broken


def test_the_ledger_finds_what_was_read_and_is_gone() -> None:
    ledger, wrong = kept(*ALL)
    ledger.given([b"#0/0", b"#3/0", b"plain"])
    ledger.check(list(GOOD), {"w": 0})
    assert wrong == ["I2"]


@pytest.mark.parametrize(
    ("outcomes", "broken"),
    [
        ((Outcome.UNKNOWN, Outcome.COMMITTED), []),
        ((Outcome.UNKNOWN, Outcome.ABORTED), []),
        ((Outcome.ABORTED,), []),
        ((Outcome.COMMITTED,), ["I2"]),
        ((Outcome.UNKNOWN, Outcome.COMMITTED, Outcome.ABORTED), ["I2"]),
        ((Outcome.ABORTED, Outcome.COMMITTED), ["I2"]),
    ],
)
def test_the_ledger_finds_answers_that_contradict(outcomes: tuple[Outcome, ...], broken: list[str]) -> None:
    ledger, wrong = kept(Outcome.OPEN)
    for outcome in outcomes:
        if outcome is Outcome.UNKNOWN:
            ledger.transactions[0].outcome = outcome
        else:
            ledger.decide(ledger.transactions[0], outcome)
    assert wrong == broken
