"""docs/clients.md says what is so: its table of reasons, its service configuration, its limits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from streamlog.api.pb import cluster_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.errors import Status, all_errors, grpc_status
from streamlog.node.served_methods import CLIENT_FILES
from streamlog.pytest_plugin.cluster import InProcessCluster

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "clients.md").read_text()
ACTIONS = set(re.findall(r"^- \*\*([a-z ]+)\*\*:", PAGE, flags=re.MULTILINE))


def rows() -> Iterator[tuple[str, str, str]]:
    """Status, reason, action."""
    yield from re.findall(r"^\| ([A-Z_]+) \| `([A-Z_]+)` \| ([a-z ]+) \|$", PAGE, re.MULTILINE)


def test_the_table_of_reasons_is_that_of_the_code() -> None:
    command = [sys.executable, "tools/generate_client_docs.py", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_each_reason_has_its_status_and_an_action_that_is_explained() -> None:
    found = {reason: (status, action) for status, reason, action in rows()}
    assert {action for _, action in found.values()} == ACTIONS
    own = all_errors().keys() - found.keys()
    assert own == {
        "CLIENT_CLOSED",
        "DESERIALIZATION_FAILED",
        "MAX_POLL_INTERVAL_EXCEEDED",
        "NETWORK_EXCEPTION",
        "SCHEMA_REGISTRY_ERROR",
        "SERIALIZATION_FAILED",
        "SSL_AUTHENTICATION_FAILED",
        "UNKNOWN_SERVER_ERROR",
    }
    for code, (status, action) in found.items():
        kind = all_errors()[code]
        assert Status[status] is grpc_status(kind)
        assert (action == "retry") == kind.retriable or action == "unknown", code


def service_config() -> dict[str, Any]:
    (text,) = re.findall(r"^```json\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_the_service_configuration_names_what_there_is() -> None:
    services = {service.full_name: service for file in CLIENT_FILES for service in file.services_by_name.values()}
    config = service_config()
    assert config["healthCheckConfig"]["serviceName"] in services
    for each in config["methodConfig"]:
        for name in each["name"]:
            assert name.get("method") in (None, *services[name["service"]].methods_by_name)
    retried = {name for each in config["methodConfig"] if "retryPolicy" in each for name in map(str, each["name"])}
    assert not any("Stream" in name or "Consume" in name for name in retried)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("cluster")) as running:
        running.create_topic("t", partitions=3, replication_factor=3)
        yield running


def test_with_the_service_configuration_grpc_balances_over_the_nodes(cluster: InProcessCluster) -> None:
    target = "ipv4:" + cluster.bootstrap_servers
    options = [("grpc.service_config", json.dumps(service_config())), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(target, options=options) as channel:
        publish: Any = channel.unary_unary("/streamlog.v1.Records/Publish")
        describe: Any = channel.unary_unary("/streamlog.v1.Cluster/Describe")
        request = pb.PublishRequest(topic="t", records=[pb.PublishRecord(value=b"v")]).SerializeToString()
        nodes: set[int] = set()
        while nodes != set(cluster.node_ids):  # each is called once its health is known
            response = cluster_pb2.ClusterDescribeResponse.FromString(describe(b"", timeout=60))
            nodes.add(response.node_id)
            (result,) = pb.PublishResponse.FromString(publish(request, timeout=60)).results
            assert not result.HasField("error")
