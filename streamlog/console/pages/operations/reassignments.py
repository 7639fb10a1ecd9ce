"""Moves of replicas in progress: how far each new replica is, when it will have caught up; cancel; start one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from nicegui import ui

from streamlog.client.admin.values import PartitionDescription, Reassignment
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.collection.sample import Sample
from streamlog.console.widgets.actions import confirmed, refused, run
from streamlog.console.widgets.formats import bytes_text, duration
from streamlog.console.widgets.layout import heading
from streamlog.console.widgets.page import Page
from streamlog.console.widgets.table_view import Column, Row
from streamlog.model import BrokerId, PartitionId, TopicPartition

COLUMNS: Final = (
    Column("at", "Partition"),
    Column("replicas", "Replicas"),
    Column("adding", "Adding"),
    Column("removing", "Removing"),
    Column("isr", "In sync"),
    Column("progress", "Progress", lambda value: f"{value:.0%}" if isinstance(value, float) else "unknown"),
    Column("left", "Left to copy", bytes_text),
    Column("eta", "Done in"),
)
_PARTITION: Final = re.compile(r"(.+)-([0-9]{1,9})", re.ASCII)
_NODES: Final = re.compile(r"[0-9]{1,9}(\s*,\s*[0-9]{1,9})*", re.ASCII)


class CopyProgress(Struct, frozen=True):
    """Of the new replicas of one partition together."""

    done: float | None  # 0..1; None: a size is unknown
    left_bytes: int
    seconds: float | None  # None: nothing was copied since the earlier sample


Sizes = Mapping[tuple[BrokerId, TopicPartition], int]


def replica_sizes(sample: Sample | None, wanted: set[TopicPartition]) -> Sizes:
    return {
        (node.node_id, replica.at): replica.size_bytes
        for node in (() if sample is None else sample.state.log_dirs)
        for directory in node.log_dirs
        for replica in directory.replicas
        if replica.at in wanted
    }


def copy_progress(
    at: TopicPartition, partition: PartitionDescription, before: Sizes, now: Sizes, passed_s: float
) -> CopyProgress:
    """By bytes on disk against the leader's; the rate is that of the time between the samples. Pure."""
    total = None if partition.leader is None else now.get((partition.leader, at))
    new = [node for node in partition.adding if node not in partition.isr]
    if not new:
        return CopyProgress(1.0, 0, 0.0)
    if total is None:
        return CopyProgress(None, 0, None)
    have = {node: min(total, now.get((node, at), 0)) for node in new}
    left = sum(total - size for size in have.values())
    copied = sum(max(0, have[node] - before.get((node, at), 0)) for node in new)
    done = 1.0 if total == 0 else sum(have.values()) / (total * len(new))
    if left == 0:
        return CopyProgress(done, 0, 0.0)
    return CopyProgress(done, left, left * passed_s / copied if copied > 0 and passed_s > 0 else None)


def move_rows(sample: Sample, earlier: Sample | None) -> list[Row]:
    moving = {
        TopicPartition(topic.name, one.partition): one
        for topic in sample.topics
        for one in topic.partitions
        if one.adding or one.removing
    }
    before, now = replica_sizes(earlier, set(moving)), replica_sizes(sample, set(moving))
    passed_s = 0.0 if earlier is None else sample.monotonic_s - earlier.monotonic_s
    rows: list[Row] = []
    for at, one in sorted(moving.items()):
        progress = copy_progress(at, one, before, now, passed_s)
        rows.append(
            {
                "at": str(at),
                "topic": at.topic,
                "partition": at.partition,
                "replicas": _listed(one.replicas),
                "adding": _listed(one.adding),
                "removing": _listed(one.removing),
                "isr": _listed(one.isr),
                "progress": progress.done,
                "left": progress.left_bytes,
                "eta": "unknown" if progress.seconds is None else duration(progress.seconds),
            }
        )
    return rows


def parsed_move(partition: str, replicas: str) -> Reassignment:
    """What a user typed: orders-0 and 1,2,3. ValueError."""
    found = _PARTITION.fullmatch(partition.strip())
    if found is None:
        raise ValueError(f"{partition!r} is not a partition: give one such as orders-0")
    if _NODES.fullmatch(replicas.strip()) is None:
        raise ValueError(f"{replicas!r} are not nodes: give their ids, the preferred leader first, such as 1,2,3")
    at = TopicPartition(found[1], PartitionId(int(found[2])))
    return Reassignment(at=at, replicas=[int(node) for node in replicas.split(",")])


async def build(page: Page) -> None:
    heading("Reassignments", "Replicas that move. A partition stays available while it is copied.")
    changeable = may(Action.REASSIGNMENT)
    if changeable:
        ui.button("Move a partition", icon="swap_horiz", on_click=lambda: _new(page)).props("no-caps")
    page.table(
        COLUMNS,
        lambda: move_rows(page.latest, page.sampler.earlier),
        key="at",
        name="reassignments in progress",
        actions=(lambda _: ["Cancel"]) if changeable else None,
        on_action=lambda _, row: _cancel(page, row),
        empty="No replica moves.",
    )


async def _alter(page: Page, wanted: Reassignment) -> None:
    for one in await page.sampler.admin.alter_partition_reassignments([wanted]):
        if one.error is not None:
            raise one.error


def _cancel(page: Page, row: Row) -> None:
    at = TopicPartition(str(row["topic"]), PartitionId(int(str(row["partition"]))))

    async def cancel() -> bool:
        async def work() -> None:
            await _alter(page, Reassignment(at=at, replicas=None))

        return await run(page.sampler, work, f"The move of {at} is cancelled.")

    confirmed(
        f"Cancel the move of {at}?",
        "It keeps its present replicas; what was copied is deleted.",
        "Cancel the move",
        cancel,
    )


def _new(page: Page) -> None:
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-md"):
        ui.label("Move a partition").classes("text-lg font-semibold").props('role="heading" aria-level="2"')
        partition = ui.input("Partition, such as orders-0").props("autofocus autocomplete=off").classes("w-full")
        now = ui.label("").classes("text-sm text-note")
        replicas = ui.input("New replicas, the preferred leader first").props("autocomplete=off").classes("w-full")

        def describe() -> None:
            now.set_text(_replicas_now(page, (partition.value or "").strip()))

        async def move() -> None:
            try:
                wanted = parsed_move(partition.value or "", replicas.value or "")
            except ValueError as error:
                refused(f"{error}.")
                return

            async def work() -> None:
                await _alter(page, wanted)

            if await run(page.sampler, work, f"{wanted.at} moves to {replicas.value}."):
                dialog.close()

        partition.on_value_change(describe)
        replicas.on("keydown.enter", move)
        with ui.row():
            ui.button("Move", on_click=move).props("no-caps")
            ui.button("Close", on_click=dialog.close).props("flat no-caps color=inherit")


def _replicas_now(page: Page, text: str) -> str:
    for topic in page.latest.topics:
        for one in topic.partitions:
            if f"{topic.name}-{one.partition}" == text:
                return f"Replicas now: {_listed(one.replicas)}"
    return ""


def _listed(nodes: Sequence[BrokerId]) -> str:
    return ", ".join(map(str, nodes))
