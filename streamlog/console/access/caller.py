"""The user on whose behalf the current code runs, and what it may do.

Each request carries a `Caller` in its ASGI scope (put there by the server, never by the browser). NiceGUI keeps the
request with which a page was opened, so code of a page and of its events finds its caller there. The caller's session
is looked at each time: an event of a page whose session has ended is refused.

    async with permitted(Action.TOPIC_DELETE, "topic orders"):
        ...                               # refused before this line where the role does not suffice

Call these in a page's function or in an event handler, not in a task of your own (it has no page): they raise there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from msgspec import Struct

from streamlog.console.access.roles import LEAST_ROLE, Action, UserRole, allows
from streamlog.console.access.values import Protection
from streamlog.errors import InvalidRequestError

SCOPE_KEY: Final = "streamlog.caller"


class User(Struct, frozen=True):
    name: str
    role: UserRole


LOCAL: Final = User("local", UserRole.ADMIN)
"""Everyone, where no users are configured: only this machine can connect then."""


class Attempt(Struct):
    """A permitted action under way. `result`: for the audit log; set it where parts of the action have failed."""

    user: User
    result: str = "done"


class Caller(Protocol):
    @property
    def user(self) -> User | None:
        """As known now; None: the session has ended."""

    async def verified(self) -> User | None:
        """As in the database now. Slower; before each change."""

    def attempt(self, user: User | None, action: Action, target: str) -> Recording:
        """Records the attempt in the audit log."""

    def protection(self, topic: str, role: UserRole) -> Protection: ...


class Recording(Protocol):
    async def refused(self, why: str) -> None: ...
    async def begin(self) -> None: ...
    async def end(self, result: str) -> None: ...


_ACTING: ContextVar[Caller | None] = ContextVar("acting", default=None)


@contextmanager
def acting_as(caller: Caller) -> Iterator[None]:
    """For code without a page."""
    token = _ACTING.set(caller)
    try:
        yield
    finally:
        _ACTING.reset(token)


def current_caller() -> Caller:
    """RuntimeError outside of a page."""
    caller = _ACTING.get()
    if caller is None:
        from nicegui import context  # not before the server has set where it stores its files

        caller = context.client.request.scope.get(SCOPE_KEY)
    if caller is None:
        raise RuntimeError("a request has not passed the console's access check")
    return caller


def current_user() -> User:
    """InvalidRequestError where the session has ended."""
    user = current_caller().user
    if user is None:
        raise _ended()
    return user


def may(action: Action) -> bool:
    """For a page, to leave out what its user would be refused."""
    user = current_caller().user
    return user is not None and allows(user.role, action)


def require(action: Action) -> User:
    """InvalidRequestError where the current user may not do it. For what changes something: `permitted`."""
    user = current_user()
    if not allows(user.role, action):
        raise _refused(user, action)
    return user


@asynccontextmanager
async def permitted(action: Action, target: str = "") -> AsyncIterator[Attempt]:
    """A change, with its line in the audit log. `target`: names only, no value and no secret. InvalidRequestError."""
    caller = current_caller()
    user = await caller.verified()
    recording = caller.attempt(user, action, target)
    if user is None:
        await recording.refused("session ended")
        raise _ended()
    if not allows(user.role, action):
        await recording.refused(f"role {user.role.label}")
        raise _refused(user, action)
    await recording.begin()
    attempt = Attempt(user)
    try:
        yield attempt
    except BaseException as error:
        await recording.end(f"failed: {getattr(error, 'code', '') or type(error).__name__}")
        raise
    await recording.end(attempt.result)


def protection_of(topic: str) -> Protection:
    """What the current user may not see of the topic's records. InvalidRequestError."""
    caller = current_caller()
    return caller.protection(topic, require(Action.RECORDS_READ).role)


def _ended() -> InvalidRequestError:
    return InvalidRequestError("Your session has ended: log in again.")


def _refused(user: User, action: Action) -> InvalidRequestError:
    least = LEAST_ROLE.get(action)
    needed = "no role" if least is None else least.label
    return InvalidRequestError(
        f"User {user.name} may not {action.value}: it needs role {needed}, and the user is {user.role.label}."
    )
