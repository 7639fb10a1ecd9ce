"""A node's certificates: checked before it starts, followed while it runs, with a warning a day before they expire.

`NodeCertificates` is the source of the port's credentials (TlsCredentials loads through it), so it knows the material
in use. From 30 days before the first expiry on it logs a warning a day; the time is in
`streamlog_certificate_expiry_timestamp_seconds` always.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from streamlog.config import Config
from streamlog.config.listeners import HTTPS, https_client_auth, listeners_of, serves_https
from streamlog.config.settings.node_settings import HTTP_LISTENERS
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.metrics import Family
from streamlog.metrics.families import gauge
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials

if TYPE_CHECKING:  # imported where TLS is used: `cryptography` takes long, and is of no use to other nodes
    from streamlog.tls.material import Material, MaterialFiles

CHECK_S: Final = 3600.0
WARN_EVERY: Final = datetime.timedelta(days=1)


def check_tls(config: Config) -> None:
    """Nothing for PLAINTEXT listeners. InvalidConfigError if the files of an SSL listener cannot be used."""
    secure = [one for one in listeners_of(config) if one.secure]
    if secure:
        from streamlog.tls.material import MaterialFiles

        for one in secure:
            MaterialFiles.of_listener(config, one).load()
    if serves_https(config):
        _load_https(config)


def node_certificates(config: Config, lines: LogLines) -> dict[str, NodeCertificates]:
    """By SSL listener. InvalidConfigError."""
    listeners = listeners_of(config)
    secure = [one for one in listeners if one.secure]
    if not secure:
        return {}
    from streamlog.tls.material import MaterialFiles

    return {
        one.name: NodeCertificates(
            MaterialFiles.of_listener(config, one),
            lines,
            listener=one.name if len(listeners) > 1 else "",
            requires_client=one.client_auth == "required",
        )
        for one in secure
    }


def https_certificates(config: Config, lines: LogLines) -> HttpsCertificates | None:
    """Of the addresses of http.listeners over TLS; None: there are none. InvalidConfigError."""
    return HttpsCertificates(config, lines) if serves_https(config) else None


def _load_https(config: Config) -> tuple[Material, ssl.SSLContext]:
    """Blocks. InvalidConfigError."""
    from streamlog.tls.material import MaterialFiles
    from streamlog.tls.openssl import server_context

    material = MaterialFiles.of_https(config).load()
    return material, server_context(material, https_client_auth(config), HTTP_LISTENERS.name)


class NodeCertificates:
    """A credentials.MaterialSource."""

    def __init__(
        self, files: MaterialFiles, lines: LogLines, *, listener: str = "", requires_client: bool = True
    ) -> None:
        """`listener`: its name, where there are several. InvalidConfigError."""
        self._files = files
        self._listener = listener
        self._lines = lines
        self._warned: tuple[Material, datetime.datetime] | None = None
        self.material = files.load()
        self.warn_if_due(datetime.datetime.now(datetime.UTC))
        self.credentials = TlsCredentials(self, self._report, requires_client=requires_client)

    def signature(self) -> object:
        return self._files.signature()

    def load(self) -> Material:
        """Blocks. InvalidConfigError; the earlier material stays in use."""
        self.material = self._files.load()
        return self.material

    async def watch_expiry(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            self.warn_if_due(datetime.datetime.now(datetime.UTC))

    def warn_if_due(self, now: datetime.datetime) -> None:
        """Once a day for the same material."""
        material = self.material
        if self._warned is not None and self._warned[0] is material and now - self._warned[1] < WARN_EVERY:
            return
        warning = material.expiry_warning(now)
        if warning is not None:
            self._report("WARN", warning)
            self._warned = (material, now)

    def _report(self, level: str, what: str) -> None:
        self._lines.write(level, f"listener {self._listener}: {what}" if self._listener else what)


class HttpsCertificates(NodeCertificates):
    """Also makes the context of the HTTP listener, at each load: material that OpenSSL does not accept is not used."""

    context: ssl.SSLContext

    def __init__(self, config: Config, lines: LogLines) -> None:
        """InvalidConfigError."""
        from streamlog.tls.material import MaterialFiles

        self._config = config
        super().__init__(MaterialFiles.of_https(config), lines, listener=HTTPS)

    def load(self) -> Material:
        """Blocks. InvalidConfigError; the earlier material stays in use."""
        self.material, self.context = _load_https(self._config)
        return self.material


def certificate_families(certificates: Iterable[NodeCertificates]) -> list[Family]:
    """Without samples on PLAINTEXT listeners."""
    material = [one.material for one in certificates]
    own = [one.expires.timestamp() for one in material]
    roots = [one.roots_expire.timestamp() for one in material if one.roots]
    return [
        gauge(
            "streamlog_certificate_expiry_timestamp_seconds",
            "When the first certificate of a store expires, as Unix time: keystore: the node's own chain, truststore: "
            "the trusted authorities; missing without TLS.",
            [((store,), min(times)) for store, times in (("keystore", own), ("truststore", roots)) if times],
            ("store",),
        )
    ]
