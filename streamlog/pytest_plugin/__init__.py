"""pytest fixtures: a real streamlog cluster for a test, in the test's own process.

    def test_orders(streamlog_cluster):
        streamlog_cluster.create_topic("orders", partitions=3)
        producer = Producer(bootstrap_servers=streamlog_cluster.bootstrap_servers)

pytest finds the plugin where streamlog is installed (entry point `pytest11`). Nothing of streamlog is loaded before a
test uses a fixture. A test that needs other nodes or settings than those of `cluster` uses `InProcessCluster` itself.

`streamlog_cluster_secure` is the same over mutual TLS, with access control lists; `secure` makes the certificates.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamlog.pytest_plugin.cluster import InProcessCluster


@pytest.fixture
def streamlog_cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Three nodes on loopback, ready; stopped after the test. An internal error of a node fails the test."""
    from streamlog.pytest_plugin.cluster import InProcessCluster

    with InProcessCluster(tmp_path / "streamlog") as cluster:
        yield cluster


@pytest.fixture
def streamlog_cluster_secure(tmp_path: Path) -> Iterator[InProcessCluster]:
    """As `streamlog_cluster`, with TLS, an authorizer and an administrator: clients need `client_settings(NAME)`."""
    from streamlog.pytest_plugin.cluster import InProcessCluster

    with InProcessCluster(tmp_path / "streamlog", secure=True) as cluster:
        yield cluster
