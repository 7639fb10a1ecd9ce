"""Sessions, kept by the server: the browser has a random token, the server its hash, user and end.

A session ends by logout, after LIFETIME_S, and when its user is changed or deleted. Then all that was open in it is
closed. They are in memory: a restart of the console ends all.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final

from streamlog.console.access.caller import User

LIFETIME_S: Final = 12 * 3_600
SESSIONS_MAX: Final = 5_000
PER_USER_MAX: Final = 20
"""Beyond these the oldest one ends."""


class UserSession:
    """`stamp`: of the user at login; None: the user is not in the console's database."""

    def __init__(self, user: User, stamp: int | None, expires_s: float) -> None:
        self.user = user
        self.stamp = stamp
        self.expires_s = expires_s
        self.ended = False
        self._closers: set[Callable[[], None]] = set()

    @property
    def open(self) -> int:
        """Pages and websockets."""
        return len(self._closers)

    def add_closer(self, close: Callable[[], None]) -> None:
        """Called once, when the session ends."""
        self._closers.add(close)

    def remove_closer(self, close: Callable[[], None]) -> None:
        self._closers.discard(close)

    def end(self) -> None:
        self.ended = True
        closers, self._closers = self._closers, set()
        for close in closers:
            close()


class UserSessions:
    """`now_s`: a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._by_hash: dict[str, UserSession] = {}  # in the order of their ends

    def __len__(self) -> int:
        return len(self._by_hash)

    def open(self, user: User, stamp: int | None) -> tuple[str, UserSession]:
        """The token for the browser."""
        mine = [key for key, one in self._by_hash.items() if one.user.name == user.name]
        if len(mine) >= PER_USER_MAX:
            self._end(mine[0])
        elif len(self._by_hash) >= SESSIONS_MAX:
            self._end(next(iter(self._by_hash)))
        token = secrets.token_urlsafe(32)
        session = self._by_hash[_hash(token)] = UserSession(user, stamp, self._now_s() + LIFETIME_S)
        return token, session

    def find(self, token: str) -> UserSession | None:
        session = self._by_hash.get(_hash(token))
        if session is not None and session.expires_s <= self._now_s():
            session.end()
        return None if session is None or session.ended else session

    def end_stale(self, stamps: dict[str, int]) -> None:
        """`stamps`: of all users. Ends the sessions of those that changed, and expired ones."""
        now_s = self._now_s()
        for key, session in list(self._by_hash.items()):
            stale = session.stamp is not None and stamps.get(session.user.name) != session.stamp
            if stale or session.ended or session.expires_s <= now_s:
                self._end(key)

    def _end(self, key: str) -> None:
        self._by_hash.pop(key).end()


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
