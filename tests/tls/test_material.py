"""Keys and certificates that cannot work are refused before they are used, with the file and the reason."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from streamlog.errors import InvalidConfigError
from streamlog.model import BrokerId
from streamlog.tls import authority as authority_module
from streamlog.tls.authority import AUTHORITY_DAYS, CA_CERTIFICATE, Authority
from streamlog.tls.material import FILE_BYTES_MAX, MaterialFiles


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path)


def files(keystore: Path, *, node_id: int | None = None) -> MaterialFiles:
    return MaterialFiles(
        keystore=str(keystore),
        key=None,
        chain=None,
        truststore=str(keystore.parent / CA_CERTIFICATE),
        roots=None,
        node_id=None if node_id is None else BrokerId(node_id),
    )


def refused(source: MaterialFiles) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        source.load()
    return str(caught.value)


def test_a_node_of_this_id_is_accepted(authority: Authority) -> None:
    found = files(authority.add_node(4, ["a"]), node_id=4).load()
    assert found.node_id == BrokerId(4)
    assert found.key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert found.chain.startswith(b"-----BEGIN CERTIFICATE-----")


def test_another_nodes_and_a_clients_certificate_are_refused(authority: Authority) -> None:
    assert "is node 4's, and this is node 5" in refused(files(authority.add_node(4, ["a"]), node_id=5))
    assert "is no node's, and this is node 5" in refused(files(authority.add_client("c"), node_id=5))


def test_a_key_that_others_can_read(authority: Authority) -> None:
    path = authority.add_client("c")
    path.chmod(0o640)
    assert refused(files(path)).endswith(f"other users can read this private key (mode 0640): chmod 600 {path}")


def test_a_key_of_another_certificate(authority: Authority) -> None:
    one, other = authority.add_client("one"), authority.add_client("other")
    begin = b"-----BEGIN CERTIFICATE-----"
    one.write_bytes(one.read_bytes().partition(begin)[0] + begin + other.read_bytes().partition(begin)[2])
    assert "does not belong to the first certificate, CN=other" in refused(files(one))


def test_an_encrypted_key(authority: Authority) -> None:
    path = authority.add_client("c")
    key = load_pem_private_key(path.read_bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    path.write_bytes(encrypted + b"-----BEGIN CERTIFICATE-----" + path.read_bytes().partition(b"CERTIFICATE-----")[2])
    assert "the private key is encrypted" in refused(files(path))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no certificate in PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "a certificate cannot be read"),
        (b"x" * (FILE_BYTES_MAX + 1), "larger than"),
    ],
)
def test_files_with_something_else(authority: Authority, content: bytes, reason: str) -> None:
    path = authority.add_client("c")
    path.write_bytes(content)
    assert reason in refused(files(path))


def test_a_certificate_without_a_key(authority: Authority) -> None:
    path = authority.add_client("c")
    path.write_bytes((path.parent / CA_CERTIFICATE).read_bytes())
    assert "no private key in PEM" in refused(files(path))


def test_files_that_are_none(authority: Authority, tmp_path: Path) -> None:
    assert refused(files(tmp_path / "no.pem")).endswith("No such file or directory")
    assert refused(files(tmp_path)).endswith("Is a directory")


def test_texts_instead_of_files(authority: Authority) -> None:
    whole = authority.add_client("c").read_text()
    key, begin, chain = whole.partition("-----BEGIN CERTIFICATE-----")
    roots = (authority.directory / CA_CERTIFICATE).read_text()
    source = MaterialFiles(keystore=None, key=key, chain=begin + chain, truststore=None, roots=roots)
    assert source.load().subject == "CN=c,O=streamlog"
    assert source.signature() == ()


def test_an_expired_certificate_and_one_that_will(authority: Authority) -> None:
    path = authority.add_client("c", days=10)
    found = files(path).load()
    assert "expires in 9 days" in str(found.expiry_warning(datetime.datetime.now(datetime.UTC)))
    assert found.expiry_warning(found.expires - datetime.timedelta(days=31)) is None
    assert "has expired, new connections fail" in str(found.expiry_warning(found.expires))
    authority.add_client("c", days=0, renew=True)
    assert "expired at" in refused(files(path))


def test_a_trusted_authority_that_expires_first(authority: Authority) -> None:
    found = files(authority.add_client("c", days=2 * AUTHORITY_DAYS)).load()
    assert found.roots_expire < found.expires
    assert found.expiry_warning(found.roots_expire - datetime.timedelta(days=31)) is None
    warning = str(found.expiry_warning(found.roots_expire - datetime.timedelta(days=3)))
    assert warning.startswith("a trusted authority of ssl.truststore expires in 3 days")


def test_a_replaced_file_has_another_signature(authority: Authority) -> None:
    source = files(authority.add_client("c"))
    before = source.signature()
    assert source.signature() == before
    authority.add_client("c", renew=True)
    assert source.signature() != before


def test_a_fifo_is_refused_at_once(authority: Authority, tmp_path: Path) -> None:
    """To open one waits for its writer, for ever."""
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert refused(files(tmp_path / "fifo")).endswith("not a regular file")


def test_a_certificate_that_is_not_valid_yet(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority_module, "_BACKDATED", -datetime.timedelta(days=1))
    reason = refused(files(authority.add_client("c", days=10)))
    assert "is valid from" in reason
    assert "correct this machine's clock" in reason
