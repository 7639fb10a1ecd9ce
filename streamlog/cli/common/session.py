"""A command's connection to the cluster: opened for one run, closed at its end; errors become messages."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from msgspec.structs import replace

from streamlog.cli.common.answering import no_quorum, not_answering, voter_addresses
from streamlog.cli.common.failures import Interrupted, failed, without_place
from streamlog.cli.common.nouns import matching_topics
from streamlog.cli.common.output import say
from streamlog.cli.common.target import UNREACHABLE_MS, Target
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ClusterDescription
from streamlog.errors import (
    BrokerNotAvailableError,
    NotControllerError,
    QuorumUnavailableError,
    RequestTimedOutError,
    StreamlogError,
)
from streamlog.ports import system
from streamlog.printable import escaped

T = TypeVar("T")
_OF_THE_QUORUM: Final = (BrokerNotAvailableError, NotControllerError, QuorumUnavailableError, RequestTimedOutError)
_NOTICE_S: Final = 3.0
"""After this a command that waits says so, if a lost quorum is the reason."""


def with_admin(target: Target, work: Callable[[AsyncAdmin], Awaitable[T]], *, needs_quorum: bool = True) -> T:
    """Runs `work` and returns its result. ClickException for its errors. `needs_quorum`: where it takes long because
    there is no quorum, this is said.
    """
    if not needs_quorum:
        return finish(_run(target, work))
    noticed = _run(target, work, lambda: lost_quorum(target))
    return finish(noticed, reason_of=lambda error: _no_quorum(target, error))


def with_node(target: Target, node_id: int, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """As `with_admin`, for what this node alone can do, with a quorum and without: where it takes long because the node
    does not answer, this is said.
    """
    return finish(_run(target, work, lambda: _silent_node(target, node_id)))


async def _run(
    target: Target,
    work: Callable[[AsyncAdmin], Awaitable[T]],
    reason_of_wait: Callable[[], Awaitable[str]] | None = None,
) -> T:
    async with open_admin(target) as admin:
        if reason_of_wait is None:
            return await work(admin)
        notice = asyncio.create_task(_say_what_it_waits_for(target, reason_of_wait))
        try:
            return await work(admin)
        finally:
            notice.cancel()


def finish_with_records(target: Target, work: Coroutine[Any, Any, T]) -> T:
    """As `finish`, for producers and consumers: where there is no quorum, an error says so besides, since then no other
    leader is elected.
    """

    def reason_of(error: StreamlogError) -> str:
        reason = _no_quorum(target, error)
        return f"{escaped(error.message.rstrip('.'))}. {reason}" if reason else ""

    return finish(work, reason_of=reason_of)


def say_lost_quorum(target: Target, errors: Iterable[StreamlogError | None]) -> None:
    """Of parts of a call: that voters do not answer, where that is the reason of one of them."""
    for error in errors:
        if error is not None and (reason := _no_quorum(target, error)):
            say(f"{reason}.", err=True)
            return


def _no_quorum(target: Target, error: StreamlogError) -> str:
    """Where voters that do not answer are the reason of an error: how many; else empty."""
    return system.run(lost_quorum(target)) if isinstance(error, _OF_THE_QUORUM) else ""


async def _say_what_it_waits_for(target: Target, reason_of_wait: Callable[[], Awaitable[str]]) -> None:
    await asyncio.sleep(_NOTICE_S)
    if reason := await reason_of_wait():
        say(f"{reason}; waiting for it for up to {target.request_timeout_ms / 1000:g} s.", err=True)


async def lost_quorum(target: Target) -> str:
    """How many voters answer, where too few do; empty where enough do, or that is unknown."""
    cluster = await _cluster(target)
    if cluster is None:
        return ""
    voters = voter_addresses(cluster)
    return no_quorum(voters, await asyncio.to_thread(not_answering, voters))


async def _silent_node(target: Target, node_id: int) -> str:
    """That this node does not answer; empty where it does, or that is unknown."""
    cluster = await _cluster(target)
    addresses = [] if cluster is None else [one.address for one in cluster.nodes if one.node_id == node_id]
    silent = await asyncio.to_thread(not_answering, addresses)
    return f"Node {node_id} does not answer at {addresses[0]}" if silent else ""


async def _cluster(target: Target) -> ClusterDescription | None:
    """None where no node describes it soon."""
    if len(await asyncio.to_thread(not_answering, target.servers)) == len(target.servers):
        return None
    try:
        async with open_admin(replace(target, request_timeout_ms=UNREACHABLE_MS)) as admin:
            return await admin.describe_cluster()
    except StreamlogError:
        return None


async def check_reachable(target: Target) -> None:
    """StreamlogError, soon, if no node can be reached: producers and consumers wait longer for one."""
    async with open_admin(target) as admin:
        await admin.describe_node()


async def matched_topics(target: Target, topic: str) -> list[str]:
    """The topic, or those that a regular expression matches. Errors as `matching_topics` and `check_reachable`."""
    async with open_admin(target) as admin:
        await admin.describe_node()
        return await matching_topics(admin, [topic])


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
    """Prints a client's warnings about its settings to standard error, without their place in our code. Each once: a
    command that waits opens a client for each query.
    """
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    context = click.get_current_context(silent=True)
    said: set[str] = set() if context is None else context.meta.setdefault(__name__, set())
    for text in [without_place(str(one.message)) for one in found]:
        if text not in said:
            said.add(text)
            say(f"Warning: {text}", err=True)
