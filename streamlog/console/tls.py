"""HTTPS: the certificate and the key of `--tls-cert` and `--tls-key`.

They are checked before the console starts, and used again when they were renewed, without a restart; files that do not
fit are reported in the log, and the last ones stay in use. The key must be readable by its owner alone, as those of
nodes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import Final

from msgspec import Struct

from streamlog.console.access.database import AccessError
from streamlog.regular_file import OTHERS, read_regular

WATCH_S: Final = 10.0
FILE_BYTES_MAX: Final = 1 << 20

_log: Final = logging.getLogger(__name__)


class TlsFiles(Struct, frozen=True):
    certificate: Path
    key: Path

    def check(self) -> None:
        """AccessError."""
        self.use(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def use(self, context: ssl.SSLContext) -> None:
        """For new connections. AccessError."""
        self._read("--tls-cert", self.certificate)
        if self._read("--tls-key", self.key) & OTHERS:
            raise AccessError(f"--tls-key {self.key}: other users can read this private key: chmod 600 {self.key}")
        try:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise AccessError(
                f"--tls-cert {self.certificate}, --tls-key {self.key}: not a pair in PEM ({why})."
            ) from None

    @staticmethod
    def _read(option: str, path: Path) -> int:
        """Its mode. The library would wait for ever for the writer of a FIFO."""
        try:
            return read_regular(path, FILE_BYTES_MAX)[1]
        except OSError as error:
            raise AccessError(f"{option} {path}: {error.strerror}.") from None

    def signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Another one when a file was replaced or written."""
        return tuple(map(_signature, (self.certificate, self.key)))

    async def run(self, context: ssl.SSLContext) -> None:
        """Until it is cancelled."""
        used = await asyncio.to_thread(self.signature)
        while True:
            await asyncio.sleep(WATCH_S)
            used = await asyncio.to_thread(self.renew, context, used)

    def renew(
        self, context: ssl.SSLContext, used: tuple[tuple[int, int, int] | None, ...]
    ) -> tuple[tuple[int, int, int] | None, ...]:
        found = self.signature()
        if found != used:
            try:
                self.check()  # first: a failure may leave a certificate without its key
                self.use(context)
            except AccessError as error:
                _log.warning("renewed TLS files are not used: %s", error)
            else:
                _log.info("the renewed certificate %s is used", self.certificate)
        return found


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _no_password() -> str:
    raise ValueError("the key is encrypted, and the console has no password for it")
