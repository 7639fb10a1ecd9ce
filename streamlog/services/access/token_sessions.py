"""Open streams of callers with tokens, which end when the token does, unless the caller has renewed it.

A stream's metadata is sent once, so its caller renews as Kafka's clients re-authenticate (KIP-368): before the token
expires it makes any call with a newer token on the same connection. That call prolongs all streams of the same user on
the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from streamlog.access.tokens import AcceptedToken
from streamlog.aio.keyed_timers import KeyedTimers
from streamlog.errors import StreamlogError
from streamlog.ports import Clock
from streamlog.services.access.token_logins import TokenLogins

LOOK_MS: Final = 10_000
"""How often the time is looked at again: the wall clock may step."""

_Key: TypeAlias = tuple[str, str]  # the connection's other end, and the user


class EndedByToken(Protocol):
    def end(self, reason: StreamlogError, /) -> None: ...


class _Session:
    __slots__ = ("streams", "token")

    def __init__(self, token: AcceptedToken) -> None:
        self.token = token  # the one that expires last
        self.streams: dict[EndedByToken, None] = {}


class TokenSessions:
    def __init__(self, logins: TokenLogins, clock: Clock) -> None:
        self._logins = logins
        self._clock = clock
        self._sessions: dict[_Key, _Session] = {}
        self._timers: KeyedTimers[_Key] = KeyedTimers(self._look)
        logins.keys.on_change(self._look_at_all)

    def __len__(self) -> int:
        return len(self._sessions)

    def renew(self, peer: str, token: AcceptedToken) -> None:
        """`peer` made a call with this token."""
        session = self._sessions.get((peer, token.user))
        if session is not None and token.expires_ms > session.token.expires_ms:
            session.token = token

    def open(self, peer: str, token: AcceptedToken, stream: EndedByToken) -> Callable[[], None]:
        """To be called when the stream has ended."""
        key = (peer, token.user)
        session = self._sessions.get(key)
        is_new = session is None
        if session is None:
            session = self._sessions[key] = _Session(token)
        session.streams[stream] = None
        self.renew(peer, token)
        if is_new:
            self._look(key)
        return lambda: self._close(key, session, stream)

    def _close(self, key: _Key, session: _Session, stream: EndedByToken) -> None:
        session.streams.pop(stream, None)
        if not session.streams and self._sessions.get(key) is session:
            del self._sessions[key]
            self._timers.set(key, None)

    def _look_at_all(self) -> None:
        for key in list(self._sessions):
            self._look(key)

    def _look(self, key: _Key) -> None:
        session = self._sessions[key]
        refusal = self._logins.refusal(session.token)
        if refusal is not None:
            self._timers.set(key, None)
            del self._sessions[key]
            for stream in list(session.streams):
                stream.end(refusal)
            return
        self._logins.keys.look()
        left_ms = session.token.expires_ms - self._clock.wall_ms()
        self._timers.set(key, max(1, min(left_ms, LOOK_MS)))
