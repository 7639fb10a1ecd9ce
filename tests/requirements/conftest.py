from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import grpc
import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.client import Admin
from streamlog.pytest_plugin.cluster import InProcessCluster

_COMMAND = [sys.executable, "-c", "from streamlog.cli.main import main; main()"]
_TIMEOUT_S = 60


def until(condition: Callable[[], bool]) -> None:
    """Other nodes apply a change a moment after the node that was called has answered."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline


class Ctl(Protocol):
    """`streamlogctl` with these arguments, which must succeed (or end with `status`): what it prints."""

    def __call__(self, *arguments: str, status: int = 0) -> str: ...


class Piped(Protocol):
    """`streamlogctl` as a process, which reads its standard input; (what it prints, what it complains of)."""

    def __call__(self, *arguments: str, stdin: str = "", status: int = 0) -> tuple[str, str]: ...


# What the tests of a module wait for comes in milliseconds.
_SETTINGS = {"log.retention.check.interval.ms": "100", "log.cleaner.backoff.ms": "100", "log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the cluster: node-1 has the logs of node 1."""
    return tmp_path_factory.mktemp("streamlog")


@pytest.fixture(scope="module")
def streamlog_cluster(directory: Path) -> Iterator[InProcessCluster]:
    """One for all tests of a module, in the place of one for each."""
    with InProcessCluster(directory, settings=_SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def servers(streamlog_cluster: InProcessCluster) -> str:
    return streamlog_cluster.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as made:
        yield made


@pytest.fixture
def channel(streamlog_cluster: InProcessCluster) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(streamlog_cluster.address(1)) as made:
        yield made


def ctl_of(servers: str) -> Ctl:
    def run(*arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(main, arguments, env={"STREAMLOG_BOOTSTRAP_SERVERS": servers})
        assert done.exit_code == status, done.output
        return done.output

    return run


@pytest.fixture
def ctl(servers: str) -> Ctl:
    return ctl_of(servers)


@pytest.fixture
def piped(servers: str) -> Piped:
    def run(*arguments: str, stdin: str = "", status: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            [*_COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, "STREAMLOG_BOOTSTRAP_SERVERS": servers},
            check=False,
            timeout=_TIMEOUT_S,
        )
        assert done.returncode == status, done.stderr
        return done.stdout, done.stderr

    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest, streamlog_cluster: InProcessCluster) -> Callable[..., str]:
    """Makes a topic of this test's own: its name."""
    count = 0

    def make(partitions: int = 1, replication_factor: int | None = None, **configs: str) -> str:
        nonlocal count
        count += 1
        name = f"{re.sub('[^a-zA-Z0-9]+', '-', request.node.name.removeprefix('test_'))}-{count}"
        settings = {setting.replace("_", "."): value for setting, value in configs.items()}
        streamlog_cluster.create_topic(name, partitions, replication_factor, settings)
        return name

    return make
