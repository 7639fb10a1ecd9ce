"""Three nodes over mutual TLS, as real processes: who gets in, and certificates renewed while they run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest
from click.testing import CliRunner, Result
from cryptography.x509 import load_pem_x509_certificates

from streamlog.cli.main import main
from streamlog.client import Admin, AsyncProducer, Consumer, Producer
from streamlog.client.admin.values import NewTopic
from streamlog.daemon.local_cluster import LocalCluster
from streamlog.errors import SslAuthenticationError, Status
from streamlog.node.served_methods import streaming_methods, unary_methods
from streamlog.ports import AuditEvent, AuditResource, HandshakeError, RpcError
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.tls.authority import CA_CERTIFICATE, Authority
from streamlog.tls.callers import INTERNAL_PREFIX
from streamlog.tls.material import MaterialFiles

pytestmark = pytest.mark.process

WAIT_S: Final = 30.0
ATTEMPTS: Final = 5
"""gRPC's client loses the status of a stream that is refused while it sends, and says that the connection broke."""
HOSTS: Final = ["127.0.0.1", "localhost"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("secure") / "cluster"
    started = run("local", "start", "--dir", str(directory), "--port", "0", "--secure", "--timeout-s", "180")
    assert started.exit_code == 0, started.output
    assert f"--command-config {directory}/certs/admin.properties" in started.stderr
    running = LocalCluster(directory)
    yield running
    for node in running.nodes:
        running.kill(node)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def settings(cluster: LocalCluster) -> dict[str, object]:
    servers = ",".join(node.address for node in cluster.nodes)
    return {**cluster.client_settings, "bootstrap.servers": servers}


def files(cluster: LocalCluster, name: str) -> MaterialFiles:
    certs = cluster.directory / "certs"
    return MaterialFiles(
        keystore=str(certs / f"{name}.pem"), key=None, chain=None, truststore=str(certs / CA_CERTIFICATE), roots=None
    )


def call(cluster: LocalCluster, tls: MaterialFiles | None, method: str, request: bytes = b"") -> RpcError | None:
    """How a call of node 1 fails; None: it does not."""

    async def ask() -> RpcError | None:
        network = GrpcNetwork(on_crash=_no_server, tls=None if tls is None else TlsCredentials(tls))
        channel = network.connect(cluster.nodes[0].address)
        try:
            if method in unary_methods():
                await channel.unary(method, request, timeout_s=WAIT_S)
            else:
                async with channel.stream(method) as stream:
                    with suppress(RpcError):  # a stream may be refused before it is written to; recv has the status
                        await stream.send(request)
                    await stream.recv()
        except RpcError as error:
            return error
        finally:
            await network.close()
        return None

    return asyncio.run(ask())


def _no_server(error: Exception) -> None:
    raise error


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline


def test_records_go_in_and_out(cluster: LocalCluster) -> None:
    with Admin(settings(cluster)) as admin:
        admin.create_topics([NewTopic(name="secured", partitions=3)])
    with Producer(settings(cluster)) as producer:
        for number in range(100):
            producer.send("secured", b"%d" % number)
    with Consumer({**settings(cluster), "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["secured"])
        read: set[bytes] = set()
        deadline = time.monotonic() + WAIT_S
        while len(read) < 100 and time.monotonic() < deadline:
            read |= {record.value or b"" for record in consumer.poll(timeout_s=1.0)}
    assert len(read) == 100


@pytest.mark.parametrize("method", sorted(m for m in (*unary_methods(), *streaming_methods()) if INTERNAL_PREFIX in m))
def test_a_client_may_call_no_method_between_nodes(cluster: LocalCluster, method: str) -> None:
    answers = (call(cluster, files(cluster, "admin"), method) for _ in range(ATTEMPTS))
    error = next(one for one in answers if one is None or one.status is not Status.UNAVAILABLE)
    assert error is not None
    assert (error.status, "is for nodes of the cluster only" in error.message) == (Status.PERMISSION_DENIED, True)


def test_the_audit_log_names_who_was_refused_and_who_changed_what(cluster: LocalCluster) -> None:
    with Admin(settings(cluster)) as admin:
        admin.create_topics([NewTopic(name="audited", partitions=1)])
    call(cluster, files(cluster, "admin"), "/streamlog.internal.v1.Controller/Heartbeat")
    wait_until(lambda: any(event.resources == (AuditResource("topic", "audited"),) for event in _audited(cluster)))
    wait_until(lambda: any(event.result == "refused" for event in _audited(cluster)))
    created = next(event for event in _audited(cluster) if event.resources == (AuditResource("topic", "audited"),))
    refused = next(event for event in _audited(cluster) if event.result == "refused")
    certificate = load_pem_x509_certificates((cluster.directory / "certs" / "admin.pem").read_bytes())[0]
    for event in (created, refused):
        assert event.certificate == f"{certificate.serial_number:x}"
        assert (event.principal, event.address) == ("User:CN=admin,O=streamlog", "127.0.0.1")
    assert (created.method, created.result) == ("streamlog.v1.Admin/CreateTopics", "allowed")
    assert refused.method.startswith("streamlog.internal.v1.")


def _audited(cluster: LocalCluster) -> list[AuditEvent]:
    logs = (node.folder / "audit.log" for node in cluster.nodes)
    return [msgspec.json.decode(line, type=AuditEvent) for log in logs for line in log.read_text().splitlines()]


def test_a_node_speaks_for_itself_only(cluster: LocalCluster) -> None:
    heartbeat = b"\x08\x01"  # of node 1
    error = call(cluster, files(cluster, "node-2"), "/streamlog.internal.v1.Controller/Heartbeat", heartbeat)
    assert error is not None
    assert error.status is Status.PERMISSION_DENIED
    assert "says that it is node 1, but its certificate CN=node-2" in error.message


def test_strangers_are_refused_with_a_reason(cluster: LocalCluster, tmp_path: Path) -> None:
    describe = "/streamlog.v1.Cluster/Describe"
    plain = call(cluster, None, describe)
    assert isinstance(plain, HandshakeError)
    assert "may expect TLS (security.protocol=SSL)" in plain.message
    stranger = str(Authority.create(tmp_path).add_client("stranger"))
    own = files(cluster, "admin")
    foreign = MaterialFiles(keystore=stranger, key=None, chain=None, truststore=own.truststore, roots=None)
    assert isinstance(call(cluster, foreign, describe), RpcError)
    suspicious = MaterialFiles(
        keystore=own.keystore, key=None, chain=None, truststore=str(tmp_path / CA_CERTIFICATE), roots=None
    )
    distrust = call(cluster, suspicious, describe)
    assert isinstance(distrust, HandshakeError)
    assert "not signed by a trusted authority" in distrust.message


def test_the_command_line_says_what_to_set(cluster: LocalCluster) -> None:
    refused = run("topic", "list", "--bootstrap-server", cluster.nodes[0].address)
    assert refused.exit_code == 1
    assert "security.protocol=SSL" in refused.stderr
    assert "--command-config" in refused.stderr
    hurried = {"bootstrap.servers": cluster.nodes[0].address, "default.api.timeout.ms": 3_000}
    with pytest.raises(SslAuthenticationError), Admin(hurried) as admin:
        admin.list_topics()


def test_certificates_are_renewed_under_load_node_by_node(cluster: LocalCluster, tmp_path: Path) -> None:
    """Another authority without a restart: both are trusted, then all certificates change, one node after the other,
    then only it is. No request fails, and no record is lost.
    """
    certs = cluster.directory / "certs"
    successor = Authority.create(tmp_path / "successor")
    old, new = (certs / CA_CERTIFICATE).read_bytes(), (tmp_path / "successor" / CA_CERTIFICATE).read_bytes()
    with Admin(settings(cluster)) as admin:
        admin.create_topics([NewTopic(name="renewed", partitions=1)])
    load = _Load(cluster)
    load.start()
    try:
        load.wait_for_rounds(1)  # it has read the earlier files
        replace_file(certs / CA_CERTIFICATE, old + new)
        wait_until(lambda: min(_reloads(cluster)) >= 1 and load.reloads >= 1)
        for number, node in enumerate(cluster.nodes):
            keystore = successor.add_node(node.node_id, HOSTS)
            keystore.replace(certs / f"node-{node.node_id}.pem")
            wait_until(lambda number=number: _reloads(cluster)[number] >= 2)  # type: ignore[misc]
            load.wait_for_rounds(2)
        successor.add_client("admin").replace(certs / "admin.pem")
        wait_until(lambda: load.reloads >= 2)
        load.wait_for_rounds(2)
        replace_file(certs / CA_CERTIFICATE, new)
        wait_until(lambda: min(_reloads(cluster)) >= 3 and load.reloads >= 3)
        load.wait_for_rounds(2)
    finally:
        load.stop()
    assert load.failures == []
    assert load.offsets == list(range(len(load.offsets)))
    assert call(cluster, files(cluster, "admin"), "/streamlog.v1.Cluster/Describe") is None


class _Load(threading.Thread):
    """Rounds of a record that is written and, without retries, a call of each node. Connections follow the files."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.failures: list[BaseException] = []
        self.offsets: list[int] = []
        self.reloads = 0
        self._cluster = cluster
        self._settings = settings(cluster)
        self._stopping = False

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.failures.append(error)

    async def _run(self) -> None:
        network = GrpcNetwork(on_crash=_no_server, tls=TlsCredentials(files(self._cluster, "admin"), self._note))
        channels = [network.connect(node.address) for node in self._cluster.nodes]
        try:
            async with AsyncProducer(self._settings) as producer:
                while not self._stopping:
                    self.offsets.append((await producer.send("renewed", b"x")).offset)
                    for channel in channels:
                        await channel.unary("/streamlog.v1.Cluster/Describe", b"", timeout_s=WAIT_S)
        finally:
            await network.close()

    def _note(self, level: str, what: str) -> None:
        assert level == "INFO", what
        self.reloads += 1

    def wait_for_rounds(self, count: int) -> None:
        rounds = len(self.offsets)
        wait_until(lambda: len(self.offsets) >= rounds + count or not self.is_alive())

    def stop(self) -> None:
        self._stopping = True
        self.join(WAIT_S)


def replace_file(path: Path, data: bytes) -> None:
    """Never read half written."""
    other = path.with_suffix(".new")
    other.write_bytes(data)
    other.replace(path)


def _reloads(cluster: LocalCluster) -> list[int]:
    """Of each node."""
    return [node.log.read_text().count("the changed TLS files are used") for node in cluster.nodes]
