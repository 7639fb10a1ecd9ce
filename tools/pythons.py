"""Uses the package with each version of Python that pyproject.toml names, where that version is installed.

    python tools/pythons.py

The wheel of the package is built once; tools/try_wheel.py then installs it in a fresh environment of each version, with
the kernel's wheel if `make setup` has built one, and uses a node there. The tests run with one version; this finds what
makes the package useless with another one: a dependency that cannot be installed, a module or the kernel that fails.

A version is looked for as `python3.X` in PATH and in the folders of pyenv. Without it, its name is printed, and nothing
else: what runs on a machine is what it has.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_PREFIX: Final = "Programming Language :: Python :: "
_ASK: Final = (
    "import sys, venv; print('%d.%d' % sys.version_info[:2])"  # Debian has a Python whose venv is another package
)
_ASK_TIMEOUT_S: Final = 60.0
_BUILD_TIMEOUT_S: Final = 600.0
_TRY_TIMEOUT_S: Final = 1800.0


def named() -> list[str]:
    """The versions that the package says it supports, oldest first."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    classifiers = [one.removeprefix(_PREFIX) for one in document["project"]["classifiers"] if one.startswith(_PREFIX)]
    return sorted((one for one in classifiers if re.fullmatch(r"3\.\d+", one)), key=lambda one: int(one[2:]))


def found(version: str) -> str | None:
    """A Python of that version that runs; a shim of pyenv for a version that is not chosen does not."""
    for program in _candidates(version):
        try:
            done = subprocess.run(
                [program, "-c", _ASK], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.strip() == version:
            return program
    return None


def _candidates(version: str) -> Iterator[str]:
    name = f"python{version}"
    in_path = shutil.which(name)
    if in_path is not None:
        yield in_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/{name}")))


def _build(folder: Path) -> None:
    """SystemExit with what was printed, if it fails."""
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # modules that are gone would be in the wheel
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the wheel cannot be built:\n{done.stdout}{done.stderr}")
    for kernel in (ROOT / "dist").glob("streamlog_kernel-*.whl"):
        shutil.copy(kernel, folder)


def main() -> int:
    own = "{}.{}".format(*sys.version_info[:2])
    pythons = {version: found(version) for version in named() if version != own}
    for version in (version for version, program in pythons.items() if program is None):
        print(f"Python {version} is skipped: no python{version} in PATH or among pyenv's versions")
    present = {version: program for version, program in pythons.items() if program is not None}
    if not present:
        return 0
    with tempfile.TemporaryDirectory(prefix="streamlog-pythons-") as scratch:
        _build(Path(scratch))
        failed = []
        for version, program in present.items():
            print(f"Python {version}: ", end="", flush=True)
            command = [program, str(ROOT / "tools" / "try_wheel.py"), scratch]
            if subprocess.run(command, timeout=_TRY_TIMEOUT_S, check=False).returncode != 0:
                failed.append(version)
    if failed:
        print(f"streamlog does not work with Python {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
