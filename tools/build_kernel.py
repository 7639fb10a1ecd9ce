"""Builds the optional kernel (kernel/) and installs it into the environment of the Python that runs this.

    python tools/build_kernel.py              where it can be built; else one line that says why not, and exit code 0
    python tools/build_kernel.py --required   exit code 1 where it cannot be built (`make kernel`)

`make setup` ends with it. Nothing depends on it: without the kernel records are checked and decoded in Python and
numpy, and threads of Python sync. It takes a C compiler, Python's headers and setuptools; with the setuptools of the
environment, where it is new enough, it takes no network.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "kernel"
PROGRAM: Final = "streamlog-spark-native"
WITHOUT: Final = (
    "everything works without it, but checking, reading, syncing and Spark's start take more CPU (docs/performance.md)"
)
_TIMEOUT_S: Final = 300.0
_SETUPTOOLS_MIN: Final = 77  # of kernel/pyproject.toml


def missing() -> str | None:
    """What a build lacks on this machine."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if not command or shutil.which(command[0]) is None:
        return f"no C compiler: {' '.join(command)!r} is not found (install one, or set CC)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return f"no C headers of this Python: {header} is missing (install them, for example python3-dev)"
    return None


def build(wheels: Path) -> str | None:
    """Leave the wheel in `wheels` and install it. What failed, if it did."""
    for old in wheels.glob("streamlog_kernel-*.whl"):
        old.unlink()
    options = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    isolation = ["--no-build-isolation"] if _has_setuptools() else []
    problem = _pip("wheel", *options, *isolation, "--wheel-dir", str(wheels), str(SOURCE))
    if problem is not None:
        return problem
    built = [str(wheel) for wheel in wheels.glob("streamlog_kernel-*.whl")]
    return _pip("install", *options, "--force-reinstall", *built)


def _has_setuptools() -> bool:
    try:
        return int(importlib.metadata.version("setuptools").partition(".")[0]) >= _SETUPTOOLS_MIN
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False


def _pip(*arguments: str) -> str | None:
    """The last lines of what it printed, if it failed."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:]) or f"pip exited with {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tools/build_kernel.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--required", action="store_true", help="a kernel that cannot be built is an error")
    options = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(f"streamlog-kernel is skipped: {reason}; {WITHOUT}")
        return 1 if options.required else 0
    problem = build(ROOT / "dist")
    if problem is not None:
        print(f"streamlog-kernel is skipped: it cannot be built; {WITHOUT}; 'make kernel' tries again:\n{problem}")
        return 1 if options.required else 0
    if sys.platform == "linux" and not Path(sys.executable).with_name(PROGRAM).exists():
        print(
            f"streamlog-kernel is installed without {PROGRAM}, which does not compile: pip install -v ./kernel says why"
        )
        return 1 if options.required else 0
    print("streamlog-kernel is installed: records are checked and decoded, batches verified, files synced, and Spark's")
    print("processes started, in C")
    return 0


if __name__ == "__main__":
    sys.exit(main())
