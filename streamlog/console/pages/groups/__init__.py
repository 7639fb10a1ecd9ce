"""/groups: all consumer groups and their lag; /groups/NAME: one of them (`one`), its offsets reset (`reset`)."""

from __future__ import annotations

from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.pages.groups.one import build
from streamlog.console.widgets.formats import catch_up, number_text, page_of
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row

COLUMNS = (
    Column("group", "Group"),
    Column("lag", "Lag (records)", number_text),
    Column("behind", "Caught up in"),
    Column("state", "State"),
    Column("members", "Members"),
    Column("coordinator", "Coordinator"),
    Column("topics", "Topics"),
    Column("rate", "Committed/s"),
)
TOPICS_SHOWN = 5


def register(sampler: ClusterSampler) -> None:
    @view("/groups")
    async def groups() -> None:
        await show(sampler, "Consumer groups", _list)

    @view("/groups/{name:path}")
    async def group(name: str) -> None:
        await show(sampler, f"Group {name}", lambda page: build(page, name))


def _list(page: Page) -> None:
    page.table(
        COLUMNS,
        lambda: group_rows(page),
        key="group",
        name="groups",
        to=lambda row: page_of("groups", row["group"]),
        empty="There are no groups yet.",
        addressed=True,
    )


def group_rows(page: Page) -> list[Row]:
    figures = page.sampler.figures.groups
    rows: list[Row] = []
    for one in page.latest.groups:
        found = figures.get(one.group)
        topics = [] if found is None else list(found.lag)
        more = f" and {len(topics) - TOPICS_SHOWN} more" if len(topics) > TOPICS_SHOWN else ""
        rows.append(
            {
                "group": one.group,
                "state": one.state.value,
                "members": one.member_count,
                "coordinator": one.coordinator,
                "topics": ", ".join(topics[:TOPICS_SHOWN]) + more,
                "lag": None if found is None else found.total_lag,
                "rate": None if found is None else round(found.committed_per_s, 1),
                "behind": "unknown" if found is None else catch_up(found),
            }
        )
    return rows
