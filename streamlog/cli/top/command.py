"""`streamlogctl top`: live rates, lags and nodes, until Ctrl-C.

On a terminal each frame replaces the one before; in a pipe frames follow each other, as tab-separated text or as one
JSON document a line. A cluster that does not answer is a frame as well, and the next sample tries again.

Without a metadata quorum each answer of a node takes seconds, and some take the whole timeout: what is known by then is
shown, and what is missing is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import click
import msgspec

from streamlog.cli.common.failures import Interrupted
from streamlog.cli.common.output import Output, output_option, say
from streamlog.cli.common.session import lost_quorum, with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.top.frame import Frame, frame_of
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.console.collection.sample import Sample, sample
from streamlog.errors import RequestTimedOutError, StreamlogError
from streamlog.monitor import ClusterState
from streamlog.printable import escaped_json

Show = Callable[[Frame], object]

INTERVAL_S: Final = 2.0
LOOK_S: Final = 2.0
"""A sample that takes longer may do so for the lack of a quorum."""
LOST_S: Final = 5.0
"""How much longer it may take once there is none."""


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
        with_admin(target, lambda admin: _once(admin, target, interval_s, _printer(output)), needs_quorum=False)
        return
    with contextlib.suppress(Interrupted), _until_closed():
        if output is Output.TABLE and sys.stdout.isatty():
            _live(target, interval_s)
        else:
            show = _printer(output)
            with_admin(target, lambda admin: _repeat(admin, target, interval_s, show), needs_quorum=False)


@contextlib.contextmanager
def _until_closed() -> Iterator[None]:
    """A closed pipe is an end that was wanted: frames have no other."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left fails again at the end


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
    with console.capture() as captured:  # rich itself would end the process where the pipe is closed
        console.print(screen(frame, console.width, 10**6))
    click.echo(captured.get(), nl=False)


def _live(target: Target, interval_s: float) -> None:
    # Imported here: other outputs do without.
    from rich.console import Console
    from rich.live import Live

    from streamlog.cli.top.screen import screen

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:

        def show(frame: Frame) -> None:
            live.update(screen(frame, *console.size), refresh=True)

        with_admin(target, lambda admin: _repeat(admin, target, interval_s, show, at_once=True), needs_quorum=False)


async def _once(admin: AsyncAdmin, target: Target, interval_s: float, show: Show) -> None:
    frames = _frames(admin, target, interval_s)
    first = await anext(frames)
    if first.cluster_id is not None and first.has_quorum:
        first = await anext(frames)
    if first.cluster_id is None:
        await admin.describe_cluster()  # raises why it does not answer
    show(first)


async def _repeat(admin: AsyncAdmin, target: Target, interval_s: float, show: Show, *, at_once: bool = False) -> None:
    async for frame in _frames(admin, target, interval_s, at_once=at_once):
        show(frame)


async def _frames(
    admin: AsyncAdmin, target: Target, interval_s: float, *, at_once: bool = False
) -> AsyncIterator[Frame]:
    """`at_once`: the nodes are a frame of their own where the first whole one takes long."""
    before: Sample | None = None
    while True:
        due_s = time.monotonic() + interval_s
        reading = asyncio.create_task(sample(admin, time.time(), time.monotonic(), before))
        described, reason = None, ""
        try:
            await asyncio.wait({reading}, timeout=LOOK_S)
            if not reading.done():
                described, reason = await asyncio.gather(_described(admin), lost_quorum(target))
            if reason and not reading.done():
                if at_once and before is None and described is not None:
                    yield frame_of(None, described, reason)
                await asyncio.wait({reading}, timeout=LOST_S)
            now = described if reason and described is not None and not reading.done() else await reading
        finally:
            reading.cancel()
        yield frame_of(before, now, reason)
        if now is not described:
            before = now
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def _described(admin: AsyncAdmin) -> Sample | None:
    """The nodes alone; None: they are not described."""
    try:
        cluster = await admin.describe_cluster()
    except StreamlogError:
        return None
    missing = {what: RequestTimedOutError("there is no quorum") for what in ("topics", "sizes", "groups")}
    state = ClusterState(cluster=cluster, missing=missing)
    return Sample(at_s=time.time(), monotonic_s=time.monotonic(), state=state)
