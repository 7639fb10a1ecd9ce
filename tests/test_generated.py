"""The checked-in generated code is what `make proto` would write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_generated_code_is_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, "tools/generate_proto.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
