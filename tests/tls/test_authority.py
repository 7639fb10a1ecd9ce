"""The authority's certificates, as the other side of TLS sees them, and what it refuses."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.errors import InvalidRequestError
from streamlog.model import BrokerId
from streamlog.tls.authority import CA_CERTIFICATE, CA_KEY, Authority
from streamlog.tls.described import described
from streamlog.tls.settings_files import client_settings, node_settings, write_client_properties


def test_a_node_is_named_by_its_hosts_and_its_id(tmp_path: Path) -> None:
    path = Authority.create(tmp_path).add_node(3, ["node-c", "10.0.0.3", "::1"])
    (one,) = described(path)
    assert one.node_id == BrokerId(3)
    assert one.hosts == ("node-c", "10.0.0.3", "::1")
    (authority,) = described(tmp_path / CA_CERTIFICATE)
    assert one.issuer == authority.subject


def test_a_client_is_no_node(tmp_path: Path) -> None:
    (one,) = described(Authority.create(tmp_path).add_client("orders"))
    assert one.node_id is None
    assert one.subject == "CN=orders,O=streamlog"


def test_only_the_owner_can_read_keys(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    Authority.create(directory).add_node(1, ["a"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == {CA_CERTIFICATE: 0o644, CA_KEY: 0o600, "node-1.pem": 0o600}


def test_nothing_is_overwritten_unless_it_is_renewed(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path)
    before = authority.add_client("orders").read_bytes()
    with pytest.raises(InvalidRequestError, match="--renew"):
        authority.add_client("orders")
    with pytest.raises(InvalidRequestError, match="has a certificate authority already"):
        Authority.create(tmp_path)
    assert (tmp_path / "orders.pem").read_bytes() == before
    assert Authority.load(tmp_path).add_client("orders", renew=True).read_bytes() != before


@pytest.mark.parametrize("name", ["", "node-7", "ca", "../x", "a b", "a" * 64])
def test_names_that_a_client_cannot_have(tmp_path: Path, name: str) -> None:
    authority = Authority.create(tmp_path)
    with pytest.raises(InvalidRequestError, match="cannot be the name of a client"):
        authority.add_client(name)


@pytest.mark.parametrize("host", ["h\u00f6st", "node1:9092", "a b", "[::1]", "-a", "a" * 254])
def test_a_host_that_is_none(tmp_path: Path, host: str) -> None:
    directory = tmp_path / "certs"
    init = ["security", "init", "--dir", str(directory), "--nodes"]
    done = CliRunner().invoke(main, [*init, f"a,{host}"])
    assert "is neither a host name nor an IP address: give it without a port" in done.stderr
    assert not directory.exists(), "the corrected command is not refused"
    assert CliRunner().invoke(main, [*init, "a,*.b"]).exit_code == 0


def test_the_address_of_a_listener_has_an_ipv6_address_in_brackets(tmp_path: Path) -> None:
    security = ["security", "init", "--dir", str(tmp_path), "--nodes", "a,::1"]
    assert re.findall("listeners=(.*)", CliRunner().invoke(main, security).stdout) == [
        "SSL://a:9092",
        "SSL://[::1]:9092",
    ]


def test_an_authority_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="streamlogctl security init"):
        Authority.load(tmp_path)


def test_settings_name_the_files(tmp_path: Path) -> None:
    assert node_settings(tmp_path, 2, "b:9092") == {
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:CN=admin,O=streamlog",
        "node.id": "2",
        "listeners": "SSL://b:9092",
        "ssl.keystore.location": f"{tmp_path}/node-2.pem",
        "ssl.truststore.location": f"{tmp_path}/ca.crt",
    }
    assert client_settings(tmp_path, "orders")["security.protocol"] == "SSL"
    assert "ssl.keystore.location=" in write_client_properties(tmp_path, "orders").read_text()


def test_a_clients_settings_are_its_owners_and_are_kept(tmp_path: Path) -> None:
    path = write_client_properties(tmp_path, "orders")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "a password may be added"
    path.write_text(given := path.read_text() + "sasl.username=alice\n")
    write_client_properties(tmp_path, "orders")
    assert path.read_text() == given
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
