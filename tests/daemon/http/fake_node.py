"""A node, as the HTTP listener sees it."""

from __future__ import annotations

from streamlog.metrics import Family


class FakeNode:
    node_id = 7
    cluster_id = "c"
    is_ready = True
    has_lost_vote = False


async def nothing() -> list[Family]:
    return []
