"""TLS credentials that follow their files: renewed certificates are used without a restart, and no connection is cut.

A server uses for each handshake what is loaded then. A channel opens another connection for later calls when it has
changed, and the old one ends with its last call (`channel`).

Files that are wrong at a reload are reported once, and the earlier material stays in use. They are tried again each
time: a certificate may not be valid yet.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from streamlog.ports.grpc_adapter.tls.contexts import PemMaterial, client_context, server_context

RELOAD_S: Final = 2.0
"""How often the files are looked at."""


class MaterialSource(Protocol):
    def signature(self) -> object:
        """Another one once the files have changed."""
        ...

    def load(self) -> PemMaterial:
        """Raises an exception whose text says what is wrong with which file."""
        ...


class TlsCredentials:
    """`watch` follows the files. `version` rises with each change."""

    def __init__(
        self,
        source: MaterialSource,
        report: Callable[[str, str], None] = lambda level, what: None,
        *,
        requires_client: bool = True,
    ) -> None:
        """Loads the material; raises what `source.load` raises, and InvalidConfigError. `report` gets the level (INFO,
        WARN) and text of messages about reloads, on the event loop. `requires_client`: as a server, request and require
        the client's certificate; without it none is requested.
        """
        self._source = source
        self.requires_client = requires_client
        self._report = report
        self._signature = source.signature()
        self.version = 0
        self.client_context: ssl.SSLContext
        self._use(source.load())

    @property
    def server_context(self) -> ssl.SSLContext:
        """For handshakes that begin now."""
        assert self._server_context is not None, "a server has a key"
        return self._server_context

    async def watch(self) -> None:
        """Until it is cancelled."""
        reported: object = self._signature  # that of files that were reported as wrong
        while True:
            await asyncio.sleep(RELOAD_S)
            signature = await asyncio.to_thread(self._source.signature)
            if signature == self._signature:
                continue
            try:
                self._use(await asyncio.to_thread(self._source.load))
            except Exception as error:  # noqa: BLE001  reported; the earlier material serves on
                if signature != reported:
                    reported = signature
                    self._report("WARN", f"the changed TLS files are not used, the earlier ones stay in use: {error}")
                continue
            self._signature = signature
            self.version += 1
            self._report("INFO", "the changed TLS files are used for new connections")

    def _use(self, material: PemMaterial) -> None:
        """InvalidConfigError: nothing has changed."""
        client = client_context(material)
        server = server_context(material, requires_client=self.requires_client) if material.key else None
        self.client_context, self._server_context = client, server
