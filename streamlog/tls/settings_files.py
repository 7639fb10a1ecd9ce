"""The settings that use the certificates of a directory (`streamlog.tls.authority`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamlog.config.properties import escape_value
from streamlog.config.settings import tls_settings as tls
from streamlog.config.settings.client_settings import SECURITY_PROTOCOL
from streamlog.config.settings.node_settings import LISTENERS, NODE_ID
from streamlog.config.settings.security_settings import AUTHORIZER_CLASS_NAME, SUPER_USERS
from streamlog.tls.authority import CA_CERTIFICATE, ORGANIZATION
from streamlog.tls.private_files import write_whole

ADMINISTRATOR: Final = "admin"


def node_settings(directory: Path, node_id: int, address: str) -> dict[str, str]:
    """`address`: host:port of its listener. Clients may do what the access control lists allow, the administrator
    everything.
    """
    return {
        NODE_ID.name: str(node_id),
        LISTENERS.name: f"SSL://{address}",
        **_files(directory, f"node-{node_id}"),
        AUTHORIZER_CLASS_NAME.name: "StandardAuthorizer",
        SUPER_USERS.name: principal(ADMINISTRATOR),
    }


def principal(name: str) -> str:
    """Of the client certificate of this name, without ssl.principal.mapping.rules."""
    return f"User:CN={name},O={ORGANIZATION}"


def client_settings(directory: Path, name: str) -> dict[str, str]:
    return {SECURITY_PROTOCOL.name: "SSL", **_files(directory, name)}


def write_client_properties(directory: Path, name: str) -> Path:
    """The client's settings as DIR/NAME.properties, a file for --command-config. OSError. An existing file is kept: it
    may have a login by now.
    """
    path = directory / f"{name}.properties"
    if not path.exists():
        write_whole(path, as_properties(client_settings(directory, name)).encode())
    return path


def as_properties(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={escape_value(value)}\n" for name, value in values.items())


def _files(directory: Path, name: str) -> dict[str, str]:
    return {
        tls.SSL_KEYSTORE_LOCATION.name: str((directory / f"{name}.pem").absolute()),
        tls.SSL_TRUSTSTORE_LOCATION.name: str((directory / CA_CERTIFICATE).absolute()),
    }
