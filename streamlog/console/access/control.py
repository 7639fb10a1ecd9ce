"""Logins, sessions and the audit log of a running console, on its event loop.

Without users, everyone who can connect is LOCAL, an admin: the console listens on loopback only then. As soon as there
is a user (or a provider of logins), everyone must log in, and that stays so until the console is restarted.

The users may be changed by another process (`streamlogctl console user`): they are read again every WATCH_S, before
each page, and before each change.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.access.throttle import LoginThrottle
from streamlog.console.access.audit import UNDER_WAY, AuditFilter, AuditLine, AuditLog, Kind
from streamlog.console.access.caller import LOCAL, Caller, Recording, User
from streamlog.console.access.database import AccessError
from streamlog.console.access.roles import Action, UserRole
from streamlog.console.access.sessions import UserSession, UserSessions
from streamlog.console.access.users import Users
from streamlog.console.access.values import Protection, ValueRule, protection
from streamlog.console.database_waits import DatabaseThread
from streamlog.errors import InvalidRequestError

WATCH_S: Final = 2.0
LOGINS_WAITING_MAX: Final = 20
"""Checks of passwords are made one after the other: each takes 64 MiB."""
_NOBODY: Final = "(unknown)"

_log: Final = logging.getLogger(__name__)


class LoginRefused(Exception):
    """`status`: of HTTP; `retry_s`: 0 where waiting does not help."""

    def __init__(self, message: str, status: int, retry_s: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_s = retry_s


class Access:
    def __init__(
        self,
        users: Users,
        audit: AuditLog,
        *,
        required: bool,
        rules: Sequence[ValueRule] = (),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`required`: a login is needed although there are no users yet."""
        self.required = required
        self._users = users
        self._audit = audit
        self._rules = tuple(rules)
        self._sessions = UserSessions(now_s)
        self._throttle = LoginThrottle(now_s)
        self._local = UserSession(LOCAL, None, math.inf)
        self._thread = DatabaseThread("access", "The users and the audit log", AccessError)
        self._hashing = DatabaseThread("passwords", "The users", AccessError)
        self._login = asyncio.Lock()
        self._waiting = 0

    def session(self, token: str) -> UserSession | None:
        """None: a login is needed."""
        return self._sessions.find(token) if self.required else self._local

    def caller(self, session: UserSession, address: str) -> Caller:
        return SessionCaller(self, session, address)

    # -- logins

    async def log_in(self, name: str, password: str, address: str) -> str:
        """A session's token. LoginRefused, AccessError."""
        if self._waiting >= LOGINS_WAITING_MAX:
            raise LoginRefused("Too many logins at the same time: try again in a few seconds.", 429, 5)
        self._waiting += 1
        try:
            async with self._login:
                return await self._checked(name, password, address)
        finally:
            self._waiting -= 1

    async def _checked(self, name: str, password: str, address: str) -> str:
        if (wait_s := math.ceil(self._throttle.wait_s(name, address))) > 0:
            raise LoginRefused(f"Too many failed logins: try again in {wait_s} s.", 429, wait_s)
        self._throttle.failed(name, address)
        found = await self._hashing.run(lambda: self._users.check(name, password))
        if found is None:
            known = await self._thread.run(lambda: self._users.find(name)) is not None
            await self.note(Kind.LOGIN, name if known else _NOBODY, address, "log in", "", "refused")
            raise LoginRefused("The name or the password is wrong.", 401)
        self._throttle.succeeded(name, address)
        return await self.open_session(User(found.name, found.role), found.stamp, address)

    async def open_session(self, user: User, stamp: int | None, address: str) -> str:
        await self.note(Kind.LOGIN, user.name, address, "log in", f"as {user.role.label}", "done")
        return self._sessions.open(user, stamp)[0]

    async def log_out(self, session: UserSession, address: str) -> None:
        if session is not self._local:
            session.end()
            await self.note(Kind.LOGIN, session.user.name, address, "log out", "", "done")

    # -- users that change

    async def refresh(self) -> None:
        """Ends the sessions of users that have changed. AccessError."""
        stamps = {one.name: one.stamp for one in await self._thread.run(self._users.list)}
        if stamps and not self.required:
            self.required = True
            self._local.end()
        self._sessions.end_stale(stamps)

    async def run(self) -> None:
        problem = ""
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self.refresh()
            except AccessError as error:
                if str(error) != problem:
                    problem = str(error)
                    _log.warning("%s", problem)
            else:
                if problem:
                    _log.warning("The users can be read again.")
                problem = ""

    # -- the audit log

    async def note(self, kind: Kind, who: str, address: str, action: str, target: str, result: str) -> int:
        """AccessError."""
        return await self._thread.run(lambda: self._audit.add(kind, who, address, action, target, result))

    async def set_result(self, number: int, result: str) -> None:
        await self._thread.run(lambda: self._audit.set_result(number, result))

    async def audit_lines(self, chosen: AuditFilter, before: int | None = None) -> list[AuditLine]:
        return await self._thread.run(lambda: self._audit.lines(chosen, before=before))

    def protection(self, topic: str, role: UserRole) -> Protection:
        return protection(self._rules, topic, role)

    def close(self) -> None:
        self._thread.close()
        self._hashing.close()
        self._users.close()


class SessionCaller:
    """One request's `Caller`."""

    def __init__(self, access: Access, session: UserSession, address: str) -> None:
        self.access = access
        self.session = session
        self.address = address

    @property
    def user(self) -> User | None:
        return None if self.session.ended else self.session.user

    async def verified(self) -> User | None:
        """InvalidRequestError where the users cannot be read."""
        try:
            await self.access.refresh()
        except AccessError as error:
            raise InvalidRequestError(str(error)) from None
        return self.user

    def attempt(self, user: User | None, action: Action, target: str) -> Recording:
        return _Recorded(self, action, target)

    def protection(self, topic: str, role: UserRole) -> Protection:
        return self.access.protection(topic, role)


class _Recorded:
    def __init__(self, caller: SessionCaller, action: Action, target: str) -> None:
        self._caller = caller
        self._action = action
        self._target = target
        self._number = 0

    async def refused(self, why: str) -> None:
        await self._add(Kind.REFUSAL, f"refused: {why}")

    async def begin(self) -> None:
        self._number = await self._add(Kind.CHANGE, UNDER_WAY)

    async def end(self, result: str) -> None:
        """Never raises: the change has been made, or not, already."""
        try:
            await asyncio.shield(self._caller.access.set_result(self._number, result))
        except AccessError as error:
            _log.error("The result of line %d of the audit log is not recorded (%s): %s", self._number, result, error)

    async def _add(self, kind: Kind, result: str) -> int:
        caller = self._caller
        name = caller.session.user.name
        try:
            return await caller.access.note(kind, name, caller.address, self._action.value, self._target, result)
        except AccessError as error:
            raise InvalidRequestError(f"{error} Nothing was changed.") from None
