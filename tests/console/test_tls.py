"""The console's certificate and key: checked before it starts, renewed while it runs."""

from __future__ import annotations

import os
import ssl
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from streamlog.console.access.database import AccessError
from streamlog.console.tls import TlsFiles
from streamlog.tls.authority import Authority
from tests.console.access.running import COMMAND


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """Both in one file, as `streamlogctl security node` writes them."""
    path = Authority.create(tmp_path).add_node(1, ["localhost"])
    return TlsFiles(path, path)


def served(context: ssl.SSLContext) -> bytes:
    """The certificate that a new connection gets."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    client = client_context.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_renewed_files_are_used_and_bad_ones_are_not(files: TlsFiles, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files.use(context)
    used, first = files.signature(), served(context)
    assert files.renew(context, used) == used

    text = files.certificate.read_text()
    files.certificate.write_text("half")
    used = files.renew(context, used)
    assert served(context) == first

    other = Authority.create(tmp_path / "other").add_node(2, ["localhost"])
    os.replace(other, files.certificate)
    used = files.renew(context, used)
    second = served(context)
    assert second != first

    files.certificate.unlink()
    assert files.renew(context, used) != used
    assert served(context) == second
    files.certificate.write_text(text)
    files.certificate.chmod(0o600)
    files.renew(context, used)
    assert served(context) == first


def test_files_that_cannot_be_used(files: TlsFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").write_text("")
    (tmp_path / "empty").chmod(0o600)
    other = Authority.create(tmp_path / "other").add_node(2, ["localhost"])
    readable = tmp_path / "readable"
    readable.write_bytes(files.key.read_bytes())
    readable.chmod(0o644)
    for certificate, key, reason in (
        (files.certificate, tmp_path / "none", "No such file"),
        (tmp_path / "fifo", files.key, "--tls-cert .*not a regular file"),
        (files.certificate, tmp_path / "fifo", "--tls-key .*not a regular file"),
        (files.certificate, tmp_path / "empty", "not a pair in PEM"),
        (files.certificate, other, "not a pair in PEM"),
        (files.certificate, readable, "other users can read"),
    ):
        with pytest.raises(AccessError, match=reason):
            TlsFiles(certificate, key).check()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--forwarded-from", "proxy.example"), "give IP addresses or networks"),
        (("--forwarded-from", "*"), "give IP addresses or networks"),
        (("--forwarded-from", "10.0.0.1,0.0.0.0/0"), "the proxies alone"),
        (("--public-url", "https://a:b@console.example"), "scheme and host alone"),
    ],
)
def test_options_that_would_trust_everyone_or_no_one(tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    command = [COMMAND, "console", "--data", str(tmp_path), *options]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert found.returncode == 2
    assert reason in found.stderr
