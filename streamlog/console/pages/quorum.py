"""/quorum: who votes on the metadata, and how far each voter is."""

from __future__ import annotations

from nicegui import ui

from streamlog.client.admin.values import ClusterDescription
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.collection.voters import VoterPositions
from streamlog.console.widgets.formats import number, page_of
from streamlog.console.widgets.layout import tile
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row

COLUMNS = (
    Column("node", "Node"),
    Column("address", "Address"),
    Column("role", "Role"),
    Column("index", "Match index"),
    Column("lag", "Lag (entries)"),
)


def register(sampler: ClusterSampler, positions: VoterPositions) -> None:
    @view("/quorum")
    async def quorum() -> None:
        await show(sampler, "Metadata quorum", lambda page: _build(page, positions))


async def _build(page: Page, positions: VoterPositions) -> None:
    cluster = await positions.complete(_sampled(page))

    async def read() -> None:
        nonlocal cluster
        cluster = await positions.complete(_sampled(page))

    page.each_sample(read)
    await page.live(lambda: _tiles(cluster))
    page.table(
        COLUMNS, lambda: voter_rows(cluster), key="node", name="voters", to=lambda row: page_of("brokers", row["node"])
    )
    await page.live(lambda: _note(cluster))


def _sampled(page: Page) -> ClusterDescription:
    cluster = page.latest.state.cluster
    assert cluster is not None
    return cluster


def _note(cluster: ClusterDescription) -> None:
    if all(voter.match_index is None for voter in cluster.voters):
        text = "Only the leader knows how far the voters are, and the console cannot reach it."
        ui.label(text).classes("text-sm text-note")


def _tiles(cluster: ClusterDescription) -> None:
    voting = sum(not voter.without_vote for voter in cluster.voters)
    majority = len(cluster.voters) // 2 + 1
    with ui.row().classes("w-full gap-3"):
        leader = "none" if cluster.controller is None else f"node {cluster.controller}"
        tile("Leader, active controller", leader, bad=cluster.controller is None)
        tile("Term", number(cluster.quorum_term))
        tile("Commit index", number(cluster.commit_index))
        tile("metadata.version", number(cluster.metadata_version))
        tile("Voters", number(voting), note=f"{majority} of {len(cluster.voters)} decide", bad=voting < majority)


def voter_rows(cluster: ClusterDescription) -> list[Row]:
    return [
        {
            "node": voter.node_id,
            "address": voter.address,
            "role": "no vote" if voter.without_vote else "leader" if voter.node_id == cluster.controller else "voter",
            "index": "unknown" if voter.match_index is None else voter.match_index,
            "lag": "unknown" if voter.match_index is None else max(0, cluster.commit_index - voter.match_index),
        }
        for voter in cluster.voters
    ]
