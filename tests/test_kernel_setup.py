"""tools/build_kernel.py: `make setup` installs the optional kernel where it can be built, and says why where not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def built(compiler: str, *options: str) -> subprocess.CompletedProcess[str]:
    """With a compiler that is none: nothing is installed."""
    return subprocess.run(
        [sys.executable, "tools/build_kernel.py", *options],
        cwd=ROOT,
        env={**os.environ, "CC": compiler},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--required",), 1)])
def test_without_a_compiler_it_is_skipped_by_name(options: tuple[str, ...], status: int) -> None:
    done = built("no-such-compiler -O2", *options)
    assert done.returncode == status
    assert done.stdout.startswith("streamlog-kernel is skipped: no C compiler: 'no-such-compiler -O2' is not found")
    assert done.stderr == ""


def test_setup_builds_it_and_ci_tests_records_without_it() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile[makefile.index("$(STAMP):") :].partition("\n\n")[0]
    assert "python tools/build_kernel.py\n" in recipe
    assert (
        "pip uninstall --quiet --yes streamlog-kernel\nmake test T='tests/records tests/broker'"
        in (ROOT / ".ci" / "run").read_text()
    )
