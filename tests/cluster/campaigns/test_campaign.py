"""A range of seeds in pieces: the log continues where it was left."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from tests.cluster.campaigns import campaign
from tests.support.pieces import RUNS_OF_A_WORKER, in_processes, read_results

from .campaign import SeedResult, run_campaign, summary


def result(seed: int, *broken: str) -> SeedResult:
    return SeedResult(seed=seed, kinds=("damage",) if seed % 2 else ("plain",), cpu_s=2.0, broken=broken)


def test_a_piece_runs_what_is_not_in_the_log(tmp_path: Path) -> None:
    ran: list[int] = []

    def run_seed(seed: int) -> SeedResult:
        ran.append(seed)
        return result(seed)

    path = tmp_path / "logs" / "seeds.log"
    with mock.patch.object(campaign, "run_seed", run_seed):
        assert list(run_campaign(range(3), 1, path)) == [0, 1, 2]
        path.write_bytes(path.read_bytes()[:-10])  # stopped while the last line was written
        assert list(run_campaign(range(1, 5), 1, path)) == [1, 2, 3, 4]
    assert ran == [0, 1, 2, 2, 3, 4]
    assert sorted(one.seed for one in read_results(path, SeedResult)) == [0, 1, 2, 3, 4]


def test_failures_and_costs_are_summed_up_by_kind() -> None:
    lines = list(summary([result(0), result(1, "I1: lost"), result(2)]))
    assert lines == [
        "seed 1 (damage): I1: lost",
        "all: 3 seeds, 1 failed, 2.00 s of CPU a seed",
        "damage: 1 seeds, 1 failed, 2.00 s of CPU a seed",
        "plain: 2 seeds, 0 failed, 2.00 s of CPU a seed",
    ]


def test_workers_are_replaced_without_losing_a_run() -> None:
    work = range(3 * RUNS_OF_A_WORKER)
    assert sorted(in_processes(abs, work, 2)) == list(work)
