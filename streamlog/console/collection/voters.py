"""How far each voter of the metadata quorum is.

Only the quorum's leader knows it, and any node may have answered the sample. Then the leader is called at its own
address, once a sample, and only while a page shows the voters. Where that address cannot be reached from here (the
console uses one address for all nodes), the positions stay unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ClusterDescription
from streamlog.errors import StreamlogError

CALL_MS: Final = 3_000


class VoterPositions:
    """`settings`: of the admin client. One event loop."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._read_of: ClusterDescription | None = None
        self._found: ClusterDescription | None = None

    async def complete(self, sampled: ClusterDescription) -> ClusterDescription:
        """`sampled` itself, or the leader's description of the cluster."""
        if any(voter.match_index is not None for voter in sampled.voters):
            return sampled
        async with self._lock:
            if self._read_of is not sampled:
                self._found = await self._of_leader(sampled)
                self._read_of = sampled
            return self._found or sampled

    async def _of_leader(self, sampled: ClusterDescription) -> ClusterDescription | None:
        address = next((node.address for node in sampled.nodes if node.node_id == sampled.controller), None)
        if address is None:
            return None
        times = {"default.api.timeout.ms": CALL_MS, "request.timeout.ms": CALL_MS}
        settings = {**self._settings, **times, "bootstrap.servers": address}
        try:
            async with AsyncAdmin(settings, unreachable_s=CALL_MS / 1000, client_version="streamlog-console") as admin:
                found = await admin.describe_cluster()
        except StreamlogError:
            return None
        return found if found.cluster_id == sampled.cluster_id else None
