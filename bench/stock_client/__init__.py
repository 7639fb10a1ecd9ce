"""A gRPC client in Go, with gRPC's own library and nothing of streamlog: the same call again and again.

It is built once into target/, where Go is installed and its modules can be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

HERE: Final = Path(__file__).parent
_PROGRAM: Final = HERE / "target" / "stock_client"
_BUILD_S: Final = 900.0
_RUN_S: Final = 600.0


class Calls(Struct, frozen=True):
    """What a run has measured."""

    calls: int
    seconds: float
    p50_ms: float
    p99_ms: float


def build() -> str | None:
    """Why the program cannot be here; None: it can."""
    if shutil.which("go") is None:
        return "Publish by a client in Go is not measured: no `go` on the PATH"
    done = subprocess.run(
        ["go", "build", "-o", str(_PROGRAM), "."],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        cwd=HERE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    if not done.returncode:
        return None
    return f"Publish by a client in Go is not measured, it cannot be built: {done.stderr.strip().splitlines()[-1]}"


def run(address: str, method: str, request: bytes, *, calls: int, in_flight: int) -> Calls:
    """After a tenth of as many calls to warm up, which are not in the figures."""
    done = subprocess.run(
        [str(_PROGRAM), address, method, str(calls), str(in_flight)],
        input=request,
        stdout=subprocess.PIPE,
        check=True,
        timeout=_RUN_S,
    )
    seconds, p50_ms, p99_ms = map(float, done.stdout.split())
    return Calls(calls=calls, seconds=seconds, p50_ms=p50_ms, p99_ms=p99_ms)
