"""A node's certificates: checked before it starts, followed while it runs."""

from __future__ import annotations

import datetime

from streamlog.config import Config
from streamlog.config import node_settings as settings
from streamlog.config.addresses import Protocol
from streamlog.daemon.log_lines import LogLines
from streamlog.model import BrokerId
from streamlog.ports.grpc_adapter.credentials import TlsCredentials

# Imported where TLS is used: `cryptography` takes long, and is of no use to other nodes.


def check_tls(config: Config) -> None:
    """Nothing for a PLAINTEXT listener. InvalidConfigError if the files of an SSL listener cannot be used."""
    if _is_secure(config):
        from streamlog.tls.material import MaterialFiles

        MaterialFiles.of(config, BrokerId(config[settings.NODE_ID])).load()


def tls_credentials(config: Config, lines: LogLines) -> TlsCredentials | None:
    """None for a PLAINTEXT listener. InvalidConfigError."""
    if not _is_secure(config):
        return None
    from streamlog.tls.material import MaterialFiles

    files = MaterialFiles.of(config, BrokerId(config[settings.NODE_ID]))
    warning = files.load().expiry_warning(datetime.datetime.now(datetime.UTC))
    if warning is not None:
        lines.write("WARN", warning)
    return TlsCredentials(files, lines.write)


def _is_secure(config: Config) -> bool:
    (listener,) = config[settings.LISTENERS]
    return listener.protocol is Protocol.SSL
