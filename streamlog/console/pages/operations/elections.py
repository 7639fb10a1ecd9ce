"""Elections: the preferred replica leads again; or, where no replica may lead, one is chosen and its loss is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nicegui import ui

from streamlog.client.admin.values import Election, ElectionType, TopicDescription
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.widgets.actions import confirmed_by_name, run
from streamlog.console.widgets.layout import heading
from streamlog.console.widgets.page import Page
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import ElectionNotNeededError, StreamlogError
from streamlog.model import PartitionId, TopicPartition

LISTED_MAX: Final = 2_000
PREFERRED_COLUMNS: Final = (
    Column("at", "Partition"),
    Column("leader", "Leader"),
    Column("preferred", "Preferred leader"),
    Column("state", "Preferred leader is"),
)
CANDIDATE_COLUMNS: Final = (
    Column("at", "Partition"),
    Column("node", "Candidate"),
    Column("state", "State"),
    Column("known", "Last in sync"),
    Column("end", "Log end"),
    Column("lost", "Records lost"),
    Column("choice", "Elected now"),
)


def preferred_rows(topics: Sequence[TopicDescription]) -> list[Row]:
    """Partitions that another replica than the first one leads."""
    rows: list[Row] = []
    for topic in topics:
        for one in topic.partitions:
            if one.leader is None or one.leader == one.replicas[0]:
                continue
            preferred = one.replicas[0]
            rows.append(
                {
                    "at": f"{topic.name}-{one.partition}",
                    "topic": topic.name,
                    "partition": one.partition,
                    "leader": one.leader,
                    "preferred": preferred,
                    "state": "in sync" if preferred in one.isr else "not in sync: it cannot lead yet",
                }
            )
    return rows


def candidate_rows(found: Sequence[Election]) -> list[Row]:
    """Each replica that an unclean election could choose."""
    rows: list[Row] = []
    for one in found:
        for candidate in one.candidates:
            unknown = "unknown: start this node first, if possible" if candidate.log_end is None else "unknown"
            rows.append(
                {
                    "key": f"{one.at}:{candidate.node_id}",
                    "at": str(one.at),
                    "topic": one.at.topic,
                    "partition": one.at.partition,
                    "node": candidate.node_id,
                    "state": candidate.state,
                    "known": "yes" if candidate.known else "no",
                    "end": "unknown" if candidate.log_end is None else candidate.log_end,
                    "lost": unknown if candidate.lost_records is None else candidate.lost_records,
                    "choice": "yes" if candidate.would_lead else "",
                }
            )
    return rows


async def build(page: Page) -> None:
    heading("Preferred leaders", "Partitions that another replica leads. A leader that was down gets them back.")

    async def elect_all() -> None:
        async def work() -> None:
            await _elect(page, None)

        await run(page.sampler, work, "Preferred leaders are elected where they are in sync.")

    may_elect = may(Action.ELECTION_PREFERRED)
    if may_elect:
        ui.button("Elect all preferred leaders", icon="restart_alt", on_click=elect_all).props("no-caps")
    page.table(
        PREFERRED_COLUMNS,
        lambda: preferred_rows(page.latest.topics),
        key="at",
        name="partitions not led by their preferred leader",
        actions=(lambda row: ["Elect"] if row["state"] == "in sync" else []) if may_elect else None,
        on_action=lambda _, row: _elect_one(page, row),
        empty="Every partition with a leader is led by its preferred one.",
    )
    await _unclean(page)


async def _elect(page: Page, partitions: Sequence[TopicPartition] | None) -> None:
    """StreamlogError: the first one of a partition."""
    for one in await page.sampler.admin.elect_leaders(partitions):
        if one.error is not None and not isinstance(one.error, ElectionNotNeededError):
            raise one.error


async def _elect_one(page: Page, row: Row) -> None:
    at = _at(row)

    async def work() -> None:
        await _elect(page, [at])

    await run(page.sampler, work, f"Node {row['preferred']} leads {at}.")


async def _unclean(page: Page) -> None:
    found: Sequence[Election] = ()
    problem = ""

    async def read() -> None:
        nonlocal found, problem
        without = [
            TopicPartition(topic.name, one.partition)
            for topic in page.latest.topics
            for one in topic.partitions
            if one.leader is None
        ][:LISTED_MAX]
        try:
            found, problem = await page.sampler.admin.preview_unclean_election(without), ""
        except StreamlogError as error:
            found, problem = (), error.message

    await read()
    page.each_sample(read)
    heading("Partitions without a leader", "Start the nodes of the replicas first. An unclean election loses records.")

    def problems() -> None:
        if problem:
            ui.label(problem).classes("text-bad")

    await page.live(problems)
    page.table(
        CANDIDATE_COLUMNS,
        lambda: candidate_rows(found),
        key="key",
        name="candidates of unclean elections",
        actions=(lambda row: ["Elect uncleanly"] if row["choice"] else []) if may(Action.ELECTION_UNCLEAN) else None,
        on_action=lambda _, row: _elect_unclean(page, row),
        empty="Every partition has a leader.",
    )


def _elect_unclean(page: Page, row: Row) -> None:
    at = _at(row)

    async def elect() -> bool:
        async def work() -> None:
            for one in await page.sampler.admin.elect_leaders([at], kind=ElectionType.UNCLEAN):
                if one.error is not None and not isinstance(one.error, ElectionNotNeededError):
                    raise one.error

        return await run(page.sampler, work, f"{at} has a leader.")

    lost = row["lost"]
    loss = f"{lost} records are lost" if isinstance(lost, int) else "how many records are lost is unknown"
    confirmed_by_name(
        f"Elect node {row['node']} leader of {at} uncleanly?",
        f"Against the longest known log, {loss}; what only a node that has not answered has is lost as well.",
        str(at),
        elect,
    )


def _at(row: Row) -> TopicPartition:
    return TopicPartition(str(row["topic"]), PartitionId(int(str(row["partition"]))))
