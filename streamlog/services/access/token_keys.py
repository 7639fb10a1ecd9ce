"""The public keys of the token issuer (sasl.oauthbearer.jwks.endpoint.url): loaded when first needed, kept, refreshed.

    no keys yet                       loaded by the first caller, for whom all others wait
    older than the refresh interval   refreshed in the background; the earlier ones verify meanwhile
    a token names an unknown key      refreshed, at most once in UNKNOWN_EVERY_S: the issuer may have a new one
    a refresh fails                   the earlier keys stay in use; the next attempt after a pause that doubles

There is one load at a time, and between two attempts a pause, so that callers with wrong tokens cannot make the node
flood its issuer. A file is looked at every FILE_REFRESH_S.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from streamlog.access.tokens import KEYS_BYTES_MAX, VerificationKey, parse_keys
from streamlog.errors import BrokerNotAvailableError
from streamlog.ports import Clock, Workers
from streamlog.ports.bundle import Documents
from streamlog.ports.probe import Probe

UNKNOWN_EVERY_S: Final = 10.0
FILE_REFRESH_S: Final = 10.0


class KeyTimes(Struct, frozen=True, kw_only=True):
    refresh_s: float = 3_600.0
    pause_s: float = 0.1  # after the first failure; it doubles
    pause_max_s: float = 10.0


class TokenKeys:
    def __init__(
        self, url: str, documents: Documents, clock: Clock, workers: Workers, probe: Probe, times: KeyTimes
    ) -> None:
        self._url = url
        self._documents = documents
        self._clock = clock
        self._workers = workers
        self._probe = probe
        self._times = times
        self._refresh_s = min(times.refresh_s, FILE_REFRESH_S) if url.startswith("file:") else times.refresh_s
        self._keys: tuple[VerificationKey, ...] = ()
        self._digests: frozenset[bytes] = frozenset()
        self._loading: asyncio.Future[None] | None = None
        self._failed = 0  # attempts in a row
        self._reason = "not tried yet"
        self._due_s = 0.0  # of the next refresh, or of the next attempt after one that failed
        self._known_s = 0.0  # from then on, unknown keys cause a refresh
        self._changed: list[Callable[[], None]] = []

    def on_change(self, work: Callable[[], None]) -> None:
        """Call `work` when there are other keys than before."""
        self._changed.append(work)

    def has(self, digest: bytes) -> bool:
        return digest in self._digests

    def look(self) -> None:
        """Start a refresh if one is due."""
        if self._clock.monotonic() >= self._due_s:
            self._load()

    async def current(self) -> Sequence[VerificationKey]:
        """BrokerNotAvailableError if none could be loaded."""
        self.look()
        if not self._keys:
            if self._loading is not None:
                await asyncio.shield(self._loading)
            if not self._keys:
                raise BrokerNotAvailableError(f"this node cannot verify tokens now: {self._reason}; try again")
        return self._keys

    async def newer(self) -> Sequence[VerificationKey]:
        """After a token with an unknown key."""
        if self._loading is None and self._clock.monotonic() >= self._known_s:
            self._load()
        if self._loading is not None:
            await asyncio.shield(self._loading)
        return self._keys

    def _load(self) -> None:
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._replace())  # sim: ends by itself, awaited above
            self._loading.add_done_callback(self._end)

    def _end(self, done: asyncio.Future[None]) -> None:
        self._loading = None
        if not done.cancelled():
            done.exception()  # seen, even if no caller waits

    async def _replace(self) -> None:
        try:
            keys = await self._workers.run(self._read)
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            self._failed += 1
            self._reason = f"sasl.oauthbearer.jwks.endpoint.url={self._url}: {why}"
            pause_s = min(self._times.pause_max_s, self._times.pause_s * 2.0 ** min(self._failed - 1, 30))
            self._known_s = self._due_s = self._clock.monotonic() + pause_s
            if self._failed == 1:
                self._probe("token_keys_failed", url=self._url, reason=why, keys=len(self._keys))
            return
        now_s = self._clock.monotonic()
        self._due_s, self._known_s = now_s + self._refresh_s, now_s + min(self._refresh_s, UNKNOWN_EVERY_S)
        digests = frozenset(key.digest for key in keys)
        changed, recovered = digests != self._digests, self._failed > 0
        self._failed = 0
        self._keys, self._digests = keys, digests
        if changed or recovered:
            self._probe("token_keys_loaded", url=self._url, keys=len(keys))
        if changed:
            for work in self._changed:
                work()

    def _read(self) -> tuple[VerificationKey, ...]:
        """Blocks. OSError, ValueError."""
        return parse_keys(self._documents.read(self._url, KEYS_BYTES_MAX))
