"""Drains: all replicas of a node are moved to others, so that it can be stopped and removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.client.admin.values import DrainProgress, NodeState
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.widgets.actions import confirmed, confirmed_by_name, run
from streamlog.console.widgets.layout import heading
from streamlog.console.widgets.page import Page
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId

COLUMNS: Final = (
    Column("node", "Node"),
    Column("address", "Address"),
    Column("state", "State", is_bad=lambda value: not str(value).startswith(NodeState.ACTIVE.value)),
    Column("replicas", "Replicas"),
    Column("left", "Replicas left"),
    Column("moving", "Moving now"),
)


async def build(page: Page) -> None:
    progress: dict[BrokerId, DrainProgress] = {}

    async def read() -> None:
        cluster = page.latest.state.cluster
        draining = [] if cluster is None else [node.node_id for node in cluster.nodes if node.draining]
        progress.clear()
        for node_id in draining:
            try:
                progress[node_id] = await page.sampler.admin.drain_progress(node_id)
            except StreamlogError:
                continue  # the state is shown; its progress after the next sample

    await read()
    page.each_sample(read)
    heading("Nodes", "Drain a node to move all its replicas to other nodes before it is removed.")
    page.table(
        COLUMNS,
        lambda: node_rows(page, progress),
        key="node",
        name="nodes",
        actions=actions_of if may(Action.NODE_DRAIN) else None,
        on_action=lambda name, row: _act(page, name, int(str(row["node"]))),
    )


def actions_of(row: Row) -> list[str]:
    """`Unregister` needs a role of its own, which the server checks."""
    names = ["Cancel drain" if row["draining"] else "Drain"]
    return names if row["active"] or row["replicas"] else [*names, "Unregister"]


def node_rows(page: Page, progress: Mapping[BrokerId, DrainProgress]) -> list[Row]:
    cluster = page.latest.state.cluster
    rows: list[Row] = []
    for node in () if cluster is None else cluster.nodes:
        known = progress.get(node.node_id)
        rows.append(
            {
                "node": node.node_id,
                "address": node.address,
                "state": f"{node.state.value}, draining" if node.draining else node.state.value,
                "active": node.state is NodeState.ACTIVE,
                "draining": node.draining,
                "replicas": node.replica_count,
                "left": None if known is None else known.remaining_count,
                "moving": None if known is None else known.moving_count,
            }
        )
    return rows


def _act(page: Page, name: str, node_id: int) -> None:
    admin = page.sampler.admin

    async def drain() -> bool:
        return await run(page.sampler, lambda: admin.drain_node(node_id), f"Node {node_id} is being drained.")

    async def cancel() -> bool:
        done = f"The drain of node {node_id} is cancelled."
        return await run(page.sampler, lambda: admin.cancel_drain(node_id), done)

    async def unregister() -> bool:
        done = f"Node {node_id} is unregistered."
        return await run(page.sampler, lambda: admin.unregister_node(node_id), done)

    if name == "Drain":
        consequence = "All its replicas are copied to other nodes, and it is assigned no new ones."
        confirmed_by_name(f"Drain node {node_id}?", consequence, str(node_id), drain)
    elif name == "Cancel drain":
        consequence = "Replicas that have moved stay where they are; the node may be assigned new ones."
        confirmed(f"Cancel the drain of node {node_id}?", consequence, "Cancel the drain", cancel)
    else:
        consequence = "Only for a node that will not return. It must be stopped, and have no replicas."
        confirmed_by_name(f"Unregister node {node_id}?", consequence, str(node_id), unregister)
