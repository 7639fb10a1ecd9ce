"""Short runs of the whole: one that must find nothing, and one with a planted defect, which must be found.

What the machine lacks is left out; without root that leaves kills, pauses and restarts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nemesis.faults.machine import Needs, lacking

pytestmark = pytest.mark.process
WITHIN_S = 540
NO_DISK = lacking().get(Needs.DISK, "")


def nemesis(report: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.nemesis", "--report", str(report), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return done.returncode, done.stdout + done.stderr


def test_some_faults_find_nothing(tmp_path: Path) -> None:
    """Of kinds that end no node by its disk; with time for a machine that is busy."""
    arguments = ["--seed", "1", "--events", "4", "--minutes", "1", "--longest", "2", "--slack", "12"]
    status, printed = nemesis(tmp_path / "report.html", *arguments, "--kinds", "kill,cut,pause,restart")
    assert status == 0, printed
    assert "nothing found" in printed
    assert "<svg" in (tmp_path / "report.html").read_text()


@pytest.mark.rounds
@pytest.mark.skipif(bool(NO_DISK), reason=NO_DISK)
def test_a_power_cut_finds_syncs_that_are_left_out(tmp_path: Path) -> None:
    arguments = ["--seed", "2", "--kinds", "power all", "--events", "2", "--longest", "3", "--minutes", "0.2"]
    status, printed = nemesis(tmp_path / "report.html", *arguments, "--plant", "no_sync")
    assert status == 1, printed
    assert "FOUND I1:" in printed, printed
