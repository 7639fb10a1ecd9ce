"""http.listeners over TLS: who is refused and with which line in the log, renewed files, what a handshake may take."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path

import pytest

from streamlog.daemon.http import connection
from streamlog.daemon.http import listener as listening
from streamlog.daemon.http.connection import Handshakes
from streamlog.daemon.tls import check_tls
from streamlog.errors import InvalidConfigError
from streamlog.tls.authority import Authority
from tests.daemon.http.served_https import REQUEST, ServedHttps


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServedHttps:
    monkeypatch.setattr(connection, "REPORT_S", 0.0)
    for name in ("HANDSHAKE_S", "IDLE_S"):
        monkeypatch.setattr(connection, name, 60.0)
    return ServedHttps(tmp_path)


def test_pages_over_tls_beside_those_in_plain_text(rig: ServedHttps) -> None:
    def test() -> None:
        assert rig.get(rig.client()) == (200, b"ready\n")
        status, page = rig.get(rig.client(), "/metrics")
        assert (status, b"process_cpu_seconds_total" in page) == (200, True)
        plain = http.client.HTTPConnection("127.0.0.1", rig.plain_port, timeout=60)
        plain.request("GET", "/readyz")
        assert plain.getresponse().read() == b"ready\n"
        plain.close()

    assert "refused" not in rig.run(test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(
    rig: ServedHttps, version: ssl.TLSVersion
) -> None:
    """Both in one read of the node: the handshake is finished in memory, and sent together with the request."""

    def test() -> None:
        context = rig.client()
        context.maximum_version = context.minimum_version = version
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(came, goes, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", rig.port), timeout=60) as one:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    one.sendall(goes.read())
                    came.write(one.recv(1 << 16))
            client.write(REQUEST)
            one.sendall(goes.read())
            while True:
                try:
                    assert client.read(1 << 16).startswith(b"HTTP/1.1 200")
                    break
                except ssl.SSLWantReadError:
                    came.write(one.recv(1 << 16))

    rig.run(test)


@pytest.mark.parametrize(
    ("client_auth", "without", "foreign"),
    [("none", True, True), ("requested", True, False), ("required", False, False)],
)
def test_certificates_of_callers(
    rig: ServedHttps, tmp_path: Path, client_auth: str, without: bool, foreign: bool
) -> None:
    rig.own = {"listener.name.https.ssl.client.auth": client_auth}
    other = Authority.create(tmp_path / "other")
    other.add_client("scraper")

    def test() -> None:
        assert rig.get(rig.client("scraper")) == (200, b"ready\n")
        assert rig.refuses(rig.client()) is not without
        assert rig.refuses(rig.client("scraper", authority=other)) is not foreign

    log = rig.run(test)
    assert ("it has no certificate, which listener.name.https.ssl.client.auth requires" in log) is not without
    assert ("its certificate is not accepted" in log) is not foreign


def test_the_clients_setting_of_the_grpc_listeners_does_not_hold_for_https(rig: ServedHttps) -> None:
    rig.own = {"ssl.client.auth": "required"}
    rig.run(lambda: None if rig.get(rig.client())[0] == 200 else pytest.fail("refused"))


def test_who_does_not_trust_the_node_or_speaks_something_else(rig: ServedHttps) -> None:
    def test() -> None:
        assert rig.refuses(ssl.create_default_context())
        with socket.create_connection(("127.0.0.1", rig.port), timeout=60) as plain:
            plain.sendall(REQUEST)
            try:
                assert plain.recv(1) == b""
            except ConnectionError:
                pass

    log = rig.run(test)
    assert "refused: it does not trust this node's certificate: it needs the authority that signed it" in log
    assert "refused: it does not use TLS: the address is https://" in log


def test_a_renewed_certificate_is_for_new_connections_and_ends_none(rig: ServedHttps) -> None:
    def test() -> None:
        assert rig.certificates is not None
        with rig.connect(rig.client()) as before:
            first = before.getpeercert(binary_form=True)
            rig.renew()
            rig.certificates.load()
            with rig.connect(rig.client()) as after:
                assert after.getpeercert(binary_form=True) != first
            before.sendall(REQUEST)
            assert before.recv(64).startswith(b"HTTP/1.1 200")

        path = rig.authority.directory / "node-1.pem"
        path.write_text("half")
        with pytest.raises(InvalidConfigError):
            rig.certificates.load()
        assert rig.get(rig.client())[0] == 200, "the earlier one is used"

    rig.run(test)


def test_an_authority_that_is_no_longer_trusted_opens_nothing(rig: ServedHttps, tmp_path: Path) -> None:
    rig.own = {
        "listener.name.https.ssl.client.auth": "required",
        "listener.name.https.ssl.truststore.location": str(tmp_path / "clients.crt"),
    }
    other = Authority.create(tmp_path / "other")
    other.add_client("scraper")
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes((other.directory / "ca.crt").read_bytes())

    def test() -> None:
        assert rig.certificates is not None
        context = rig.client("scraper", authority=other)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # where a session may be resumed by the client's own choice
        with rig.connect(context) as one:
            one.sendall(REQUEST)
            assert one.recv(64).startswith(b"HTTP/1.1 200")
            session = one.session
        trusted.write_bytes((rig.authority.directory / "ca.crt").read_bytes())
        rig.certificates.load()
        assert rig.refuses(context, session)
        assert rig.get(rig.client("scraper"))[0] == 200

    rig.run(test)


def test_handshakes_are_bounded_in_number_and_by_address(rig: ServedHttps, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that one address cannot keep the others from connecting."""
    monkeypatch.setattr(connection, "HANDSHAKES_MAX", 4)

    def silent(*addresses: str) -> list[socket.socket]:
        target = ("127.0.0.1", rig.port)
        return [socket.create_connection(target, timeout=60, source_address=(one, 0)) for one in addresses]

    def test() -> None:
        first = silent(*["127.0.0.2"] * 3)
        assert is_closed(first.pop()), "one more than half of all"
        assert rig.get(rig.client())[0] == 200, "another address connects"
        second = silent(*["127.0.0.3"] * 2, "127.0.0.4")
        assert is_closed(second.pop()), "one more than may be in progress"
        for one in (*first, *second):
            one.close()

    log = rig.run(test)
    assert "127.0.0.2:" in log
    assert "refused: 2 TLS handshakes from this address are in progress (max.connections.per.ip)" in log
    assert "127.0.0.4:" in log
    assert "refused: 4 TLS handshakes are in progress" in log


