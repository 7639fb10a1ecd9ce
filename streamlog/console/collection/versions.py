"""The release that each node runs, read once for each start of a node.

Only a node itself can report its release, so each is called at its own address. Where that cannot be reached from here
(the console uses one address for all nodes) the version is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import NodeDescription, NodeState
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId

CALL_MS: Final = 3_000
AT_ONCE: Final = 4


class NodeVersions:
    """`settings`: of the admin client. One event loop."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._known: dict[BrokerId, tuple[int, str]] = {}  # the broker epoch of the start; empty: unknown

    def get(self, node: NodeDescription) -> str:
        """Empty: unknown."""
        epoch, version = self._known.get(node.node_id, (-1, ""))
        return version if epoch == node.broker_epoch else ""

    async def learn(self, nodes: Sequence[NodeDescription]) -> None:
        """Of active nodes that have started since. A node that did not answer is not called again until its restart."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def learn_one(node: NodeDescription) -> None:
            async with slots:
                self._known[node.node_id] = (node.broker_epoch, await self._read(node))

        wanted = [node for node in nodes if node.state is NodeState.ACTIVE and not self._is_known(node)]
        await asyncio.gather(*map(learn_one, wanted))

    def _is_known(self, node: NodeDescription) -> bool:
        return self._known.get(node.node_id, (-1, ""))[0] == node.broker_epoch

    async def _read(self, node: NodeDescription) -> str:
        times = {"default.api.timeout.ms": CALL_MS, "request.timeout.ms": CALL_MS}
        settings = {**self._settings, **times, "bootstrap.servers": node.address}
        try:
            async with AsyncAdmin(settings, unreachable_s=CALL_MS / 1000, client_version="streamlog-console") as admin:
                found = await admin.describe_node()
        except StreamlogError:
            return ""
        return found.version if found.node_id == node.node_id else ""
