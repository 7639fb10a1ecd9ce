"""/brokers: the nodes, their disks; /brokers/ID: one node's settings, and where each comes from."""

from __future__ import annotations

from nicegui import ui

from streamlog.client.admin.values import ConfigResource
from streamlog.console.layout import frame, heading, size, table, waiting
from streamlog.console.sampler import ClusterSampler
from streamlog.errors import StreamlogError


def register(sampler: ClusterSampler) -> None:
    @ui.page("/brokers")
    def brokers() -> None:
        @ui.refreshable
        def body() -> None:
            if not waiting(sampler):
                _nodes(sampler)
                _disks(sampler)

        with frame(sampler, "Brokers", body.refresh):
            body()

    @ui.page("/brokers/{node_id}")
    async def broker(node_id: int) -> None:
        with frame(sampler, f"Broker {node_id}", lambda: None):
            heading(f"Settings of node {node_id}")
            try:
                [found] = await sampler.admin.describe_configs([ConfigResource.broker(node_id)])
                if found.error is not None:
                    raise found.error
            except StreamlogError as error:
                ui.label(error.message).classes("text-negative")
                return
            rows = [
                {
                    "name": entry.name,
                    "value": "(hidden)" if entry.sensitive else entry.value or "",
                    "source": entry.source.value,
                    "what": entry.documentation,
                }
                for entry in found.entries
            ]
            columns = (("name", "Setting"), ("value", "Value"), ("source", "From"), ("what", "What it does"))
            table(columns, rows, key="name").props("wrap-cells")


def _nodes(sampler: ClusterSampler) -> None:
    assert sampler.latest is not None
    cluster = sampler.latest.state.cluster
    assert cluster is not None
    heading("Nodes")
    voters = {voter.node_id for voter in cluster.voters}
    rows = [
        {
            "node": node.node_id,
            "address": node.address,
            "rack": node.rack,
            "state": f"{node.state.value}{', draining' if node.draining else ''}",
            "role": "controller" if node.node_id == cluster.controller else "voter" if node.node_id in voters else "",
            "leaders": node.leader_count,
            "replicas": node.replica_count,
        }
        for node in cluster.nodes
    ]
    columns = (
        ("node", "Node"),
        ("address", "Address"),
        ("rack", "Rack"),
        ("state", "State"),
        ("role", "Quorum"),
        ("leaders", "Leaders"),
        ("replicas", "Replicas"),
    )
    table(columns, rows, key="node", to=lambda row: f"/brokers/{row['node']}")


def _disks(sampler: ClusterSampler) -> None:
    assert sampler.latest is not None
    heading("Log directories")
    rows = [
        {
            "key": f"{node.node_id}:{directory.path}",
            "node": node.node_id,
            "path": directory.path,
            "state": "online" if directory.error is None else directory.error.message,
            "replicas": len(directory.replicas),
            "used": size(sum(replica.size_bytes for replica in directory.replicas)),
            "free": "" if directory.usable_bytes is None else size(directory.usable_bytes),
            "total": "" if directory.total_bytes is None else size(directory.total_bytes),
        }
        for node in sampler.latest.state.log_dirs
        for directory in node.log_dirs
    ]
    columns = (
        ("node", "Node"),
        ("path", "Directory"),
        ("state", "State"),
        ("replicas", "Replicas"),
        ("used", "Logs"),
        ("free", "Free"),
        ("total", "File system"),
    )
    table(columns, rows, key="key")
