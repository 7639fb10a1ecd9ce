"""`make setup`: the optional kernel is installed where it can be built; the Python is that of PYTHON=."""

from __future__ import annotations

import os
import shutil
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
    assert recipe.index("@echo 'Installing") < recipe.index("pip install --quiet"), "minutes without a word"
    assert (
        "pip uninstall --quiet --yes streamlog-kernel\nmake test T='tests/records tests/broker'"
        in (ROOT / ".ci" / "run").read_text()
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("present", "options", "used"),
    [
        (None, (), ".venv"),
        (None, ("PYTHON=./python3.13",), ".venv"),
        ("3.13", ("PYTHON=./python3.13",), ".venv"),
        ("3.11", (), ".venv"),
        ("3.11", ("PYTHON=./python3.13",), ".venv-3.13"),
        ("3.11", ("PYTHON=./python3.13", "VENV=mine"), "mine"),
    ],
)
def test_another_python_is_not_ignored_where_there_is_an_environment(
    tmp_path: Path, present: str | None, options: tuple[str, ...], used: str
) -> None:
    def python(path: Path, version: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)

    shutil.copy(ROOT / "Makefile", tmp_path)
    sources = [f"streamlog_{name}.c" for name in ("kernel", "batches", "syncs", "spark_native")]
    for needed in ("pyproject.toml", *(f"kernel/{name}" for name in ("pyproject.toml", "setup.py", *sources))):
        (tmp_path / needed).parent.mkdir(exist_ok=True)
        (tmp_path / needed).touch()
    python(tmp_path / "python3.13", "3.13")
    if present is not None:
        python(tmp_path / ".venv" / "bin" / "python", present)
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHON", "VENV", "MAKEFLAGS"}}
    done = subprocess.run(
        ["make", "--dry-run", "test", *options],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"\n{used}/bin/python -m pytest " in done.stdout
