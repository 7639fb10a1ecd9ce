"""Short runs of the whole: one that must find nothing, and one with a planted defect, which must be found.

What the machine lacks is left out; without root that leaves kills, pauses and restarts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.nemesis.faults.machine import Needs, lacking

pytestmark = [pytest.mark.process, pytest.mark.rounds]
WITHIN_S = 540
NO_DISK = lacking().get(Needs.DISK, "")


def nemesis(report: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.nemesis", "--report", str(report), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_minute_of_faults_finds_nothing(tmp_path: Path) -> None:
    arguments = ["--minutes", "1", "--seed", "1", "--longest", "2", "--slack", "4"]
    status, printed = nemesis(tmp_path / "report.html", *arguments, "--kinds", "power all,kill,cut,pause,restart,clock")
    assert status == 0, printed
    assert "nothing found" in printed
    assert "<svg" in (tmp_path / "report.html").read_text()


@pytest.mark.skipif(bool(NO_DISK), reason=NO_DISK)
def test_a_power_cut_finds_syncs_that_are_left_out(tmp_path: Path) -> None:
    arguments = ["--seed", "2", "--kinds", "power all", "--events", "2", "--longest", "3", "--minutes", "0.2"]
    status, printed = nemesis(tmp_path / "report.html", *arguments, "--plant", "no_sync")
    assert status == 1, printed
    assert "FOUND I1:" in printed, printed
