"""/quorum: who votes on the metadata, and how far each voter is."""

from __future__ import annotations

from nicegui import ui

from streamlog.console.layout import frame, heading, number, table, tile, waiting
from streamlog.console.sampler import ClusterSampler


def register(sampler: ClusterSampler) -> None:
    @ui.page("/quorum")
    def quorum() -> None:
        @ui.refreshable
        def body() -> None:
            if not waiting(sampler):
                _quorum(sampler)

        with frame(sampler, "Quorum", body.refresh):
            heading("Metadata quorum")
            body()


def _quorum(sampler: ClusterSampler) -> None:
    assert sampler.latest is not None
    cluster = sampler.latest.state.cluster
    assert cluster is not None
    with ui.row().classes("w-full gap-3"):
        leader = "none" if cluster.controller is None else f"node {cluster.controller}"
        tile("Leader, active controller", leader, bad=cluster.controller is None)
        tile("Term", number(cluster.quorum_term))
        tile("Commit index", number(cluster.commit_index))
        tile("metadata.version", number(cluster.metadata_version))
        majority = len(cluster.voters) // 2 + 1
        tile("Voters", number(len(cluster.voters)), note=f"{majority} decide")
    rows = [
        {
            "node": voter.node_id,
            "address": voter.address,
            "role": "leader" if voter.node_id == cluster.controller else "voter",
            "index": "unknown" if voter.match_index is None else voter.match_index,
            "lag": "unknown" if voter.match_index is None else max(0, cluster.commit_index - voter.match_index),
        }
        for voter in cluster.voters
    ]
    columns = (
        ("node", "Node"),
        ("address", "Address"),
        ("role", "Role"),
        ("index", "Holds up to"),
        ("lag", "Entries behind"),
    )
    table(columns, rows, key="node")
    ui.label("The leader alone knows how far the others are; another node shows them as unknown.").classes(
        "text-sm opacity-80"
    )
