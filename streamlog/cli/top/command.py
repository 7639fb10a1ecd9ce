"""`streamlogctl top`: live rates, lags and nodes, until Ctrl-C.

On a terminal each frame replaces the one before; in a pipe frames follow each other, as tab-separated text or as one
JSON document a line. A cluster that does not answer is a frame as well, and the next sample tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import click
import msgspec

from streamlog.cli.common.failures import Interrupted
from streamlog.cli.common.output import Output, output_option, say
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.top.frame import Frame, frame_of
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.console.collection.sample import Sample, sample
from streamlog.printable import escaped_json

Show = Callable[[Frame], object]

INTERVAL_S: Final = 2.0


@click.command
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.5, 3600),
    default=INTERVAL_S,
    show_default=True,
    help="Seconds between two samples.",
)
@click.option("--once", is_flag=True, help="One frame, from two samples, and exit.")
@output_option
@cluster_options
def top(target: Target, output: Output, interval_s: float, *, once: bool) -> None:
    """Show rates, lags and nodes live, until Ctrl-C. Bytes are those of leaders' logs; * is the controller.

    \b
    Examples:
      streamlogctl top
      streamlogctl top --once --output json | jq '.groups[] | select(.lag > 1000)'
      streamlogctl top --interval 10 --output json >> rates.jsonl
    """
    if once:
        with_admin(target, lambda admin: _once(admin, interval_s, _printer(output)))
        return
    with contextlib.suppress(Interrupted):
        if output is Output.TABLE and sys.stdout.isatty():
            _live(target, interval_s)
        else:
            with_admin(target, lambda admin: _repeat(admin, interval_s, _printer(output)))


def _printer(output: Output) -> Show:
    if output is Output.JSON:
        return lambda frame: say(escaped_json(msgspec.json.encode(frame).decode()))
    if output is Output.TABLE:
        return _print_tables
    from streamlog.cli.top.screen import text

    return lambda frame: say(text(frame))


def _print_tables(frame: Frame) -> None:
    from rich.console import Console

    from streamlog.cli.top.screen import screen

    console = Console()
    console.print(screen(frame, console.width, 10**6))


def _live(target: Target, interval_s: float) -> None:
    # Imported here: other outputs do without.
    from rich.console import Console
    from rich.live import Live

    from streamlog.cli.top.screen import screen

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(frame: Frame) -> None:
            live.update(screen(frame, *console.size), refresh=True)

        with_admin(target, lambda admin: _repeat(admin, interval_s, show))


async def _once(admin: AsyncAdmin, interval_s: float, show: Show) -> None:
    frames = _frames(admin, interval_s)
    first = await anext(frames)
    if first.cluster_id is not None:
        first = await anext(frames)
    if first.cluster_id is None:
        await admin.describe_cluster()  # raises why it does not answer
    show(first)


async def _repeat(admin: AsyncAdmin, interval_s: float, show: Show) -> None:
    async for frame in _frames(admin, interval_s):
        show(frame)


async def _frames(admin: AsyncAdmin, interval_s: float) -> AsyncIterator[Frame]:
    before: Sample | None = None
    while True:
        due_s = time.monotonic() + interval_s
        now = await sample(admin, time.time(), time.monotonic(), before)
        yield frame_of(before, now)
        before = now
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
