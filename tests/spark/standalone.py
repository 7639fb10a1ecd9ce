"""Spark's standalone cluster: a master and two workers, from what pip has installed, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyspark

from streamlog.daemon.free_ports import free_ports
from streamlog.spark.runtime.java import ensure_java

# Of their own each, for Spark runs a task a second time on another host alone. All of loopback is this machine.
HOSTS = ("127.0.0.1", "127.0.0.2")
WITHIN_S = 120.0
"""For what must come to pass: a bound against hanging, not a measure."""


class Standalone:
    """`with`; dead afterwards, with all that it has started. One core for each worker."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._cleanup = ExitStack()
        port, self._web_port = free_ports(2)
        self.master = f"spark://{HOSTS[0]}:{port}"
        self._address = ("--host", HOSTS[0], "--port", str(port), "--webui-port", str(self._web_port))

    def __enter__(self) -> Standalone:
        with ExitStack() as undo:
            undo.callback(self._cleanup.close)
            self._start("master.Master", *self._address)
            self._until(lambda: "ALIVE" in self._state(), "a master")
            for number, host in enumerate(HOSTS):
                work = self._folder / f"work-{number}"
                sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), "--webui-port", "0")
                self._start("worker.Worker", self.master, "--host", host, *sizes)
            self._until(lambda: '"aliveworkers" : 2' in self._state(), "two workers")
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _start(self, name: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_PUBLIC_DNS": HOSTS[0],
        }
        ensure_java(environment)
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._cleanup.callback(end, process)

    def _state(self) -> str:
        try:
            with urllib.request.urlopen(f"http://{HOSTS[0]}:{self._web_port}/json/", timeout=10) as answer:
                text: str = answer.read().decode()
                return text
        except OSError as error:
            return str(error)

    def _until(self, condition: Callable[[], object], what: str) -> None:
        begin = time.monotonic()
        while not condition():
            said = "".join(one.read_text(errors="replace")[-2000:] for one in self._folder.glob("*.log"))
            assert time.monotonic() - begin < WITHIN_S, f"not within {WITHIN_S:g} s: {what}\n{self._state()}\n{said}"
            time.sleep(0.05)  # between two questions


def end(process: subprocess.Popen[bytes]) -> None:
    """With what it has started. Idempotent."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
