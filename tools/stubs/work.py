"""What the builds of all languages share: folders, files with this release's version, commands of toolchains."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from streamlog import release  # noqa: E402  of this checkout, not of what is installed

RELEASE: Final = release.RELEASE

PROTO: Final = ROOT / "proto"
FILES: Final = [str(path.relative_to(PROTO)) for path in sorted((PROTO / "streamlog" / "v1").glob("*.proto"))]
HERE: Final = Path(__file__).resolve().parent
WORK: Final = ROOT / "build" / "stubs"
"""Sources and what toolchains fetch: kept, so that the next build is faster."""

DIST: Final = ROOT / "dist" / "stubs"
TIMEOUT_S: Final = 1800.0
"""A first build fetches its packages."""

UNREACHABLE: Final = (
    "no such host",
    "dial tcp",
    "ENOTFOUND",
    "ECONNREFUSED",
    "EAI_AGAIN",
    "ETIMEDOUT",
    "ENOTCACHED",
    "Unknown host",
    "Could not transfer artifact",
    "This failure was cached in the local repository",
    "Unable to resolve artifact",
    "Temporary failure in name resolution",
    "Could not resolve host",
    "Could not find a version that satisfies",
)
"""What toolchains say where a registry does not answer or lacks a package: for the reason of a failure."""


class Skipped(Exception):
    """Its toolchain is not installed."""


class Failed(Exception):
    """A build or a program failed."""


def fresh(path: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def lay_out(template: Path, target: Path) -> Path:
    """A copy of a folder of files, with the version; what a toolchain has left in the target stays."""
    for source in sorted(path for path in template.rglob("*") if path.is_file()):
        path = target / source.relative_to(template)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.read_text().replace("@VERSION@", RELEASE))
    return target


def layout(language: str) -> Path:
    """The sources of its package: its layout and the licence."""
    target = lay_out(HERE / "layouts" / language, fresh(WORK / language))
    shutil.copy(ROOT / "LICENSE", target)
    return target


def copy_protos(target: Path) -> None:
    for file in FILES:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROTO / file, target / file)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Its output. Failed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        reason = f"{' '.join(words)} in {cwd} failed with exit code {done.returncode}"
        if any(sign in said for sign in UNREACHABLE):
            reason += ", maybe since a registry of packages did not answer"
        raise Failed(f"{reason}:\n{said}")
    return done.stdout


def protoc(*arguments: str | Path) -> None:
    """protoc of grpcio-tools, on all public files."""
    well_known = run(
        sys.executable, "-c", "import grpc_tools; print(grpc_tools.__path__[0] + '/_proto')", cwd=ROOT
    ).strip()
    run(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"-I{well_known}", *arguments, *FILES, cwd=ROOT)
