"""`streamlogctl cluster`: nodes; drain and unregister them; what a cluster supports. Voters, disks: beside."""

from __future__ import annotations

import asyncio
from typing import Final

import click

from streamlog.cli.cluster.health import health
from streamlog.cli.cluster.log_dirs import log_dirs
from streamlog.cli.cluster.voters import add_voter, quorum, remove_voter, restore_voter
from streamlog.cli.common.answering import not_answering
from streamlog.cli.common.nouns import Noun, node_argument
from streamlog.cli.common.output import Cell, Output, Row, output_option, say, show_facts, show_json, show_rows
from streamlog.cli.common.progress import counting
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.partition.rebalance import rebalance
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ClusterDescription, DrainProgress, NodeState
from streamlog.model import INT32_MAX

_NODE_COLUMNS: Final = (
    "node",
    "address",
    "rack",
    "state",
    "controller",
    "draining",
    "replicas",
    "leaders",
    "clock_skew_ms",
)
# A drain moves whole replicas, so a shorter interval would not help.
_ASK_AGAIN_S: Final = 0.5


@click.group(cls=Noun)
def cluster() -> None:
    """Nodes, quorum, disks; drain and unregister nodes."""


@click.command
@output_option
@cluster_options
def describe(target: Target, output: Output) -> None:
    """Show nodes, controller and the health of the partitions.

    \b
    Examples:
      streamlogctl cluster describe
      streamlogctl cluster describe --output json | jq .under_replicated_partition_count
    """
    found = with_admin(target, lambda admin: admin.describe_cluster(), needs_quorum=False)
    silent = not_answering(one.address for one in found.nodes if one.state is NodeState.ACTIVE)
    facts = _facts(found)
    rows = [_node_row(found, index, silent) for index in range(len(found.nodes))]
    if output is Output.JSON:
        show_json(facts | {"nodes": rows})
        return
    show_facts(output, facts | {"voters_without_vote": facts["voters_without_vote"] or None})
    say()
    show_rows(output, rows, columns=_NODE_COLUMNS)


def _facts(found: ClusterDescription) -> dict[str, Cell]:
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "metadata_version": found.metadata_version,
        "topic_count": found.topic_count,
        "partition_count": found.partition_count,
        "offline_partition_count": found.offline_partition_count,
        "under_replicated_partition_count": found.under_replicated_partition_count,
        "voters_without_vote": [voter.node_id for voter in found.voters if voter.without_vote],
    }


def _node_row(found: ClusterDescription, index: int, silent: frozenset[str]) -> Row:
    """A node that was killed is active in the metadata until its session times out; here it is not."""
    node = found.nodes[index]
    return {
        "node": node.node_id,
        "address": node.address,
        "rack": node.rack,
        "state": "no answer" if node.address in silent else node.state.value,
        "controller": node.node_id == found.controller,
        "draining": node.draining,
        "replicas": node.replica_count,
        "leaders": node.leader_count,
        "clock_skew_ms": node.clock_skew_ms,
        "broker_epoch": node.broker_epoch,
    }


@click.command
@click.option("--wait/--no-wait", default=False, help="Wait until the node has no replicas.")
@click.option("--cancel", is_flag=True, help="Cancel the drain; replicas that have moved stay where they are.")
@click.option("--show", is_flag=True, help="Only show the progress.")
@node_argument
@cluster_options
def drain(target: Target, node_id: int, *, wait: bool, cancel: bool, show: bool) -> None:
    """Move all replicas away from NODE, so that it can be removed. The moves continue in the background.

    \b
    Examples:
      streamlogctl cluster drain 3 --wait
      streamlogctl cluster drain 3 --show
      streamlogctl cluster drain 3 --cancel
    """
    if cancel and show:
        raise click.UsageError("--cancel and --show are mutually exclusive: give one of them.")

    async def work(admin: AsyncAdmin) -> DrainProgress:
        if cancel:
            return await admin.cancel_drain(node_id)
        progress = await (admin.drain_progress(node_id) if show else admin.drain_node(node_id))
        return await _drained(admin, node_id, progress) if wait else progress

    progress = with_admin(target, work)
    if not progress.draining:
        say(f"Node {node_id} is not being drained; it has {progress.remaining_count} replicas.")
    elif progress.remaining_count == 0:
        say(f"Node {node_id} has no replicas: stop it, then run 'streamlogctl cluster unregister {node_id}'.")
    else:
        say(
            f"Node {node_id} is being drained: {progress.remaining_count} replicas are left, "
            f"{progress.moving_count} of them are moving now."
        )


async def _drained(admin: AsyncAdmin, node_id: int, progress: DrainProgress) -> DrainProgress:
    """Waits until no replica is left, or the drain is cancelled."""
    total = progress.remaining_count
    with counting(f"draining node {node_id}", total, "replicas") as advance:
        while progress.draining and progress.remaining_count > 0:
            await asyncio.sleep(_ASK_AGAIN_S)
            progress = await admin.drain_progress(node_id)
            advance(max(0, total - progress.remaining_count))
    return progress


@click.command
@node_argument
@cluster_options
def unregister(target: Target, node_id: int) -> None:
    """Unregister NODE, which will not return. It must be stopped, and have no replicas.

    \b
    Example:
      streamlogctl cluster unregister 3
    """
    with_admin(target, lambda admin: admin.unregister_node(node_id))
    say(f"Node {node_id} is unregistered.")


@click.command
@click.option("--level", type=click.IntRange(1, INT32_MAX), help="Default: the highest level that all nodes support.")
@cluster_options
def upgrade(target: Target, *, level: int | None) -> None:
    """Raise metadata.version once all nodes run the new release. This cannot be undone.

    \b
    Example:
      streamlogctl cluster upgrade
    """
    holds = with_admin(target, lambda admin: admin.update_metadata_version(level or 0))
    say(f"metadata.version is {holds}.")


@click.command
@output_option
@cluster_options
def api(target: Target, output: Output) -> None:
    """Show release, features and limits of the node that answers.

    \b
    Example:
      streamlogctl cluster api --bootstrap-server node2:9092
    """
    found = with_admin(target, lambda admin: admin.describe_node())
    limits = found.limits
    show_facts(
        output,
        {
            "version": found.version,
            "cluster_id": found.cluster_id,
            "node": found.node_id,
            "features": {one.name: one.level for one in found.features},
            "request_bytes_max": limits.request_bytes_max,
            "response_bytes": limits.response_bytes,
            "response_bytes_max": limits.response_bytes_max,
            "batch_bytes_max": limits.batch_bytes_max,
            "partitions_per_request_max": limits.partitions_per_request_max,
            "new_partitions_per_request_max": limits.new_partitions_per_request_max,
            "publish_request_bytes_max": limits.publish_request_bytes_max,
            "other_request_bytes_max": limits.other_request_bytes_max,
            "records_per_request_max": limits.records_per_request_max,
            "subscribe_response_bytes_max": limits.subscribe_response_bytes_max,
            "consume_response_bytes_max": limits.consume_response_bytes_max,
        },
    )


for command in (
    describe,
    health,
    quorum,
    add_voter,
    restore_voter,
    remove_voter,
    log_dirs,
    rebalance,
    drain,
    unregister,
    upgrade,
    api,
):
    cluster.add_command(command)
