"""Uses the package with each version of Python that pyproject.toml names, where that version is installed.

    python tools/pythons.py

The wheel of the package is built once; tools/try_wheel.py then installs it in a fresh environment of each version, with
the kernel's wheel if `make setup` has built one, and uses a node there. The tests run with one version; this finds what
makes the package useless with another one: a dependency that cannot be installed, a module or the kernel that fails.

A version is looked for as `python3.X` in the folders of PATH and of pyenv. Of several releases of a version the oldest
is used, which lacks the corrections of the later ones; not the one that runs this, since the tests run with it. Without
a version its name is printed, and nothing else: what runs on a machine is what it has.
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
_ASK: Final = "import sys, venv; print('%d.%d.%d' % sys.version_info[:3])"  # Debian's venv is another package
_ASK_TIMEOUT_S: Final = 60.0
_BUILD_TIMEOUT_S: Final = 600.0
_TRY_TIMEOUT_S: Final = 1800.0


def named() -> list[str]:
    """The versions that the package says it supports, oldest first."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    classifiers = [one.removeprefix(_PREFIX) for one in document["project"]["classifiers"] if one.startswith(_PREFIX)]
    return sorted((one for one in classifiers if re.fullmatch(r"3\.\d+", one)), key=lambda one: int(one[2:]))


def releases(version: str) -> dict[str, str]:
    """Programs by release, oldest first, of those that run: a shim of pyenv for a version not chosen does not."""
    programs: dict[str, str] = {}
    for program in _candidates(version):
        try:
            done = subprocess.run(
                [program, "-c", _ASK], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        release = done.stdout.strip()
        if done.returncode == 0 and release.rpartition(".")[0] == version:
            programs.setdefault(release, program)
    return dict(sorted(programs.items(), key=lambda item: int(item[0].rpartition(".")[2])))


def _candidates(version: str) -> Iterator[str]:
    name = f"python{version}"
    for folder in os.get_exec_path():
        in_path = shutil.which(name, path=folder)
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
    own = "{}.{}.{}".format(*sys.version_info[:3])
    present: dict[str, str] = {}
    for version in named():
        oldest = next(iter(releases(version).items()), None)
        if oldest is not None:
            present[oldest[0]] = oldest[1]
        elif version != own.rpartition(".")[0]:
            print(f"Python {version} is skipped: no python{version} in PATH or among pyenv's versions")
    present.pop(own, None)
    if not present:
        return 0
    with tempfile.TemporaryDirectory(prefix="streamlog-pythons-") as scratch:
        _build(Path(scratch))
        failed = []
        for release, program in present.items():
            print(f"Python {release}: ", end="", flush=True)
            command = [program, str(ROOT / "tools" / "try_wheel.py"), scratch]
            if subprocess.run(command, timeout=_TRY_TIMEOUT_S, check=False).returncode != 0:
                failed.append(release)
    if failed:
        print(f"streamlog does not work with Python {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