@pytest.mark.parametrize(("setting", "limit"), [(None, 32), (5, 5), (1_000, 64)])
def test_how_many_handshakes_an_address_may_have_in_progress(setting: int | None, limit: int) -> None:
    handshakes = Handshakes(lambda: pytest.fail("not needed"), lambda _: None, setting)
    assert handshakes.per_address == limit


def is_closed(one: socket.socket) -> bool:
    """By the node; waits for it."""
    with one:
        try:
            return one.recv(1) == b""
        except ConnectionError:
            return True


def test_handshakes_are_bounded_in_time(rig: ServedHttps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_S", 0.05)

    def slow() -> None:
        assert is_closed(socket.create_connection(("127.0.0.1", rig.port), timeout=60))

    assert "refused: the TLS handshake was not complete after 0.05 s" in rig.run(slow)


def test_connections_after_their_handshake_are_bounded_too(rig: ServedHttps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "UNSERVED_MAX", 1)
    monkeypatch.setattr(listening, "CONNECTIONS_MAX", 2)

    def test() -> None:
        silent = [rig.connect(rig.client()) for _ in range(3)]
        assert any(rig.refuses(rig.client()) for _ in range(100)), "as soon as the node has seen the three"
        for one in silent:
            one.close()

    assert " connections are open" in rig.run(test)


def test_refusals_are_one_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    now = [0.0]
    handshakes = Handshakes(lambda: pytest.fail("not needed"), lines.append, monotonic=lambda: now[0])
    for now[0] in (0, 1, 59, 60):
        handshakes.refused("10.0.0.7:4711", "why")
    assert lines == [
        "the HTTPS connection from 10.0.0.7:4711 was refused: why",
        "3 HTTPS connections were refused, the last from 10.0.0.7:4711: why",
    ]


def test_files_that_cannot_be_used_prevent_the_start(rig: ServedHttps, tmp_path: Path) -> None:
    check_tls(rig.config())
    path = tmp_path / "https.pem"
    path.write_bytes((rig.authority.directory / "node-1.pem").read_bytes())
    path.chmod(0o644)
    rig.own = {"listener.name.https.ssl.keystore.location": str(path)}
    with pytest.raises(InvalidConfigError, match="other users can read this private key"):
        check_tls(rig.config())
    path.chmod(0o600)
    check_tls(rig.config())
    path.write_bytes((rig.authority.directory / "ca.crt").read_bytes())
    with pytest.raises(InvalidConfigError, match="no private key in PEM"):
        check_tls(rig.config())


def test_a_key_may_be_given_as_text(rig: ServedHttps) -> None:
    text = (rig.authority.directory / "node-1.pem").read_text()
    key, chain = text[: text.index("-----BEGIN CERT")], text[text.index("-----BEGIN CERT") :]
    rig.own = {
        "listener.name.https.ssl.keystore.key": key,
        "listener.name.https.ssl.keystore.certificate.chain": chain,
    }
    rig.run(lambda: None if rig.get(rig.client())[0] == 200 else pytest.fail("refused"))
