"""Three nodes, as real processes, with a listener for clients, who log in with passwords and have no certificates, and
one for nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from streamlog.access.acl import Acl, AclFilter, AclOperation, AclPermission, AclResourceType, PatternType
from streamlog.cli.main import main
from streamlog.client import Admin, Consumer, Producer
from streamlog.client.admin.values import NewTopic
from streamlog.config.properties import escape_value, parse_properties
from streamlog.daemon.free_ports import HOST, free_ports
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import SaslAuthenticationError, SslAuthenticationError, Status, TopicAuthorizationError
from streamlog.node.served_methods import unary_methods
from streamlog.ports import RpcError
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.tls.authority import CA_CERTIFICATE, Authority
from streamlog.tls.callers import INTERNAL_PREFIX
from streamlog.tls.material import MaterialFiles

pytestmark = pytest.mark.process

WAIT_S: Final = 60.0
NODES: Final = 3
RECORDS: Final = 60
LISTENERS: Final = {
    "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "listener.name.client.ssl.client.auth": "none",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path_factory.mktemp("listeners") / "cluster")
    made.create(NODES, 0, {}, secure=True)
    ports = free_ports(2 * NODES)
    voters = ",".join(f"{node.node_id}@{HOST}:{port}" for node, port in zip(made.nodes, ports[NODES:], strict=True))
    for node, client, internal in zip(made.nodes, ports[:NODES], ports[NODES:], strict=True):
        listeners = f"CLIENT://{HOST}:{client},INTERNAL://{HOST}:{internal}"
        change(node.properties, {**LISTENERS, "listeners": listeners, "controller.quorum.voters": voters})
    arguments = ["local", "start", "--dir", str(made.directory), "--timeout-s", "180"]
    started = CliRunner().invoke(main, arguments)
    assert started.exit_code == 0, started.output
    yield made
    for node in made.nodes:
        made.kill(node)


def change(path: Path, values: dict[str, str]) -> None:
    known = {entry.key: entry.value for entry in parse_properties(path.read_text(), path.name)}
    path.write_text("".join(f"{name}={escape_value(value)}\n" for name, value in {**known, **values}.items()))


def addresses(cluster: LocalCluster, listener: int) -> list[str]:
    return [node.addresses[listener] for node in cluster.nodes]


def admin_of(cluster: LocalCluster) -> Admin:
    return Admin({**cluster.client_settings, "bootstrap.servers": ",".join(addresses(cluster, 1))})


def login(cluster: LocalCluster, user: str, password: str) -> dict[str, object]:
    """The settings of a client without a certificate, which knows one node."""
    return {
        "bootstrap.servers": addresses(cluster, 0)[0],
        "security.protocol": "SASL_SSL",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.truststore.location": str(cluster.directory / "certs" / CA_CERTIFICATE),
    }


def every_right(principal: str, name: str, kind: AclResourceType = AclResourceType.TOPIC) -> Acl:
    return Acl(
        resource_type=kind,
        name=name,
        pattern_type=PatternType.LITERAL,
        principal=principal,
        operation=AclOperation.ALL,
        permission=AclPermission.ALLOW,
    )


def send_until_refused(producer: Producer) -> None:
    """Nodes that have not applied the change yet, which takes less than a second, accept records."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        producer.send("bobs", b"x").result(WAIT_S)


def wait_until_known(cluster: LocalCluster, nodes: list[str], user: str) -> None:
    """Until the nodes know the user and its rights."""
    deadline = time.monotonic() + WAIT_S
    for address in nodes:
        with Admin({**cluster.client_settings, "bootstrap.servers": address}) as admin:
            while user not in admin.list_users() or not admin.describe_acls(AclFilter(principal=f"User:{user}")):
                assert time.monotonic() < deadline


def test_users_work_at_the_clients_listener_without_certificates(cluster: LocalCluster) -> None:
    """Producer, group and admin meet all three nodes, each at the address of the listener that they came by."""
    with admin_of(cluster) as admin:
        assert sorted(node.address for node in admin.describe_cluster().nodes) == sorted(addresses(cluster, 1))
        admin.create_topics([NewTopic(name="t", partitions=6, replication_factor=NODES)])
        password = admin.create_user("alice")
        group = AclResourceType.GROUP
        admin.create_acls([every_right("User:alice", "t"), every_right("User:alice", "g", group)])
    wait_until_known(cluster, addresses(cluster, 1), "alice")
    alice = login(cluster, "alice", password)
    with Producer(alice) as producer:
        for number in range(RECORDS):
            producer.send("t", b"%d" % number, partition=number % 6)
    read: set[bytes] = set()
    with Consumer({**alice, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["t"])
        while len(read) < RECORDS:
            read |= {record.value or b"" for record in consumer.poll(timeout_s=WAIT_S)}
        consumer.commit()
    with Admin(alice) as admin:
        [described] = admin.describe_groups(["g"])
        assert described.coordinator_address in addresses(cluster, 0)
    stranger = {name: value for name, value in alice.items() if not name.startswith("sasl.")}
    with (
        Producer({**stranger, "security.protocol": "SSL"}) as producer,
        pytest.raises(TopicAuthorizationError, match="ANONYMOUS"),
    ):
        producer.send("t", b"").result(WAIT_S)


def test_a_producer_fails_at_once_where_it_trusts_no_node_or_its_user_is_deleted(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Not with delivery.timeout.ms."""
    with admin_of(cluster) as admin:
        password = admin.create_user("bob")
        admin.create_topics([NewTopic(name="bobs", partitions=1)])
        admin.create_acls([every_right("User:bob", "bobs")])
        wait_until_known(cluster, addresses(cluster, 1), "bob")
        bob = login(cluster, "bob", password)
        other = Authority.create(tmp_path / "other").directory / CA_CERTIFICATE
        with (
            Producer({**bob, "ssl.truststore.location": str(other)}) as distrusting,
            pytest.raises(SslAuthenticationError, match="not signed by a trusted authority"),
        ):
            distrusting.send("bobs", b"x").result(WAIT_S)
        with Producer(bob) as producer:
            producer.send("bobs", b"x").result(WAIT_S)
            admin.delete_user("bob")
            with pytest.raises(SaslAuthenticationError):
                send_until_refused(producer)


@pytest.mark.parametrize("method", sorted(one for one in unary_methods() if one.startswith(INTERNAL_PREFIX)))
def test_even_a_node_finds_no_services_between_nodes_at_the_clients_listener(
    cluster: LocalCluster, method: str
) -> None:
    certs = cluster.directory / "certs"
    files = MaterialFiles(
        keystore=str(certs / "node-2.pem"), key=None, chain=None, truststore=str(certs / CA_CERTIFICATE), roots=None
    )

    async def ask() -> RpcError:
        network = GrpcNetwork(on_crash=_no_server, tls=TlsCredentials(files))
        try:
            with pytest.raises(RpcError) as refused:
                await network.connect(addresses(cluster, 0)[0]).unary(method, b"", timeout_s=WAIT_S)
        finally:
            with suppress(RpcError):
                await network.close()
        return refused.value

    error = asyncio.run(ask())
    assert error.status is Status.PERMISSION_DENIED
    assert "not served at listener CLIENT" in error.message


def _no_server(error: Exception) -> None:
    raise error
