"""A pyspark whose processes print what they are, and obey; and those that a launcher has started."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

WITHIN_S: Final = 60
"""A bound against hanging, not a measure."""
MANY: Final = 50
"""Processes until something has come to pass: a bound as well."""
NATIVE: Final = "streamlog-spark-native"
DAEMON: Final = ("-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources")
LAUNCHER: Final = f"""#!{sys.executable}
import os
from streamlog.spark.launcher import fork_client
from streamlog.spark.launcher.main import main

fork_client._ANSWER_S = {WITHIN_S}
fork_client.PRELOAD_S = int(os.environ.get("PRELOAD_S", {WITHIN_S}))
main()
"""
# Stands for Spark's daemon: what it is, in a line; then it obeys the lines of its stdin.
PROCESS: Final = """
import json, os, signal, sys

def on_signal(number, _):
    os.write(1, f"signal {number}\\n".encode())  # print may be under way
    os._exit(7)

signal.signal(signal.SIGTERM, signal.SIG_IGN if "SPARK_IGNORES" in os.environ else on_signal)
if "DRAWS" in os.environ:
    import numpy
    drawn = numpy.random.random()
else:
    drawn = None
facts = {
    "process": os.getpid(),
    "parent": os.getppid(),
    "arguments": sys.argv[1:],
    "own": os.environ.get("SPARK_LOCAL_DIRS"),
    "threads": os.environ.get("OMP_NUM_THREADS"),
    "locale": os.environ.get("LC_CTYPE"),
    "changes": os.environ.get("CHANGES"),
    "leaked": sorted({"JE_ARROW_MALLOC_CONF"} & set(os.environ)),
    "open": sorted(int(one) for one in os.listdir("/proc/self/fd"))[:-1],
    "first": sys.path[0],
    "drawn": drawn,
}
print(json.dumps(facts), flush=True)
if "PAUSES" in os.environ:
    signal.pause()
for line in sys.stdin:
    command, _, argument = line.strip().partition(" ")
    if command == "exit":
        sys.exit(int(argument))
    elif command == "kill":
        os.kill(os.getpid(), int(argument))
"""


class Launched:
    """A process that was started, and the facts that it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.facts: dict[str, Any] = json.loads(process.stdout.readline())

    @property
    def program(self) -> Path:
        """That the launcher is: streamlog-spark-native is Python where it does not have the process forked."""
        return Path(os.readlink(f"/proc/{self.process.pid}/exe"))

    @property
    def forked(self) -> bool:
        """By the server; else it is the launcher itself."""
        return bool(self.facts["process"] != self.process.pid)

    def obey(self, line: str) -> int:
        """Its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.wait(WITHIN_S)


Start = Callable[..., "subprocess.Popen[str]"]
Launch = Callable[..., Launched]


def program_of(launcher: Path) -> Path:
    """As the system names it."""
    return launcher.resolve() if launcher.name == NATIVE else Path(sys.executable).resolve()


def has_ended(process: int) -> bool:
    try:
        ended = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    return bool(select.select([ended], [], [], WITHIN_S)[0])
