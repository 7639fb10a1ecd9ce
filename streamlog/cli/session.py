"""A command's connection to the cluster: made for one run, closed at its end, errors told as sentences."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from streamlog.cli.failures import failed
from streamlog.cli.target import UNREACHABLE_MS, Target
from streamlog.client.admin import AsyncAdmin
from streamlog.errors import StreamlogError
from streamlog.ports import system

T = TypeVar("T")


def with_admin(target: Target, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """What `work` gives. ClickException for its errors."""

    async def run() -> T:
        timeout_ms = target.request_timeout_ms
        settings = target.settings | {"default.api.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
        with telling_warnings():
            admin = AsyncAdmin(settings, unreachable_s=UNREACHABLE_MS / 1_000, client_version="streamlogctl")
        async with admin:
            return await work(admin)

    try:
        return system.run(run())
    except StreamlogError as error:
        raise failed(error) from None


@contextmanager
def telling_warnings() -> Iterator[None]:
    """What is odd about a client's settings goes to standard error, without the place in our code."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    for one in found:
        click.echo(f"Warning: {one.message}", err=True)
