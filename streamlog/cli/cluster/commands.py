"""`streamlogctl cluster`: health, nodes, metadata quorum, disks; drain and unregister nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import click
from msgspec.structs import replace

from streamlog.cli.cluster.health import health
from streamlog.cli.common.answering import no_quorum, not_answering, voter_addresses
from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import Noun, existing_topics
from streamlog.cli.common.output import Output, Row, cell_text, output_option, say, show_facts, show_json, show_rows
from streamlog.cli.common.progress import counting
from streamlog.cli.common.session import open_admin, with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.partition.rebalance import rebalance
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import (
    ClusterDescription,
    DrainProgress,
    FutureReplica,
    LogDirReplica,
    NodeLogDirs,
    NodeState,
    Scrub,
    VoterDescription,
)
from streamlog.errors import StreamlogError, VoterNotFoundError
from streamlog.model import BrokerId

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
_VOTER_COLUMNS: Final = ("node", "address", "role", "answers", "match_index", "lag")
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
# A drain moves whole replicas, so a shorter interval would not help.
_ASK_AGAIN_S: Final = 0.5

_node_id = click.argument("node_id", metavar="NODE", type=click.IntRange(0))


@click.group(cls=Noun)
def cluster() -> None:
    """Nodes, quorum, disks; drain and unregister nodes."""


cluster.add_command(health)
cluster.add_command(rebalance)


@cluster.command
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
    show_facts(output, facts)
    say()
    show_rows(output, rows, columns=_NODE_COLUMNS)


def _facts(found: ClusterDescription) -> dict[str, str | int | None]:
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "metadata_version": found.metadata_version,
        "topic_count": found.topic_count,
        "partition_count": found.partition_count,
        "offline_partition_count": found.offline_partition_count,
        "under_replicated_partition_count": found.under_replicated_partition_count,
        "voters_without_vote": cell_text([voter.node_id for voter in found.voters if voter.without_vote]),
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


@cluster.command
@output_option
@cluster_options
def quorum(target: Target, output: Output) -> None:
    """Show the voters of the metadata quorum, whether each answers this machine, and how far it is behind.

    Without a quorum, that is without a majority of the voters, records are written and read where partitions have
    leaders, and nothing can be created, altered or elected.

    \b
    Example:
      streamlogctl cluster quorum
    """
    found = with_admin(target, lambda admin: _described_by_its_leader(target, admin), needs_quorum=False)
    addresses = voter_addresses(found)
    silent = not_answering(addresses)
    by_leader = any(voter.match_index is not None for voter in found.voters)
    lost = "" if by_leader else no_quorum(addresses, silent)
    facts: dict[str, str | int | None] = {
        "leader": None if lost else found.controller,  # a node without the quorum names the last one that it knew
        "term": found.quorum_term,
        "commit_index": found.commit_index,
    }
    rows = [
        _voter_row(found, voter, leader=facts["leader"], answers=address not in silent)
        for voter, address in zip(found.voters, addresses, strict=True)
    ]
    if output is Output.JSON:
        show_json(facts | {"voters": rows})
        return
    show_facts(output, facts)
    say()
    show_rows(output, rows, columns=_VOTER_COLUMNS)
    if lost:
        say(f"{lost.partition(' (')[0]} this machine: start the nodes that do not.")
    for voter in found.voters:
        if voter.without_vote:
            say(
                f"Node {voter.node_id} returned without its metadata directory, and has no vote. With "
                "controller.quorum.voter.restore.enable it gets it back within seconds; otherwise run "
                f"'streamlogctl cluster restore-voter {voter.node_id}'."
            )


async def _described_by_its_leader(target: Target, admin: AsyncAdmin) -> ClusterDescription:
    """Only the quorum's leader knows the voters' positions; where it does not answer, by the node that did."""
    found = await admin.describe_cluster()
    leader = next((node for node in found.nodes if node.node_id == found.controller), None)
    if leader is None or any(voter.match_index is not None for voter in found.voters):
        return found
    try:
        async with open_admin(replace(target, servers=(leader.address,))) as there:
            return await there.describe_cluster()
    except StreamlogError:
        return found


def _voter_row(found: ClusterDescription, voter: VoterDescription, *, leader: object, answers: bool) -> Row:
    known = voter.match_index is not None
    return {
        "node": voter.node_id,
        "address": voter.address,
        "role": _role(leader, voter),
        "answers": answers,
        "match_index": voter.match_index if known else "unknown",
        "lag": max(0, found.commit_index - (voter.match_index or 0)) if known else "unknown",
    }


def _role(leader: object, voter: VoterDescription) -> str:
    if voter.without_vote:
        return "no vote"
    return "leader" if voter.node_id == leader else "voter"


@cluster.command
@click.option("--wait/--no-wait", default=False, help="Wait until the node has no replicas.")
@click.option("--cancel", is_flag=True, help="Cancel the drain; replicas that have moved stay where they are.")
@click.option("--show", is_flag=True, help="Only show the progress.")
@_node_id
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


@cluster.command
@_node_id
@cluster_options
def unregister(target: Target, node_id: int) -> None:
    """Unregister NODE, which will not return. It must be stopped, and have no replicas.

    \b
    Example:
      streamlogctl cluster unregister 3
    """
    with_admin(target, lambda admin: admin.unregister_node(node_id))
    say(f"Node {node_id} is unregistered.")


@cluster.command(name="add-voter")
@click.option("--address", metavar="HOST:PORT", default="", help="The node's address; default: the registered one.")
@click.option("--replace", "replaced", type=click.IntRange(0), help="A permanently lost voter.")
@_node_id
@cluster_options
def add_voter(target: Target, node_id: int, *, address: str, replaced: int | None) -> None:
    """Add NODE to the voters of the metadata quorum.

    It must run with its own id and all current voters in controller.quorum.voters: so it replicates the quorum's log,
    without a vote, until it is added.

    \b
    Examples:
      streamlogctl cluster add-voter 4
      streamlogctl cluster add-voter 4 --replace 2
    """

    async def work(admin: AsyncAdmin) -> tuple[VoterDescription, ...]:
        known = {node.node_id: node.address for node in (await admin.describe_cluster()).nodes}
        where = address or known.get(BrokerId(node_id))
        silent = await asyncio.to_thread(not_answering, [where] if where else [])
        if silent:
            text = f"Node {node_id} does not answer at {where} from this machine"
            say(f"{text}; waiting until it does, and has caught up.", err=True)
        return await admin.add_voter(node_id, address=address, replaced_node_id=replaced)

    voters = with_admin(target, work)
    say(f"Node {node_id} is a voter. Voters: {_voter_ids(voters)}.")


@cluster.command(name="restore-voter")
@_node_id
@cluster_options
def restore_voter(target: Target, node_id: int) -> None:
    """Restore the vote of NODE, a voter that returned without its metadata directory.

    Its new directory replaces the lost one once it has caught up and the other voters agree. The quorum does this
    automatically with controller.quorum.voter.restore.enable.

    \b
    Example:
      streamlogctl cluster restore-voter 2
    """

    async def work(admin: AsyncAdmin) -> tuple[VoterDescription, ...] | None:
        voters = (await _described_by_its_leader(target, admin)).voters
        known = next((voter for voter in voters if voter.node_id == node_id), None)
        if known is None:
            raise VoterNotFoundError(
                f"node {node_id} is not a voter; the voters are {_voter_ids(voters)}", voter=node_id
            )
        if not known.without_vote and known.match_index is not None:
            return None
        return await admin.add_voter(node_id, replaced_node_id=node_id)

    voters = with_admin(target, work)
    if voters is None:
        say(f"Node {node_id} has its vote.")
    else:
        say(f"Node {node_id} has its vote again. Voters: {_voter_ids(voters)}.")


@cluster.command(name="remove-voter")
@_node_id
@cluster_options
def remove_voter(target: Target, node_id: int) -> None:
    """Remove NODE from the voters. It continues as a broker.

    \b
    Example:
      streamlogctl cluster remove-voter 2
    """
    voters = with_admin(target, lambda admin: admin.remove_voter(node_id))
    say(f"Node {node_id} is not a voter. Voters: {_voter_ids(voters)}.")


def _voter_ids(voters: tuple[VoterDescription, ...]) -> str:
    return cell_text([voter.node_id for voter in voters])


@cluster.command(name="log-dirs")
@click.option("--broker", "node_ids", type=click.IntRange(0), multiple=True, help="Only of this node; can be repeated.")
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


@cluster.command
@click.option("--level", type=click.IntRange(1), help="Default: the highest level that all nodes support.")
@cluster_options
def upgrade(target: Target, *, level: int | None) -> None:
    """Raise metadata.version once all nodes run the new release. This cannot be undone.

    \b
    Example:
      streamlogctl cluster upgrade
    """
    holds = with_admin(target, lambda admin: admin.update_metadata_version(level or 0))
    say(f"metadata.version is {holds}.")


@cluster.command
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
