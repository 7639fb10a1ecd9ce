"""An HTTP listener at a plain and at a secure address, and clients of it."""

from __future__ import annotations

import asyncio
import http.client
import io
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from streamlog.config import Config, PropertiesFile, load_node
from streamlog.config.addresses import Address
from streamlog.daemon.http.connection import Handshakes
from streamlog.daemon.http.listener import HttpListener, open_socket
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.daemon.tls import HttpsCertificates, https_certificates
from streamlog.tls.authority import Authority
from streamlog.tls.settings_files import as_properties, node_settings
from tests.daemon.http.fake_node import FakeNode, nothing

REQUEST = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class ServedHttps:
    """Its log lines are kept."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority.create(directory / "certs")
        self.authority.add_client("scraper")
        self.renew()
        self.out = io.StringIO()
        self.own: dict[str, str] = {}
        self.port = self.plain_port = 0
        self.certificates: HttpsCertificates | None = None

    def renew(self) -> None:
        self.authority.add_node(1, ["127.0.0.1", "localhost"], renew=True)

    def config(self) -> Config:
        values = {
            **node_settings(self.authority.directory, 1, "127.0.0.1:0"),
            "http.listeners": "127.0.0.1:0,HTTPS://127.0.0.1:0",
            "log.dirs": "/d",
            **self.own,
        }
        return load_node(PropertiesFile("s", as_properties(values))).config

    def run(self, test: Callable[[], None]) -> str:
        """`test` in a thread. Returns the log."""
        lines = LogLines(1, self.out)

        async def main() -> None:
            self.certificates = certificates = https_certificates(self.config(), lines)
            assert certificates is not None
            plain, secure = open_socket(Address("127.0.0.1", 0)), open_socket(Address("127.0.0.1", 0))
            self.plain_port, self.port = plain.getsockname()[1], secure.getsockname()[1]
            handshakes = Handshakes(lambda: certificates.context, lambda what: lines.write("WARN", what))
            node: object = FakeNode()
            listener = HttpListener(node, nothing, [plain], None, [secure], handshakes)  # type: ignore[arg-type]
            listener.start()
            try:
                await asyncio.to_thread(test)
            finally:
                await listener.stop()

        asyncio.run(main())
        return self.out.getvalue()

    def client(self, name: str = "", *, authority: Authority | None = None) -> ssl.SSLContext:
        """`name`: of the certificate that it has."""
        context = ssl.create_default_context(cafile=self.authority.directory / "ca.crt")
        if name:
            path = (authority or self.authority).directory / f"{name}.pem"
            context.load_cert_chain(path)
        return context

    def connect(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        return context.wrap_socket(plain, server_hostname="localhost", session=session)

    def get(self, context: ssl.SSLContext, path: str = "/readyz") -> tuple[int, bytes]:
        answer = http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)
        try:
            answer.request("GET", path)
            response = answer.getresponse()
            return response.status, response.read()
        finally:
            answer.close()

    def refuses(self, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> bool:
        """Until the node has closed the connection."""
        try:
            with self.connect(context, session) as one:
                one.sendall(REQUEST)
                return one.recv(1) == b""
        except OSError:
            return True
