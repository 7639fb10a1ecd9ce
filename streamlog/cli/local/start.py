"""Starts nodes of a local cluster, and waits until they serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

import click

from streamlog.cli.common.progress import counting
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import NodeState
from streamlog.daemon.local_cluster import LocalCluster, LocalNode
from streamlog.errors import StreamlogError
from streamlog.ports import system

_LOOK_AGAIN_S: Final = 0.03
_ASK_TIMEOUT_MS: Final = 500


def start_nodes(cluster: LocalCluster, nodes: Sequence[LocalNode], timeout_s: float) -> None:
    """Starts the nodes that are not running, and waits until each of them reports all of them as active.

    StreamlogError; ClickException where a node exits during its start, or takes too long.
    """
    for node in nodes:
        cluster.start(node)
    with counting("starting", len(nodes), "nodes") as advance:
        system.run(_wait_until_ready(nodes, cluster.client_settings, timeout_s, advance))


async def _wait_until_ready(
    nodes: Sequence[LocalNode], settings: Mapping[str, str], timeout_s: float, advance: Callable[[int], None]
) -> None:
    """Waits until each of them reports all of them as active."""
    deadline = time.monotonic() + timeout_s
    wanted = {node.node_id for node in nodes}
    async with AsyncExitStack() as stack:
        waiting = {node: await stack.enter_async_context(_admin_of(node, settings)) for node in nodes}
        while waiting:
            for node in [one for one, admin in waiting.items() if await _is_ready(admin, wanted)]:
                del waiting[node]
                advance(len(nodes) - len(waiting))
            _check_alive(nodes)
            if waiting and time.monotonic() > deadline:
                missing = ", ".join(str(node.node_id) for node in waiting)
                raise click.ClickException(
                    f"node {missing} is not ready after {timeout_s:g} s: check its log, "
                    f"{next(iter(waiting)).log}, or wait longer with --timeout-s."
                )
            await asyncio.sleep(_LOOK_AGAIN_S)


def _check_alive(nodes: Sequence[LocalNode]) -> None:
    for node in nodes:
        if node.process is None:
            words = node.last_log_line() or "its log is empty"
            raise click.ClickException(
                f"node {node.node_id} ({node.address}) exited during its start: {words} (log: {node.log})."
            )


def _admin_of(node: LocalNode, settings: Mapping[str, str]) -> AsyncAdmin:
    times = {"default.api.timeout.ms": _ASK_TIMEOUT_MS, "request.timeout.ms": _ASK_TIMEOUT_MS}
    return AsyncAdmin({**settings, "bootstrap.servers": node.address, **times}, unreachable_s=0.0)


async def _is_ready(admin: AsyncAdmin, wanted: set[int]) -> bool:
    try:
        found = await admin.describe_cluster()
    except StreamlogError:
        return False  # not yet
    return wanted <= {one.node_id for one in found.nodes if one.state is NodeState.ACTIVE}
