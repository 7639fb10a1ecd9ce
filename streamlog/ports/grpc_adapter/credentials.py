"""TLS credentials that follow their files: renewed certificates are used without a restart, and no connection is cut.

A server gets new credentials for each handshake (gRPC's dynamic credentials). A channel's are fixed when it is made, so
`GrpcChannel` opens another connection for later calls when they have changed, and closes the old one after its calls.

Files that are wrong at a reload are reported once, and the earlier material stays in use.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

import grpc

RELOAD_S: Final = 2.0
"""How often the files are looked at."""


class PemMaterial(Protocol):
    """In PEM. No key and chain: of a client without a certificate. No roots: of a server that requests none."""

    @property
    def key(self) -> bytes: ...

    @property
    def chain(self) -> bytes: ...

    @property
    def roots(self) -> bytes: ...


class MaterialSource(Protocol):
    def signature(self) -> object:
        """Another one once the files have changed."""
        ...

    def load(self) -> PemMaterial:
        """Raises an exception whose text says what is wrong with which file."""
        ...


class TlsCredentials:
    """`watch` follows the files. `version` rises with each change. Of one server at most."""

    def __init__(
        self,
        source: MaterialSource,
        report: Callable[[str, str], None] = lambda level, what: None,
        *,
        requires_client: bool = True,
    ) -> None:
        """Loads the material; raises what `source.load` raises. `report` gets the level (INFO, WARN) and text of
        messages about reloads, on the event loop. `requires_client`: as a server, request and require the client's
        certificate; without it none is requested.
        """
        self._source = source
        self._requires_client = requires_client
        self._report = report
        self._signature = source.signature()
        self._material = source.load()
        self._served = self._material  # by the latest handshake
        self._lock = threading.Lock()  # handshakes run on gRPC's threads
        self.version = 0
        self.channel = self._channel()

    def server(self, on_handshake: Callable[[], object] = lambda: None) -> grpc.ServerCredentials:
        """Clients must present a certificate of a trusted authority, unless none is requested. `on_handshake`: called
        before each, on gRPC's threads.
        """

        def fetch() -> Any:  # may return None, which the stubs do not know
            on_handshake()
            return self._for_handshake()

        return grpc.dynamic_ssl_server_credentials(
            _server_configuration(self._material), fetch, require_client_authentication=self._requires_client
        )

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(RELOAD_S)
            signature = await asyncio.to_thread(self._source.signature)
            if signature == self._signature:
                continue
            self._signature = signature
            try:
                material = await asyncio.to_thread(self._source.load)
            except Exception as error:  # noqa: BLE001  reported; the earlier material serves on
                self._report("WARN", f"the changed TLS files are not used, the earlier ones stay in use: {error}")
                continue
            with self._lock:
                self._material = material
            self.version += 1
            self.channel = self._channel()
            self._report("INFO", "the changed TLS files are used for new connections")

    def _channel(self) -> grpc.ChannelCredentials:
        one = self._material
        return grpc.ssl_channel_credentials(one.roots or None, one.key or None, one.chain or None)

    def _for_handshake(self) -> grpc.ServerCertificateConfiguration | None:
        """None: as at the previous handshake."""
        with self._lock:
            if self._served is self._material:
                return None
            self._served = self._material
            return _server_configuration(self._served)


def _server_configuration(material: PemMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.chain)], material.roots or None)
