"""The LD_PRELOAD library: wall clock and failing calls of another process, as the control file says."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.nemesis.faults.machine import Needs, Tools, lacking
from tests.nemesis.faults.shim import Shim

REASON = lacking().get(Needs.SHIM, "")
pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(REASON), reason=REASON)]

SYNC = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"x", 0)
for _ in range(2):
    try:
        os.fdatasync(file)
        print("synced")
    except OSError as error:
        print(error.errno)
"""


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    (tmp_path / "data").mkdir()
    tools = Tools(tmp_path, {needs: "not wanted" for needs in Needs if needs is not Needs.SHIM})
    assert tools.shim is not None
    return Shim(tools.shim, tmp_path / "control", tmp_path / "data")


def run(shim: Shim, *command: str | Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", *command], env=shim.environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not(shim: Shim) -> None:
    shim.clock(9 * 86400)
    wall, monotonic = run(shim, "import time; print(time.time(), time.monotonic())")
    assert 9 * 86400 - 60 < float(wall) - time.time() < 9 * 86400 + 60
    assert abs(float(monotonic) - time.monotonic()) < 60


def test_one_sync_fails_and_only_of_files_under_the_folder(shim: Shim, tmp_path: Path) -> None:
    shim.fail_next_sync()
    assert run(shim, SYNC, tmp_path / "elsewhere") == ["synced", "synced"]
    assert run(shim, SYNC, tmp_path / "data" / "log") == ["5", "synced"]
    assert shim.failed == 1


def test_writes_fail_until_they_are_cleared(shim: Shim, tmp_path: Path) -> None:
    write = "import os, sys; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); print(os.pwrite(f, b'x', 0))"
    shim.fail_writes()
    with pytest.raises(subprocess.CalledProcessError):
        run(shim, write, tmp_path / "data" / "log")
    shim.clear()
    assert run(shim, write, tmp_path / "data" / "log") == ["1"]
