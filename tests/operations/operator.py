"""An operator of a cluster of real nodes, with streamlogctl."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.pytest_plugin.cluster import InProcessCluster

WAIT_S: Final = 300.0  # for a busy machine; it takes a second


class Operator:
    def __init__(self, cluster: InProcessCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory

    def run(self, words: list[str], status: int = 0) -> str:
        """What it prints, errors too where it is to fail."""
        environment = {"STREAMLOG_BOOTSTRAP_SERVERS": self.cluster.address(1)}
        done = CliRunner().invoke(main, words, env=environment)
        assert done.exit_code == status, f"{words}: {done.output}"
        return done.output if status else done.stdout

    def output(self, words: list[str]) -> str:
        """Whatever its exit code is."""
        environment = {"STREAMLOG_BOOTSTRAP_SERVERS": self.cluster.address(1)}
        return CliRunner().invoke(main, words, env=environment).output

    def json(self, *words: str) -> Any:
        return json.loads(self.run([*words, "--output", "json"]))

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline

    def nothing_is_under_replicated(self) -> bool:
        return not any(topic["partitions"] for topic in self.json("topic", "describe", "--under-replicated-partitions"))

    def roles(self) -> dict[int, str]:
        return {voter["node"]: voter["role"] for voter in self.json("cluster", "quorum")["voters"]}
