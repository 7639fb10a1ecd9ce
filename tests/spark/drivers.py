"""Pipelines as processes of their own, with their JVM: started, killed, stopped; and what they have done so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

WITHIN_S = 400.0
"""For what must come to pass: a bound against hanging, not a measure."""
SLOW = "Python worker failed to connect back"
"""Spark gives a Python worker ten seconds to start, which a machine with too much to do may not."""
SLOW_STARTS_MAX = 5


class Driver:
    """`with`; dead afterwards, with all that it has started."""

    def __init__(self, folder: Path, name: str, servers: str, **confs: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / "driver.log"
        self._command = [sys.executable, "-c", "from streamlog.cli.main import main; main()", "pipeline", "run", name]
        self._command += ["--bootstrap-server", servers]
        small = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "700m"}
        for key, value in {**small, **{one.replace("__", "."): text for one, text in confs.items()}}.items():
            self._command += ["--conf", f"{key}={value}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._slow_starts = 0

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, start_new_session=True)

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and Python workers at once: a machine that is gone."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(WITHIN_S)
        self._process = None

    def stop(self, *, whole: bool = False) -> int:
        """SIGTERM, to the driver or to all of its processes, as service managers do; its exit code."""
        assert self._process is not None
        if whole:
            os.killpg(self._process.pid, signal.SIGTERM)
        else:
            self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill_java(self) -> None:
        """SIGKILL to its JVM, which is its one child."""
        assert self._process is not None
        [java] = children(self._process.pid)
        os.kill(java, signal.SIGKILL)

    def wait(self) -> int:
        """Until it ends by itself; its exit code."""
        assert self._process is not None
        code = self._process.wait(WITHIN_S)
        self.kill()
        return code

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def until(self, condition: Callable[[], object], what: str) -> None:
        begin = time.monotonic()
        while not condition():
            if not self.running and SLOW in self.said()[-500:] and self._slow_starts < SLOW_STARTS_MAX:
                self._slow_starts += 1
                self.start()  # as whatever watches over it would
            assert self.running, f"the driver ended before {what}:\n{self.said()[-3000:]}"
            assert time.monotonic() - begin < WITHIN_S, f"not within {WITHIN_S:g} s: {what}\n{self.said()[-3000:]}"
            time.sleep(0.01)  # between two questions


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            try:
                if parent(int(one.name)) == pid:
                    found.append(int(one.name))
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has ended meanwhile
    return found


def has_batch(checkpoint: Path, kind: str, number: int) -> bool:
    return number in batches(checkpoint, kind)


def batches(checkpoint: Path, kind: str) -> set[int]:
    """Which micro-batches stand in its `offsets` (begun) or `commits` (done)."""
    folder = checkpoint / kind
    return {int(one.name) for one in folder.iterdir() if one.name.isdecimal()} if folder.exists() else set()


def parquet_rows(folder: Path, columns: list[str]) -> list[dict[str, object]]:
    """Of the files that belong to a sink of Spark's, by its own log; in no order."""
    files: set[str] = set()
    log = folder / "_spark_metadata"
    numbers = (
        [one for one in log.iterdir() if one.name[0].isdecimal() and not one.name.endswith(".crc")]
        if log.exists()
        else []
    )
    for one in numbers:
        for line in one.read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["action"] == "add":
                files.add(entry["path"].removeprefix("file://"))
    return [
        row for name in sorted(files) for row in pq.read_table(name, columns=columns, partitioning=None).to_pylist()
    ]
