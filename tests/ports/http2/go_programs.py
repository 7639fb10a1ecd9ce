"""Programs in Go that test HTTP/2 and gRPC (`go/go.mod`), built once a run; skipped by name where they cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tools.stubs.work import UNREACHABLE

H2SPEC: Final = "github.com/summerwind/h2spec/cmd/h2spec"
INTEROP_CLIENT: Final = "google.golang.org/grpc/interop/client"
INTEROP_SERVER: Final = "google.golang.org/grpc/interop/server"
BUILD_S: Final = 900.0
_MODULE: Final = Path(__file__).parent / "go"


@cache
def _build(package: str) -> tuple[Path | None, str]:
    """The program, or why it cannot be here."""
    if shutil.which("go") is None:
        return None, f"{package}: go is not installed"
    folder = Path(tempfile.mkdtemp(prefix="streamlog-go-"))
    done = subprocess.run(
        ["go", "build", "-o", f"{folder}/", package],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        cwd=_MODULE,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode and any(sign in done.stderr for sign in (*UNREACHABLE, "requires go >=")):
        return None, f"{package} cannot be built: {done.stderr.strip().splitlines()[-1][:300]}"
    assert not done.returncode, done.stderr
    return folder / package.rpartition("/")[2], ""


def built(package: str) -> Path:
    program, why = _build(package)
    if program is None:
        pytest.skip(why)
    return program
