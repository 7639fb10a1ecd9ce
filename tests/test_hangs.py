"""A test that hangs ends, whatever it does with the exception of pytest's --timeout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLANTED = """
import asyncio
from tests import conftest

conftest.SWALLOWED_S = 1

async def hang():
    while True:
        try:
            await asyncio.Event().wait()  # it stands still: the traceback is read from another thread
        except BaseException:
            pass

def test_planted():
    asyncio.run(hang())
"""


def test_a_test_that_swallows_its_timeout_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PLANTED)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", f"--rootdir={tmp_path}", "--timeout=1", tmp_path],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 1
    assert "Timeout (0:00:02)!" in run.stderr
    assert "in test_planted" in run.stderr
