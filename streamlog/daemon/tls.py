"""A node's certificates: checked before it starts, followed while it runs, with a warning a day before they expire.

`NodeCertificates` is the source of gRPC's credentials (TlsCredentials loads through it), so it knows the material in
use. From 30 days before the first expiry on it logs a warning a day; `streamlog_certificate_expiry_timestamp_seconds`
has the time always.
"""

from __future__ import annotations

import asyncio
import datetime
from typing import TYPE_CHECKING, Final

from streamlog.config import Config
from streamlog.config.addresses import Protocol
from streamlog.config.settings import node_settings as settings
from streamlog.daemon.logs.log_lines import LogLines
from streamlog.metrics import Family
from streamlog.metrics.families import gauge
from streamlog.model import BrokerId
from streamlog.ports.grpc_adapter.credentials import TlsCredentials

if TYPE_CHECKING:  # imported where TLS is used: `cryptography` takes long, and is of no use to other nodes
    from streamlog.tls.material import Material, MaterialFiles

CHECK_S: Final = 3600.0
WARN_EVERY: Final = datetime.timedelta(days=1)


def check_tls(config: Config) -> None:
    """Nothing for a PLAINTEXT listener. InvalidConfigError if the files of an SSL listener cannot be used."""
    if _is_secure(config):
        from streamlog.tls.material import MaterialFiles

        MaterialFiles.of(config, BrokerId(config[settings.NODE_ID])).load()


def node_certificates(config: Config, lines: LogLines) -> NodeCertificates | None:
    """None for a PLAINTEXT listener. InvalidConfigError."""
    if not _is_secure(config):
        return None
    from streamlog.tls.material import MaterialFiles

    return NodeCertificates(MaterialFiles.of(config, BrokerId(config[settings.NODE_ID])), lines)


class NodeCertificates:
    """A credentials.MaterialSource."""

    def __init__(self, files: MaterialFiles, lines: LogLines) -> None:
        """InvalidConfigError."""
        self._files = files
        self._lines = lines
        self._warned: tuple[Material, datetime.datetime] | None = None
        self.material = files.load()
        self.warn_if_due(datetime.datetime.now(datetime.UTC))
        self.credentials = TlsCredentials(self, lines.write)

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
            self._lines.write("WARN", warning)
            self._warned = (material, now)


def certificate_families(certificates: NodeCertificates | None) -> list[Family]:
    """Without samples on a PLAINTEXT listener."""
    material = None if certificates is None else certificates.material
    return [
        gauge(
            "streamlog_certificate_expiry_timestamp_seconds",
            "When the first certificate of a store expires, as Unix time: keystore: the node's own chain, truststore: "
            "the trusted authorities; missing without TLS.",
            []
            if material is None
            else [
                (("keystore",), material.expires.timestamp()),
                (("truststore",), material.roots_expire.timestamp()),
            ],
            ("store",),
        )
    ]


def _is_secure(config: Config) -> bool:
    (listener,) = config[settings.LISTENERS]
    return listener.protocol is Protocol.SSL
