"""A command's connection to the cluster: opened for one run, closed at its end; errors become messages."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from msgspec.structs import replace

from streamlog.cli.common.answering import no_quorum, not_answering
from streamlog.cli.common.failures import Interrupted, failed
from streamlog.cli.common.output import say
from streamlog.cli.common.target import UNREACHABLE_MS, Target
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.errors import NotControllerError, QuorumUnavailableError, RequestTimedOutError, StreamlogError
from streamlog.ports import system

T = TypeVar("T")
_OF_THE_QUORUM: Final = (RequestTimedOutError, QuorumUnavailableError, NotControllerError)


def with_admin(target: Target, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """Runs `work` and returns its result. ClickException for its errors."""

    async def run() -> T:
        async with open_admin(target) as admin:
            return await work(admin)

    return finish(run(), reason_of=lambda error: _no_quorum(target, error))


def _no_quorum(target: Target, error: StreamlogError) -> str:
    """Where voters that do not answer are the reason of an error: how many; else empty."""
    if not isinstance(error, _OF_THE_QUORUM):
        return ""

    async def run() -> list[str]:
        async with open_admin(replace(target, request_timeout_ms=UNREACHABLE_MS)) as admin:
            return [voter.address for voter in (await admin.describe_cluster()).voters]

    try:
        voters = system.run(run())
    except StreamlogError:
        return ""
    return no_quorum(voters, not_answering(voters))


async def check_reachable(target: Target) -> None:
    """StreamlogError, soon, if no node can be reached: producers and consumers wait longer for one."""
    async with open_admin(target) as admin:
        await admin.describe_node()


def finish(work: Coroutine[Any, Any, T], *, reason_of: Callable[[StreamlogError], str] = lambda _: "") -> T:
    """Runs it to its end. ClickException for its errors, Interrupted for Ctrl-C. `reason_of`: what to say instead of
    an error's own message; empty: that message.
    """
    try:
        return system.run(work)
    except StreamlogError as error:
        reason = reason_of(error)
        raise click.ClickException(f"{reason}.") if reason else failed(error) from None
    except KeyboardInterrupt:
        raise Interrupted from None


def open_admin(target: Target) -> AsyncAdmin:
    timeout_ms = target.request_timeout_ms
    settings = target.settings | {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
    with showing_warnings():
        return AsyncAdmin(settings, unreachable_s=UNREACHABLE_MS / 1_000, client_version="streamlogctl")


@contextmanager
def showing_warnings() -> Iterator[None]:
    """Prints a client's warnings about its settings to standard error, without their place in our code."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for one in found:
        say(f"Warning: {one.message}", err=True)
