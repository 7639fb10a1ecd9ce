"""Callers with bearer tokens: `authorization: Bearer ...` in the metadata of a call, over TLS.

    header known, its key still the issuer's, not too old   --> accepted (one digest, one look-up)
    otherwise   --> signature, issuer, audience, times (`access.tokens`)  --> remembered, or refused

What is remembered is a keyed digest of the header, not the token.
"""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec import Struct

from streamlog.access.tokens import AcceptedToken, TokenError, TokenRules, UnknownKeyError, verified
from streamlog.errors import SaslAuthenticationError
from streamlog.ports import Clock, Random
from streamlog.services.access.token_keys import TokenKeys

REMEMBERED_MAX: Final = 10_000
REMEMBERED_S: Final = 600.0


class _Remembered(Struct, frozen=True):
    token: AcceptedToken
    until_s: float


class TokenLogins:
    def __init__(self, keys: TokenKeys, rules: TokenRules, clock: Clock, random: Random) -> None:
        self.keys = keys
        self._rules = rules
        self._clock = clock
        self._digest_key = random.getrandbits(256).to_bytes(32, "big")
        self._remembered: dict[bytes, _Remembered] = {}  # by digest of the header; the oldest first
        self.accepted = 0  # tokens, since the start
        self.refused = 0

    def known(self, header: str) -> AcceptedToken | None:
        """If this header was accepted not long ago and still is."""
        self.keys.look()
        found = self._remembered.get(self._digest(header))
        if found is None or found.until_s < self._clock.monotonic() or self.refusal(found.token) is not None:
            return None
        return found.token

    def refusal(self, token: AcceptedToken) -> SaslAuthenticationError | None:
        """Of one that was accepted before; None: it still is."""
        if self._clock.wall_ms() >= token.expires_ms:
            return SaslAuthenticationError(f"the bearer token of {token.user} has expired: log in with a new one")
        if not self.keys.has(token.key_digest):
            return SaslAuthenticationError(f"the key of {token.user}'s bearer token is no longer the issuer's")
        return None

    async def login(self, header: str) -> AcceptedToken:
        """SaslAuthenticationError, BrokerNotAvailableError."""
        token = header.partition(" ")[2].strip()
        keys = await self.keys.current()
        try:
            try:
                found = verified(token, keys, self._rules, self._clock.wall_ms())
            except UnknownKeyError:
                found = verified(token, await self.keys.newer(), self._rules, self._clock.wall_ms())
        except TokenError as error:
            self.refused += 1
            raise SaslAuthenticationError(f"the bearer token is refused: {error}") from None
        self.accepted += 1
        digest = self._digest(header)
        self._remembered.pop(digest, None)
        self._remembered[digest] = _Remembered(found, self._clock.monotonic() + REMEMBERED_S)
        while len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return found

    def _digest(self, header: str) -> bytes:
        return hashlib.blake2b(header.encode("utf-8", "surrogatepass"), key=self._digest_key, digest_size=16).digest()
