"""`streamlogctl cluster log-dirs`: the disks of nodes, what is on them, and what moves between them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import existing_topics
from streamlog.cli.common.output import Output, Row, output_option, show_rows
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import FutureReplica, LogDirReplica, NodeLogDirs, Scrub
from streamlog.model import INT32_MAX

_DISK_COLUMNS: Final = (
    "node",
    "path",
    "state",
    "replicas",
    "size_bytes",
    "usable_bytes",
    "total_bytes",
    "damaged",
    "scrub",
)
_TOPIC_COLUMNS: Final = ("topic", "partitions", "replicas", "size_bytes", "largest_replica_bytes", "damaged")
_REPLICA_COLUMNS: Final = (
    "node",
    "path",
    "topic",
    "partition",
    "size_bytes",
    "log_start",
    "log_end",
    "damaged",
    "is_future",
    "offset_lag",
    "move",
)


@click.command(name="log-dirs")
@click.option(
    "--broker", "node_ids", type=click.IntRange(0, INT32_MAX), multiple=True, help="Only of this node; can be repeated."
)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    help="Only replicas of this topic, or of those that a regular expression matches; can be repeated.",
)
@click.option("--replicas", "each", is_flag=True, help="One line for each replica instead of each directory.")
@click.option("--by-topic", is_flag=True, help="One line for each topic, the largest first.")
@output_option
@cluster_options
def log_dirs(
    target: Target, output: Output, node_ids: tuple[int, ...], topics: tuple[str, ...], *, each: bool, by_topic: bool
) -> None:
    """Show the log directories of the nodes, and their replicas.

    \b
    Examples:
      streamlogctl cluster log-dirs
      streamlogctl cluster log-dirs --topic orders --replicas
      streamlogctl cluster log-dirs --by-topic
    """
    if each and by_topic:
        raise click.UsageError("--replicas and --by-topic are mutually exclusive: give one of them.")

    async def work(admin: AsyncAdmin) -> tuple[NodeLogDirs, ...]:
        return await admin.describe_log_dirs(node_ids, topics=await existing_topics(admin, topics))

    found = with_admin(target, work)
    if by_topic:
        show_rows(output, _sizes_by_topic(found), columns=_TOPIC_COLUMNS)
        end_with((f"node {node.node_id}", node.error) for node in found)
        return
    rows: list[Row] = []
    for node in found:
        for directory in node.log_dirs:
            where: dict[str, str | int] = {"node": node.node_id, "path": directory.path}
            if each:
                rows += [
                    where
                    | {
                        "topic": replica.at.topic,
                        "partition": replica.at.partition,
                        "size_bytes": replica.size_bytes,
                        "log_start": replica.log_start,
                        "log_end": replica.log_end,
                        "damaged": replica.damaged_ranges,
                        "is_future": False,
                        "offset_lag": 0,
                        "move": "",
                    }
                    for replica in directory.replicas
                ]
                rows += [where | _future_row(one) for one in directory.future_replicas]
            else:
                rows.append(
                    where
                    | {
                        "state": "active" if directory.error is None else "offline",
                        "replicas": len(directory.replicas),
                        "size_bytes": sum(replica.size_bytes for replica in directory.replicas),
                        "usable_bytes": "unknown" if directory.usable_bytes is None else directory.usable_bytes,
                        "total_bytes": "unknown" if directory.total_bytes is None else directory.total_bytes,
                        "damaged": sum(replica.damaged_ranges for replica in directory.replicas),
                        "scrub": _scrub(directory.scrub),
                    }
                )
    show_rows(output, rows, columns=_REPLICA_COLUMNS if each else _DISK_COLUMNS)
    end_with((f"node {node.node_id}", node.error) for node in found)


def _future_row(one: FutureReplica) -> dict[str, str | int]:
    """A copy, whose replica moves here from another directory; or why it does not move any more."""
    return {
        "topic": one.at.topic,
        "partition": one.at.partition,
        "size_bytes": one.size_bytes,
        "log_start": "",
        "log_end": "",
        "damaged": 0,
        "is_future": True,
        "offset_lag": one.offset_lag,
        "move": "under way" if one.error is None else f"ended: {one.error.message}",
    }


def _sizes_by_topic(nodes: Sequence[NodeLogDirs]) -> list[Row]:
    """All replicas of each topic; `largest_replica_bytes` shows a partition that has grown beyond the others."""
    replicas: dict[str, list[LogDirReplica]] = {}
    for node in nodes:
        for directory in node.log_dirs:
            for replica in directory.replicas:
                replicas.setdefault(replica.at.topic, []).append(replica)
    rows: list[Row] = [
        {
            "topic": topic,
            "partitions": len({one.at.partition for one in some}),
            "replicas": len(some),
            "size_bytes": sum(one.size_bytes for one in some),
            "largest_replica_bytes": max(one.size_bytes for one in some),
            "damaged": sum(one.damaged_ranges for one in some),
        }
        for topic, some in replicas.items()
    ]
    return sorted(rows, key=lambda row: (-int(str(row["size_bytes"])), str(row["topic"])))


def _scrub(scrub: Scrub | None) -> str:
    """The progress of the scrub, in few words."""
    if scrub is None:
        return "not yet"
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime((scrub.ended_ms or scrub.started_ms) / 1000))
    if scrub.ended_ms is not None:
        return f"done {since}"
    return f"{min(100, 100 * scrub.read_bytes // max(1, scrub.total_bytes))}% since {since}"
