"""Users with passwords: `authorization: Basic ...` in the metadata of a call, over TLS.

    header known, the user's password unchanged, not too old   --> accepted (one digest, one look-up)
    otherwise   --> throttled?  --> scrypt on a worker thread, few at a time  --> remembered, or refused

Throttled is THROTTLED, which clients retry: someone else may have guessed at the user's password. A password that is
wrong is SASL_AUTHENTICATION_FAILED, which ends a client.

What is remembered is a keyed digest of the header, not the password. It is valid for the very salted password that it
was checked against: another password of the user, or none, ends it at once. Concurrent calls with one header share one
check.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import math
from typing import Final

from msgspec import Struct

from streamlog.access.passwords import NO_PASSWORD, SaltedPassword, is_password
from streamlog.access.throttle import LoginThrottle
from streamlog.errors import SaslAuthenticationError, ThrottledError
from streamlog.metadata.view import MetadataView
from streamlog.ports import Clock, Random, Workers

HEADER: Final = "authorization"
HEADER_LENGTH_MAX: Final = 4_096
REMEMBERED_MAX: Final = 10_000
REMEMBERED_S: Final = 600.0
CHECKS_AT_ONCE: Final = 2
CHECKS_WAITING_MAX: Final = 100
_BASIC: Final = "basic "


class _Login(Struct, frozen=True):
    user: str
    password: SaltedPassword
    until_s: float


class Authenticator:
    def __init__(self, view: MetadataView, clock: Clock, random: Random, workers: Workers) -> None:
        self._view = view
        self._clock = clock
        self._workers = workers
        self._key = random.getrandbits(256).to_bytes(32, "big")
        self._remembered: dict[bytes, _Login] = {}  # by digest of the header; the oldest first
        self._checking: dict[bytes, asyncio.Future[str]] = {}
        self._slots = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._throttle = LoginThrottle(clock.monotonic)
        self.checked = 0  # passwords, since the start
        self.accepted = 0
        self.refused = 0  # attempts that came too soon after failed ones, too

    def known(self, header: str) -> str | None:
        """The user, if this header was accepted not long ago and still is."""
        login = self._remembered.get(self._digest(header))
        if login is None or login.until_s < self._clock.monotonic():
            return None
        return login.user if self._view.image.users.get(login.user) == login.password else None

    def password_of(self, user: str) -> SaltedPassword | None:
        """None: there is no such user."""
        return self._view.image.users.get(user)

    async def login(self, header: str, address: str) -> str:
        """The user. SaslAuthenticationError, ThrottledError."""
        digest = self._digest(header)
        running = self._checking.get(digest)
        if running is None:
            if len(self._checking) >= CHECKS_WAITING_MAX:
                raise ThrottledError(f"more than {CHECKS_WAITING_MAX} logins are waiting: try again", limit=100)
            check = self._check(header, digest, address)
            running = self._checking[digest] = asyncio.ensure_future(check)  # sim: ends by itself, awaited below
            running.add_done_callback(lambda done: self._end(digest, done))
        return await asyncio.shield(running)

    def _end(self, digest: bytes, done: asyncio.Future[str]) -> None:
        self._checking.pop(digest, None)
        if not done.cancelled():
            done.exception()  # seen, even if its caller has left

    async def _check(self, header: str, digest: bytes, address: str) -> str:
        try:
            user, password = _parsed(header)
        except SaslAuthenticationError:
            self.refused += 1
            raise
        wait_s = self._throttle.wait_s(user, address)
        if wait_s > 0:
            self.refused += 1
            raise ThrottledError(
                f"too many failed logins of this user, or from address {address}: the next password is checked in "
                f"{wait_s:.0f} s",
                retry_after_ms=math.ceil(wait_s * 1000),
            )
        self._throttle.failed(user, address)  # taken back below: attempts at the same time count, too
        stored = self._view.image.users.get(user)
        async with self._slots:
            self.checked += 1
            accepted = await self._workers.run(is_password, stored or NO_PASSWORD, password)
        if stored is None or not accepted or self._view.image.users.get(user) != stored:
            self.refused += 1
            raise SaslAuthenticationError("wrong user name or password (sasl.username, sasl.password)")
        self._throttle.succeeded(user, address)
        self.accepted += 1
        self._remembered.pop(digest, None)
        self._remembered[digest] = _Login(user, stored, self._clock.monotonic() + REMEMBERED_S)
        while len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return user

    def _digest(self, header: str) -> bytes:
        return hashlib.blake2b(header.encode("utf-8", "surrogatepass"), key=self._key, digest_size=16).digest()


def _parsed(header: str) -> tuple[str, str]:
    """User and password. SaslAuthenticationError."""
    if len(header) <= HEADER_LENGTH_MAX and header[: len(_BASIC)].lower() == _BASIC:
        try:
            user, colon, password = base64.b64decode(header[len(_BASIC) :], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            pass
        else:
            if colon:
                return user[:256], password
    raise SaslAuthenticationError(
        f"the call's {HEADER} metadata must be 'Basic' and the base64 of USER:PASSWORD, at most {HEADER_LENGTH_MAX} "
        "characters"
    )
