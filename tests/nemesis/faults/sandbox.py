"""Namespaces of our own, so that nothing of this machine is touched and nothing is left behind.

`enter` starts this program again under `unshare` with namespaces of its own for network, mounts and processes. What it
makes in there, TAP devices, mounts with their loop devices, nodes, is gone when its first process has died, even by
kill -9: the kernel sees to it. Ctrl-C reaches the program inside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

_INSIDE: Final = "STREAMLOG_NEMESIS_SANDBOX"
_UNSHARE: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def unavailable() -> str:
    """Why there can be no sandbox here; empty if there can."""
    if is_inside():
        return ""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "needs unshare and nsenter (util-linux)"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no namespaces: {tried.stderr.strip()}"


def is_inside() -> bool:
    return _INSIDE in os.environ


def enter(module: str, arguments: Sequence[str]) -> int:
    """Run the module inside; its exit status."""
    command = [*_UNSHARE, sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, env={**os.environ, _INSIDE: "1"}) as child:
        while True:
            try:
                status = child.wait()
            except KeyboardInterrupt:
                continue  # the program inside has got it too, cleans up and ends
            return status if status >= 0 else 128 - status
