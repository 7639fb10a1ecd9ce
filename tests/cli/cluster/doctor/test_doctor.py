"""`streamlogctl doctor` with real nodes: what they are found to be like from here."""

from __future__ import annotations

import datetime
import json
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from streamlog.cli.cluster.doctor.connections import (
    certificate_findings,
    cluster_findings,
    file_findings,
)
from streamlog.cli.common.target import Target
from streamlog.cli.main import main
from streamlog.client.admin.values import NodeLogDirs
from streamlog.daemon.free_ports import free_ports
from streamlog.errors import RequestTimedOutError
from streamlog.model import BrokerId, RaftIndex
from streamlog.monitor import Severity
from streamlog.ports import system
from streamlog.pytest_plugin.cluster import InProcessCluster
from streamlog.tls.authority import Authority
from streamlog.tls.settings_files import client_settings
from tests.support.health_samples import cluster as described_cluster
from tests.support.health_samples import node, state

CLEAN = 0
FOUND = 3
NOW = datetime.datetime(2026, 11, 26, tzinfo=datetime.UTC)
MACHINE = r"open files|streamlog-kernel|directory "
"""Findings that the machine of the tests may have."""


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--output", "json", *arguments])


def of_the_cluster(done: Result) -> list[str]:
    found = json.loads(done.stdout)
    assert done.exit_code == (FOUND if found else CLEAN)
    elsewhere = [one["problem"] for one in found if not re.match(MACHINE, one["subject"])]
    return [problem for problem in elsewhere if "of the disk of" not in problem]


def test_addresses_that_lead_nowhere_or_elsewhere(tmp_path: Path) -> None:
    with InProcessCluster(tmp_path, nodes=2) as cluster:
        assert of_the_cluster(doctor("--bootstrap-server", cluster.bootstrap_servers)) == []
        described = cluster.with_admin(lambda admin: admin.describe_cluster())
        first, second = described.nodes
        (port,) = free_ports(1)
        voters = tuple(
            replace(voter, match_index=RaftIndex(0)) for voter in described.voters
        )  # as the quorum's leader says it
        nodes = (replace(first, port=port), replace(second, node_id=BrokerId(7)))
        moved = replace(described, nodes=nodes, voters=voters)
        target = Target(servers=(cluster.address(1),), request_timeout_ms=30_000)
        nowhere, elsewhere = system.run(cluster_findings(target, state(moved)))
        assert nowhere.problem == f"Node 1 does not answer at 127.0.0.1:{port}, the address that it gives to clients."
        assert elsewhere.problem == f"At {second.address}, the address of node 7, node 2 answers."


def test_a_node_that_hangs_and_voters_that_do_not_answer() -> None:
    """Of what a node without the quorum says: it calls the others active, and knows of no voter how far it is."""
    with socket.create_server(("127.0.0.1", 0)) as hanging, socket.socket() as killed:
        killed.bind(("127.0.0.1", 0))  # reserved, and refuses connections
        one, two = (server.getsockname()[1] for server in (hanging, killed))
        nodes = [replace(node(number), host="127.0.0.1", port=port) for number, port in ((1, one), (2, two))]
        described = described_cluster(*nodes, held=(None, None))
        target = Target(servers=(f"127.0.0.1:{one}",), request_timeout_ms=1_000)
        unread = tuple(
            NodeLogDirs(node_id=BrokerId(number), log_dirs=(), error=RequestTimedOutError("x")) for number in (1, 2)
        )
        hidden = {BrokerId(number): RequestTimedOutError("x") for number in (1, 2)}
        seen = state(described, log_dirs=unread, transaction_errors=hidden)  # for the same reason: not a finding more
        hangs, down, quorum = system.run(cluster_findings(target, seen))
        assert hangs.problem == f"Node 1 does not answer at 127.0.0.1:{one}, the address that it gives to clients."
        assert down.problem == f"Node 2 does not answer at 127.0.0.1:{two}, the address that it gives to clients."
        assert quorum.problem == "Of the 2 voters of the metadata quorum 1 answers this machine."
        assert {one.severity for one in (hangs, down, quorum)} == {Severity.CRITICAL}


def test_a_secure_cluster_is_reached_with_its_certificates(tmp_path: Path) -> None:
    with InProcessCluster(tmp_path, nodes=1, secure=True) as cluster:
        file = tmp_path / "client.properties"
        settings = cluster.client_settings()
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        arguments = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(file))
        assert of_the_cluster(doctor(*arguments)) == []


def test_without_a_cluster(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    assert of_the_cluster(doctor("--bootstrap-server", f"127.0.0.1:{port}")) == ["No node answers."]
    assert of_the_cluster(doctor("--machine-only", "--dir", str(tmp_path))) == []


def test_certificates_of_the_clients_settings(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    authority.add_client("new")
    authority.add_client("old", days=20)
    assert list(file_findings(client_settings(tmp_path, "new"))) == []
    (one,) = file_findings(client_settings(tmp_path, "old"))
    assert one.severity is Severity.WARNING
    (missing,) = file_findings({"ssl.keystore.location": str(tmp_path / "none.pem")})
    assert missing.severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("days", "problem"),
    [
        (31, None),
        (29, "The certificate of node 2 expires on 2026-12-25 00:00 UTC."),
        (-1, "The certificate of node 2 expired on 2026-11-25 00:00 UTC."),
    ],
)
def test_when_certificates_expire(days: int, problem: str | None) -> None:
    found = list(certificate_findings("node 2", NOW + datetime.timedelta(days), NOW))
    assert [one.problem for one in found] == ([] if problem is None else [problem])
