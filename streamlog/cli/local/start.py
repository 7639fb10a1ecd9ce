"""Starts nodes of a local cluster, and waits until they serve.

A busy machine may take minutes for it. So, without a limit of the user's, the wait goes on while all processes run and
get further: one more node is ready, a node reports others as active than before, or its log ends with a line that it
has not had yet. After STALLED_S without any of it the wait ends, and the nodes are left running. Each NOTICE_S the user
sees what is waited for.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

import click

from streamlog.cli.common.output import say
from streamlog.cli.common.progress import counting
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import NodeState
from streamlog.daemon.local_cluster import LocalCluster, LocalNode
from streamlog.errors import StreamlogError
from streamlog.ports import system

STALLED_S: Final = 120.0
NOTICE_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.03
_NUMBERS: Final = re.compile(r"[0-9.,:]+")  # numbers that differ in equal messages
_ASK_TIMEOUT_MS: Final = 500


class StartWatch:
    """What the nodes that are not ready wait for, and whether they get further. Times are monotonic."""

    def __init__(self, timeout_s: float | None, now: float) -> None:
        self._timeout_s = timeout_s
        self._start = self._noticed = self._progressed = now
        self._seen: set[Hashable] = set()

    def notice(self, waiting: Mapping[LocalNode, str], state: Hashable, now: float) -> str:
        """What to print; empty: nothing. `waiting`: what each of them waits for; a `state` that was not there before is
        progress. ClickException: they have taken too long.
        """
        if state not in self._seen:
            self._seen.add(state)
            self._progressed = now
        missing = ", ".join(str(node.node_id) for node in waiting)
        node, reason = next(iter(waiting.items()))
        late = ""
        if self._timeout_s is not None and now - self._start > self._timeout_s:
            late = f"after {self._timeout_s:g} s"
        elif self._timeout_s is None and now - self._progressed > STALLED_S:
            late = f"and has made no progress for {STALLED_S:g} s"
        if late:
            raise click.ClickException(
                f"node {missing} is not ready {late}: node {node.node_id} {reason}: check its log, {node.log}, or wait "
                "longer with --timeout-s."
            )
        if now - self._noticed < NOTICE_S:
            return ""
        self._noticed = now
        return f"Waiting for node {missing} for {now - self._start:.0f} s: node {node.node_id} {reason}."


def start_nodes(cluster: LocalCluster, nodes: Sequence[LocalNode], timeout_s: float | None = None) -> None:
    """Starts the nodes that are not running, and waits until each of them reports all of them as active. None: for as
    long as they get further.

    StreamlogError; ClickException where a node exits during its start, or takes too long.
    """
    for node in nodes:
        cluster.start(node)
    with counting("starting", len(nodes), "nodes") as advance:
        system.run(_wait_until_ready(nodes, cluster.client_settings, timeout_s, advance))


async def _wait_until_ready(
    nodes: Sequence[LocalNode], settings: Mapping[str, str], timeout_s: float | None, advance: Callable[[int], None]
) -> None:
    """Waits until each of them reports all of them as active."""
    watch = StartWatch(timeout_s, time.monotonic())
    wanted = {node.node_id for node in nodes}
    async with AsyncExitStack() as stack:
        admins = {node: await stack.enter_async_context(_admin_of(node, settings)) for node in nodes}
        waiting = dict.fromkeys(nodes, "")
        while True:
            waiting = {node: reason for node in waiting if (reason := await _waits_for(admins[node], wanted))}
            advance(len(nodes) - len(waiting))
            _check_alive(nodes)
            if not waiting:
                return
            state = (tuple(waiting.items()), tuple(_NUMBERS.sub("", node.last_log_line()) for node in nodes))
            if text := watch.notice(waiting, state, time.monotonic()):
                say(text, err=True)
            await asyncio.sleep(_LOOK_AGAIN_S)


def _check_alive(nodes: Sequence[LocalNode]) -> None:
    for node in nodes:
        if node.process is None:
            words = node.last_log_line() or "its log is empty"
            raise click.ClickException(
                f"node {node.node_id} ({node.address}) exited during its start: {words} (log: {node.log})."
            )


def _admin_of(node: LocalNode, settings: Mapping[str, str]) -> AsyncAdmin:
    address = node.admin_address(secure=bool(settings))
    times = {"default.api.timeout.ms": _ASK_TIMEOUT_MS, "request.timeout.ms": _ASK_TIMEOUT_MS}
    return AsyncAdmin({**settings, "bootstrap.servers": address, **times}, unreachable_s=0.0)


async def _waits_for(admin: AsyncAdmin, wanted: set[int]) -> str:
    """Why the node is not ready yet; empty if it is."""
    try:
        found = await admin.describe_cluster()
    except StreamlogError:
        return "does not answer yet"
    missing = wanted - {one.node_id for one in found.nodes if one.state is NodeState.ACTIVE}
    return f"does not report as active: {', '.join(map(str, sorted(missing)))}" if missing else ""
