"""What this machine has for faults; what it lacks is skipped by name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from tests.nemesis.faults import sandbox
from tests.ports import loopdev

SOURCES = Path(__file__).parent


class Needs(Enum):
    """What a fault cannot do without."""

    NOTHING = "real processes"
    NETWORK = "network namespaces behind a switch"
    DISK = "ext4 on loop devices"
    SHIM = "an LD_PRELOAD library"


def lacking() -> dict[Needs, str]:
    """What is missing here, and why."""
    compiler = "" if shutil.which("gcc") else "needs gcc"
    boxed = sandbox.unavailable()
    tap = "" if os.access("/dev/net/tun", os.R_OK | os.W_OK) else "needs /dev/net/tun"
    ip = "" if shutil.which("ip") else "needs ip (iproute2)"
    found = {
        Needs.NOTHING: "",
        Needs.NETWORK: boxed or tap or ip or compiler,
        Needs.DISK: boxed or loopdev.unavailable(),
        Needs.SHIM: compiler,
    }
    return {needs: reason for needs, reason in found.items() if reason}


class Tools:
    """The C programs, compiled into a folder; None where there is no compiler."""

    def __init__(self, folder: Path, missing: Mapping[Needs, str]) -> None:
        self.switch = None if Needs.NETWORK in missing else _compiled(folder / "nemswitch", "switch.c")
        self.shim = (
            None if Needs.SHIM in missing else _compiled(folder / "shim.so", "shim.c", "-shared", "-fPIC", "-ldl")
        )


def _compiled(target: Path, source: str, *flags: str) -> Path:
    command = ["gcc", "-O2", "-Wall", "-o", str(target), str(SOURCES / source), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return target
