"""/brokers: the nodes, their disks, who votes; /brokers/ID: one node's settings, and where each comes from."""

from __future__ import annotations

from nicegui import ui

from streamlog.client.admin.values import ConfigResource, NodeDescription, NodeState
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.widgets.formats import SOURCES, bytes_text, number, page_of, size
from streamlog.console.widgets.layout import heading, tile
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import StreamlogError

ONLINE = "online"
NODE_COLUMNS = (
    Column("node", "Node"),
    Column("address", "Address"),
    Column("rack", "Rack"),
    Column("state", "State", is_bad=lambda value: not str(value).startswith(NodeState.ACTIVE.value)),
    Column("role", "Quorum"),
    Column("version", "Version"),
    Column("leaders", "Leaders"),
    Column("replicas", "Replicas"),
    Column("rate", "Written/s (led)"),
    Column("bytes", "Log growth/s (led)", bytes_text),
    Column("used", "Logs", bytes_text),
)
DISK_COLUMNS = (
    Column("node", "Node"),
    Column("path", "Directory"),
    Column("state", "State", is_bad=lambda value: value != ONLINE),
    Column("replicas", "Replicas"),
    Column("used", "Logs", bytes_text),
    Column("free", "Free", bytes_text),
    Column("total", "File system", bytes_text),
    Column("damaged", "Corrupt ranges", is_bad=lambda value: value != 0),
)
SETTING_COLUMNS = (
    Column("name", "Setting"),
    Column("value", "Value"),
    Column("source", "Source"),
    Column("what", "Meaning"),
)


def register(sampler: ClusterSampler) -> None:
    @view("/brokers")
    async def brokers() -> None:
        await show(sampler, "Brokers", _all)

    @view("/brokers/{node_id}")
    async def broker(node_id: int) -> None:
        await show(sampler, f"Broker {node_id}", lambda page: _one(page, node_id))


async def _all(page: Page) -> None:
    page.table(
        NODE_COLUMNS,
        lambda: node_rows(page),
        key="node",
        name="nodes",
        to=lambda row: page_of("brokers", row["node"]),
        addressed=True,
    )
    heading("Log directories")
    page.table(DISK_COLUMNS, lambda: disk_rows(page), key="key", name="log directories")


async def _one(page: Page, node_id: int) -> None:
    def known() -> NodeDescription | None:
        cluster = page.latest.state.cluster
        return next((node for node in cluster.nodes if node.node_id == node_id), None) if cluster is not None else None

    if known() is None:
        ui.label(f"The cluster has no node {node_id}.").classes("text-bad")
        return
    await page.live(lambda: _tiles(page, known()))
    heading("Log directories")
    page.table(DISK_COLUMNS, lambda: disk_rows(page, node_id), key="key", name="log directories")
    heading("Settings")
    try:
        [found] = await page.sampler.admin.describe_configs([ConfigResource.broker(node_id)])
        if found.error is not None:
            raise found.error
    except StreamlogError as error:
        ui.label(error.message).classes("text-bad")
        return
    rows: list[Row] = [
        {
            "name": entry.name,
            "value": "(hidden)" if entry.sensitive else entry.value or "",
            "source": SOURCES.get(entry.source, entry.source.value),
            "what": entry.documentation,
        }
        for entry in found.entries
    ]
    page.table(SETTING_COLUMNS, lambda: rows, key="name", name="settings", addressed=True, wide=True)


def _tiles(page: Page, node: NodeDescription | None) -> None:
    if node is None:
        ui.label("The node is not registered any more.").classes("text-bad")
        return
    cluster = page.latest.state.cluster
    assert cluster is not None
    figures = page.sampler.figures.nodes.get(node.node_id)
    with ui.row().classes("w-full gap-3"):
        tile("State", state_of(node), bad=node.state is not NodeState.ACTIVE, note=node.address)
        tile("Quorum", _role(page, node) or "no voter", note=f"rack {node.rack}" if node.rack else "no rack")
        tile("Version", page.sampler.versions.get(node) or "unknown")
        tile("Leaders", number(node.leader_count), note=f"of {number(node.replica_count)} replicas")
        if figures is not None:
            note = f"{size(figures.bytes_per_s)}/s, partitions it leads"
            tile("Written", f"{number(figures.records_per_s)}/s", note=note)
            tile("Logs on disk", size(figures.log_bytes))
        if node.clock_skew_ms is not None:
            tile("Clock", f"{node.clock_skew_ms:+,} ms", note="against most nodes")


def state_of(node: NodeDescription) -> str:
    return f"{node.state.value}, draining" if node.draining else node.state.value


def _role(page: Page, node: NodeDescription) -> str:
    cluster = page.latest.state.cluster
    assert cluster is not None
    if node.node_id == cluster.controller:
        return "controller"
    return "voter" if any(voter.node_id == node.node_id for voter in cluster.voters) else ""


def node_rows(page: Page) -> list[Row]:
    cluster = page.latest.state.cluster
    assert cluster is not None
    found = page.sampler.figures.nodes
    rows: list[Row] = []
    for node in cluster.nodes:
        figures = found.get(node.node_id)
        rows.append(
            {
                "node": node.node_id,
                "address": node.address,
                "rack": node.rack,
                "state": state_of(node),
                "role": _role(page, node),
                "version": page.sampler.versions.get(node),
                "leaders": node.leader_count,
                "replicas": node.replica_count,
                "rate": None if figures is None else round(figures.records_per_s, 1),
                "bytes": None if figures is None else round(figures.bytes_per_s),
                "used": None if figures is None else figures.log_bytes,
            }
        )
    return rows


def disk_rows(page: Page, node_id: int | None = None) -> list[Row]:
    return [
        {
            "key": f"{node.node_id}:{directory.path}",
            "node": node.node_id,
            "path": directory.path,
            "state": ONLINE if directory.error is None else directory.error.message,
            "replicas": len(directory.replicas),
            "used": sum(replica.size_bytes for replica in directory.replicas),
            "free": directory.usable_bytes,
            "total": directory.total_bytes,
            "damaged": sum(replica.damaged_ranges for replica in directory.replicas),
        }
        for node in page.latest.state.log_dirs
        if node_id is None or node.node_id == node_id
        for directory in node.log_dirs
    ]
