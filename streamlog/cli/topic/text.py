"""A topic's description in the format of Kafka's tool, as tables, and as JSON. Pure except for the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from streamlog.cli.common.output import Cell, show_table
from streamlog.client.admin.values import PartitionDescription, TopicDescription

_COLUMNS: Final = ("partition", "leader", "replicas", "isr", "elr", "offline", "moving")


def description_lines(
    topic: TopicDescription, partitions: Sequence[PartitionDescription], *, heading: bool
) -> Iterator[str]:
    """`heading`: with the line of the topic itself."""
    if heading:
        configs = ",".join(f"{name}={value}" for name, value in topic.configs.items())
        yield (
            f"Topic: {topic.name}\tPartitionCount: {topic.partition_count}"
            f"\tReplicationFactor: {topic.replication_factor}\tConfigs:{configs and ' ' + configs}"
        )
    for one in partitions:
        leader = "none" if one.leader is None else one.leader
        line = (
            f"\tTopic: {topic.name}\tPartition: {one.partition}\tLeader: {leader}"
            f"\tReplicas: {_ids(one.replicas)}\tIsr: {_ids(one.isr)}"
        )
        for name, ids in (("Elr", one.elr), ("Offline", one.offline), ("Adding", one.adding)):
            line += f"\t{name}: {_ids(ids)}" if ids else ""
        yield line + (f"\tRemoving: {_ids(one.removing)}" if one.removing else "")


def show_description_tables(topics: Sequence[tuple[TopicDescription, Sequence[PartitionDescription]]]) -> None:
    for topic, partitions in topics:
        configs = ", ".join(f"{name}={value}" for name, value in topic.configs.items())
        title = f"{topic.name}  {topic.partition_count} partitions, {topic.replication_factor} replicas each"
        rows = [_row(one) for one in partitions]
        used = [column for column in _COLUMNS if column in _COLUMNS[:4] or any(row[column] for row in rows)]
        show_table(rows, columns=used, title=f"{title}  {configs}".rstrip())


def _row(one: PartitionDescription) -> dict[str, Cell]:
    moving = [f"+{node}" for node in one.adding] + [f"-{node}" for node in one.removing]
    return {
        "partition": one.partition,
        "leader": one.leader,
        "replicas": one.replicas,
        "isr": one.isr,
        "elr": one.elr,
        "offline": one.offline,
        "moving": moving,
    }


def description_json(topic: TopicDescription, partitions: Sequence[PartitionDescription]) -> dict[str, Cell]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id.hex(),
        "partition_count": topic.partition_count,
        "replication_factor": topic.replication_factor,
        "configs": topic.configs,
        "internal": topic.internal,
        "partitions": [partition_json(one) for one in partitions],
    }


def partition_json(one: PartitionDescription) -> dict[str, Cell]:
    return {
        "partition": one.partition,
        "leader": one.leader,
        "leader_epoch": one.leader_epoch,
        "replicas": one.replicas,
        "isr": one.isr,
        "elr": one.elr,
        "adding": one.adding,
        "removing": one.removing,
        "offline": one.offline,
    }


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
