"""/transactions: transactional ids and their states, what is open in partitions, what hangs; abort.

A transaction hangs where a partition has it open and no coordinator will end it: it holds back the last stable offset,
and so all read_committed consumers of that partition.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from nicegui import ui

from streamlog.client.admin.transaction_values import (
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.widgets.actions import confirmed, run
from streamlog.console.widgets.formats import duration, moment, number
from streamlog.console.widgets.layout import heading, tile
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition

DESCRIBED_MAX: Final = 200
"""Open transactions whose start and partitions are read; of more, the page has the id and the state."""
PARTITIONS_SHOWN: Final = 10
ID_COLUMNS: Final = (
    Column("id", "Transactional id"),
    Column("state", "State"),
    Column("producer", "Producer id"),
    Column("coordinator", "Coordinator"),
    Column("age", "Open for", lambda value: duration(value) if isinstance(value, int | float) else ""),
    Column("timeout", "Timeout", lambda value: duration(value / 1000) if isinstance(value, int) else ""),
    Column("partitions", "Partitions"),
)
OPEN_COLUMNS: Final = (
    Column("at", "Partition"),
    Column("hanging", "Hanging"),
    Column("producer", "Producer id"),
    Column("epoch", "Epoch"),
    Column("first", "First offset"),
    Column("since", "Since"),
    Column("age", "Open for", lambda value: duration(value) if isinstance(value, int | float) else ""),
    Column("id", "Transactional id"),
)


class _Found:
    """What the page shows, read again after each sample."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.listed: Sequence[TransactionListing] = ()
        self.described: Mapping[str, TransactionDescription] = {}
        self.open: Sequence[OpenTransaction] = ()
        self.problems: list[str] = []

    async def read(self) -> None:
        admin = self._page.sampler.admin
        problems: list[str] = []
        try:
            listed = await admin.list_transactions()
            self.listed = listed.transactions
            problems += [f"Node {node} did not answer: {error.message}" for node, error in listed.errors.items()]
            ongoing = [one.transactional_id for one in self.listed if one.state is TransactionState.ONGOING]
            described = await admin.describe_transactions(ongoing[:DESCRIBED_MAX]) if ongoing else ()
            self.described = {one.transactional_id: one for one in described if one.error is None}
        except StreamlogError as error:
            problems.append(error.message)
        try:
            found = await admin.find_hanging_transactions(open_for_ms=0, all_open=True)
            self.open = found.transactions
            problems += [f"{_who(node)}: {error.message}" for node, error in found.errors.items()]
        except StreamlogError as error:
            problems.append(error.message)
        self.problems = list(dict.fromkeys(problems))


def _who(node: int) -> str:
    """-1: a partition of `__transaction_state` has no leader."""
    return "No leader" if node < 0 else f"Node {node}"


def register(sampler: ClusterSampler) -> None:
    @view("/transactions")
    async def transactions() -> None:
        await show(sampler, "Transactions", _build)


async def _build(page: Page) -> None:
    found = _Found(page)
    await found.read()
    page.each_sample(found.read)
    may_end = may(Action.TRANSACTION_END)
    await page.live(lambda: _tiles(found))
    heading("Open in partitions")
    page.table(
        OPEN_COLUMNS,
        lambda: open_rows(found.open, time.time()),
        key="key",
        name="open transactions",
        actions=(lambda row: ["Abort"] if row["hanging"] or row["id"] else []) if may_end else None,
        on_action=lambda _, row: _abort_open(page, found, row),
        empty="No partition has an open transaction.",
    )
    heading("Transactional ids")
    page.table(
        ID_COLUMNS,
        lambda: id_rows(found.listed, found.described, time.time()),
        key="id",
        name="transactional ids",
        addressed=True,
        actions=(lambda row: ["Abort"] if row["state"] == "ongoing" else []) if may_end else None,
        on_action=lambda _, row: _abort(page, found, str(row["id"])),
        empty="There are no transactional ids.",
    )


def _tiles(found: _Found) -> None:
    for problem in found.problems:
        ui.label(problem).classes("text-bad")
    hanging = sum(one.hanging for one in found.open)
    oldest_ms = min((one.since_ms for one in found.open), default=None)
    with ui.row().classes("w-full gap-3"):
        tile("Transactional ids", number(len(found.listed)))
        tile("Open", number(sum(one.state is TransactionState.ONGOING for one in found.listed)))
        tile("Hanging", number(hanging), bad=hanging > 0, note="in partitions")
        tile("Oldest open", "none" if oldest_ms is None else duration(time.time() - oldest_ms / 1000))


def id_rows(
    listed: Sequence[TransactionListing], described: Mapping[str, TransactionDescription], now_s: float
) -> list[Row]:
    rows: list[Row] = []
    for one in listed:
        known = described.get(one.transactional_id)
        started_ms = None if known is None else known.started_ms
        partitions = () if known is None else known.partitions
        more = f" and {len(partitions) - PARTITIONS_SHOWN} more" if len(partitions) > PARTITIONS_SHOWN else ""
        rows.append(
            {
                "id": one.transactional_id,
                "state": one.state.value,
                "producer": one.producer_id,
                "coordinator": one.coordinator,
                "age": None if started_ms is None else max(0.0, now_s - started_ms / 1000),
                "timeout": None if known is None else known.timeout_ms,
                "partitions": ", ".join(map(str, partitions[:PARTITIONS_SHOWN])) + more,
            }
        )
    return rows


def open_rows(found: Sequence[OpenTransaction], now_s: float) -> list[Row]:
    return [
        {
            "key": f"{one.partition}:{one.producer_id}",
            "at": str(one.partition),
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "hanging": "hanging" if one.hanging else "",
            "producer": one.producer_id,
            "epoch": one.producer_epoch,
            "first": one.first_offset,
            "since": moment(one.since_ms),
            "age": max(0.0, now_s - one.since_ms / 1000),
            "id": one.transactional_id or "",
        }
        for one in found
    ]


def _abort(page: Page, found: _Found, transactional_id: str) -> None:
    async def abort() -> bool:
        async def work() -> None:
            await page.sampler.admin.abort_transaction(transactional_id)
            await found.read()

        return await run(page.sampler, work, f"The transaction of {transactional_id} is aborted.")

    confirmed(
        f"Abort the open transaction of {transactional_id}?",
        "Its records become invisible to read_committed consumers, and its producer is fenced: it must start again.",
        "Abort the transaction",
        abort,
    )


def _abort_open(page: Page, found: _Found, row: Row) -> None:
    if not row["hanging"]:
        _abort(page, found, str(row["id"]))
        return
    at = TopicPartition(str(row["topic"]), PartitionId(int(str(row["partition"]))))
    producer_id = int(str(row["producer"]))

    async def abort() -> bool:
        async def work() -> None:
            await page.sampler.admin.abort_hanging_transaction(at, producer_id)
            await found.read()

        return await run(page.sampler, work, f"The transaction of producer {producer_id} in {at} is aborted.")

    confirmed(
        f"Abort the hanging transaction of producer {producer_id} in {at}?",
        "No coordinator will end it. Its records become invisible to read_committed consumers, which then continue.",
        "Abort the transaction",
        abort,
    )
