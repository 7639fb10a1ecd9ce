"""With what a process is started, and the address of the fork server that may start it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import runpy
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

THREADS: Final = "OMP_NUM_THREADS"
SINGLE: Final = "1"
# Variables that Spark, or a shell, sets for each process.
_OWN_PREFIXES: Final = (
    "PYTHON_DAEMON_",
    "PYTHON_FAULTHANDLER_",
    "PYTHON_TRACEBACK_",
    "PYTHON_UDF_",
    "PYTHON_UNIX_",
    "PYTHON_WORKER_",
    "SPARK_",
)
_OWN_NAMES: Final = frozenset({"_", "SHLVL", "PYSPARK_EXECUTOR_MEMORY_MB", THREADS})
_DIRECTORY: Final = "streamlog-spark-{user}"


class Start(NamedTuple):
    """A Python process that Spark starts: `python -m module arguments`."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, encoded: bytes) -> Start:
        """ValueError, TypeError."""
        return cls(*json.loads(encoded))

    def may_be_forked(self) -> bool:
        """False: numpy, which the fork server has imported for one thread, is to have several."""
        return self.environment.get(THREADS, SINGLE) == SINGLE

    def run(self) -> None:
        """As `python -m` does it."""
        sys.argv = [self.module, *self.arguments]
        sys.modules.pop(self.module, None)  # imported by the fork server, it would not be run, or with a warning
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)


def server_address(environment: Mapping[str, str], parent: int) -> str:
    """The path of the fork server's socket: another one for other facts that a fork would have in common with it. Its
    directory belongs to this user alone. `parent`: the process id of Java. OSError: there is no such process, or no
    such directory.
    """
    common = {name: value for name, value in environment.items() if not _of_one_process(name)}
    facts = (
        (os.getuid(), os.getcwd(), os.readlink("/proc/self/ns/pid"), os.readlink("/proc/self/ns/mnt")),
        (parent, _started(parent)),
        (sys.executable, sys.path, sorted(common.items())),
    )
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return f"{_private_directory(environment)}/{parent}-{digest[:16]}"


def _private_directory(environment: Mapping[str, str]) -> str:
    """OSError."""
    base = environment.get("XDG_RUNTIME_DIR") or environment.get("TMPDIR") or "/tmp"
    path = f"{base}/{_DIRECTORY.format(user=os.getuid())}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode=0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise PermissionError
    return path


def _of_one_process(name: str) -> bool:
    return name in _OWN_NAMES or name.startswith(_OWN_PREFIXES)


def _started(process: int) -> str:
    """When, in ticks since the machine's start: process ids are reused."""
    # proc(5): field 22; the second one, the program's name in parentheses, may contain anything
    with open(f"/proc/{process}/stat") as facts:
        return facts.read().rpartition(")")[2].split()[19]
