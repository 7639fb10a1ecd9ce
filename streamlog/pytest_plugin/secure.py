"""The certificates of a cluster in a test: of its nodes, of its administrator, and of clients by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from streamlog.config import Config
from streamlog.config.listeners import Listener
from streamlog.errors import InvalidRequestError
from streamlog.ports.grpc_adapter.tls.credentials import TlsCredentials
from streamlog.tls.authority import Authority
from streamlog.tls.material import MaterialFiles
from streamlog.tls.settings_files import ADMINISTRATOR, client_settings, node_settings, principal

HOSTS: Final = ("127.0.0.1", "localhost")


class ClusterCertificates:
    """In a directory of the test. An authority that was made before is used again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            self._authority = Authority.load(directory)
        except InvalidRequestError:
            self._authority = Authority.create(directory)

    def node_settings(self, node_id: int, address: str) -> dict[str, str]:
        if not self._keystore(f"node-{node_id}").exists():
            self._authority.add_node(node_id, HOSTS)
        return node_settings(self._directory, node_id, address)

    def client_settings(self, name: str = ADMINISTRATOR) -> dict[str, str]:
        """Of a client with a certificate of this name, which is made where there is none."""
        if not self._keystore(name).exists():
            self._authority.add_client(name)
        return client_settings(self._directory, name)

    def principal(self, name: str) -> str:
        """Of the client of this name, for access control lists."""
        return principal(name)

    def _keystore(self, name: str) -> Path:
        return self._directory / f"{name}.pem"


def credentials(config: Config, listener: Listener) -> TlsCredentials:
    """Of a node's listener."""
    files = MaterialFiles.of_listener(config, listener)
    return TlsCredentials(files, requires_client=listener.client_auth == "required")
