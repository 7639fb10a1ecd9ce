"""`streamlogctl cluster rebalance`: even numbers of replicas and leaders on all nodes, by a plan shown first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import node_ids
from streamlog.cli.common.output import Cell, Output, Row, cell_text, output_option, say, show_json, show_rows
from streamlog.cli.common.paths import GivenPath
from streamlog.cli.common.progress import counting
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.cli.partition.plan import Move, NotEnoughNodesError, Replicas, counts, moves
from streamlog.cli.partition.throttle import REMOVE_LIMIT, set_throttle, throttle_option
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import ClusterDescription, NodeState, Reassignment, ReassignmentResult
from streamlog.errors import StreamlogError
from streamlog.model import PartitionId, TopicPartition

_MOVE_COLUMNS: Final = ("partition", "from", "to", "copied_to", "size_bytes")
_NODE_COLUMNS: Final = ("node", "replicas", "replicas_after", "leaders", "leaders_after")
_AT_ONCE: Final = 1_000
_LOOK_AGAIN_S: Final = 0.5


class Found(Struct, frozen=True, kw_only=True):
    """What a plan is made from."""

    current: Mapping[TopicPartition, Replicas]
    moving: frozenset[TopicPartition]
    targets: Mapping[int, str]
    sizes: Mapping[TopicPartition, int]  # of the largest replica; missing: unknown


@click.command
@click.option("--to", "to", metavar="1,2,3", help="The nodes that may have replicas; default: all that are active.")
@click.option("--execute", is_flag=True, help="Start the moves; without it, they are only shown.")
@click.option("--cancel", is_flag=True, help="Cancel all moves in progress; replicas that have moved stay.")
@click.option("--wait", is_flag=True, help="With --execute: wait until the replicas have moved.")
@throttle_option
@click.option(
    "--plan-file",
    metavar="FILE",
    type=GivenPath(dir_okay=False, path_type=Path),
    help="Write the plan, for 'partition reassign --reassignment-json-file FILE', too.",
)
@output_option
@cluster_options
def rebalance(
    target: Target,
    output: Output,
    *,
    to: str | None,
    execute: bool,
    cancel: bool,
    wait: bool,
    throttle: int | None,
    plan_file: Path | None,
) -> None:
    """Show, or start with --execute, the moves after which all nodes have the same number of replicas and leaders.

    A new node has no replicas until they are moved to it. No more is moved than necessary; copying continues in the
    background, while the partitions are in use.

    \b
    Examples:
      streamlogctl cluster rebalance
      streamlogctl cluster rebalance --execute --throttle 10000000 --wait
      streamlogctl cluster rebalance --plan-file plan.json
      streamlogctl partition reassign --list
      streamlogctl cluster rebalance --cancel
    """
    if cancel:
        if execute or wait or throttle is not None or to is not None or plan_file is not None:
            raise click.UsageError("--cancel takes no other option.")
        _cancel(target)
        return
    if not execute and (wait or throttle is not None):
        raise click.UsageError("--wait and --throttle need --execute.")
    chosen = None if to is None else node_ids(to, "--to")
    found = with_admin(target, lambda admin: look(admin, chosen))
    plan = planned(found, [at for at in found.current if at not in found.moving])
    if plan_file is not None:
        write_plan(plan_file, [(one.at, one.after) for one in plan])
    _show(output, found, plan)
    if not plan or not execute:
        if plan and output is not Output.JSON:
            say("Nothing has been moved yet: start the moves with --execute.", err=True)
        return
    wanted = [Reassignment(at=one.at, replicas=one.after) for one in plan]
    results = with_admin(target, lambda admin: carry_out(admin, wanted, wait=wait, throttle=throttle))
    started = sum(one.error is None for one in results)
    if output is not Output.JSON:
        end = "have moved" if wait else "are moving; see them with 'streamlogctl partition reassign --list'"
        say(f"The replicas of {started} partitions {end}.", err=True)
    end_with((str(one.at), one.error) for one in results)


async def look(admin: AsyncAdmin, chosen: Sequence[int] | None) -> Found:
    """All topics, internal ones too. UsageError for a chosen node that is not active."""
    cluster = await admin.describe_cluster()
    names = [one.name for one in await admin.list_topics(include_internal=True)]
    current: dict[TopicPartition, Replicas] = {}
    moving = set()
    for topic in await admin.describe_topics(names) if names else ():
        for part in topic.partitions:
            at = TopicPartition(topic.name, part.partition)
            current[at] = tuple(part.replicas)
            if part.adding or part.removing:
                moving.add(at)
    return Found(
        current=current,
        moving=frozenset(moving),
        targets=_targets(cluster, chosen),
        sizes=await _sizes(admin),
    )


def _targets(cluster: ClusterDescription, chosen: Sequence[int] | None) -> dict[int, str]:
    racks = {int(one.node_id): one.rack for one in cluster.nodes if one.state is NodeState.ACTIVE and not one.draining}
    for node in chosen or ():
        if node not in racks:
            raise click.UsageError(
                f"Node {node} is not active, or is being drained: see 'streamlogctl cluster describe'."
            )
    return racks if chosen is None else {node: racks[node] for node in chosen}


async def _sizes(admin: AsyncAdmin) -> dict[TopicPartition, int]:
    """Of what the nodes report; they are for show only."""
    sizes: dict[TopicPartition, int] = {}
    try:
        nodes = await admin.describe_log_dirs()
    except StreamlogError:
        return sizes
    for node in nodes:
        for directory in node.log_dirs:
            for one in directory.replicas:
                sizes[one.at] = max(one.size_bytes, sizes.get(one.at, 0))
    return sizes


def planned(found: Found, movable: Sequence[TopicPartition]) -> list[Move]:
    try:
        return moves(found.current, found.targets, movable=movable)
    except NotEnoughNodesError as problem:
        raise click.ClickException(
            f"{problem}: give more nodes with --to, or start those that are down: 'streamlogctl cluster describe'."
        ) from None


def plan_json(assignments: Sequence[tuple[TopicPartition, Replicas]]) -> dict[str, Cell]:
    """As Kafka's tool has it."""
    return {
        "version": 1,
        "partitions": [
            {"topic": at.topic, "partition": int(at.partition), "replicas": list(replicas)}
            for at, replicas in assignments
        ],
    }


def write_plan(path: Path, assignments: Sequence[tuple[TopicPartition, Replicas]]) -> None:
    try:
        path.write_text(json.dumps(plan_json(assignments), indent=1) + "\n", encoding="utf-8")
    except OSError as problem:
        raise click.ClickException(f"{path}: cannot be written: {problem.strerror}.") from None


def _show(output: Output, found: Found, plan: Sequence[Move]) -> None:
    rows: list[Row] = [
        {
            "partition": str(one.at),
            "from": cell_text(one.before),
            "to": cell_text(one.after),
            "copied_to": cell_text(one.added) if one.added else "",
            "size_bytes": found.sizes.get(one.at, "unknown") if one.added else 0,
        }
        for one in plan
    ]
    after = dict(found.current) | {one.at: one.after for one in plan}
    now, then = counts(found.current.values(), found.targets), counts(after.values(), found.targets)
    nodes: list[Row] = [
        {
            "node": node,
            "replicas": now[node][0] if node in now else 0,
            "replicas_after": then[node][0] if node in then else 0,
            "leaders": now[node][1] if node in now else 0,
            "leaders_after": then[node][1] if node in then else 0,
        }
        for node in sorted({*now, *then})
    ]
    if output is Output.JSON:
        show_json({"moves": rows, "nodes": nodes, **plan_json([(one.at, one.after) for one in plan])})
        return
    if not plan:
        say("Replicas and leaders are even: there is nothing to move.")
        return
    show_rows(output, rows, columns=_MOVE_COLUMNS)
    say()
    show_rows(output, nodes, columns=_NODE_COLUMNS)
    copied = sum(found.sizes.get(one.at, 0) * len(one.added) for one in plan)
    say(f"{sum(len(one.added) for one in plan)} replicas are to be copied, {copied:,} bytes.", err=True)
    if found.moving:
        say(f"{len(found.moving)} partitions are moving already, and are left out.", err=True)


async def carry_out(
    admin: AsyncAdmin,
    wanted: Sequence[Reassignment],
    *,
    wait: bool = False,
    throttle: int | None = None,
    on_started: Callable[[TopicPartition], None] = lambda _at: None,
) -> list[ReassignmentResult]:
    """Starts the moves, or cancels them; with `wait`, returns once they have ended, and the limit is removed unless
    other replicas are still moving. Where a call fails the limit stays: replicas may be moving.
    """
    restore = None if throttle is None else await set_throttle(admin, throttle)
    results: list[ReassignmentResult] = []
    started: list[TopicPartition] = []
    try:
        for start in range(0, len(wanted), _AT_ONCE):
            some = await admin.alter_partition_reassignments(wanted[start : start + _AT_ONCE])
            results += some
            for at in (one.at for one in some if one.error is None):
                started.append(at)
                on_started(at)
        if wait:
            await moved(admin, started)
        if restore is not None and (wait or not started):
            await restore(admin)
    except BaseException:
        if restore is not None:
            say(f"The limit of moves stays: replicas may still be moving. To remove it: {REMOVE_LIMIT}", err=True)
        raise
    return results


async def moved(admin: AsyncAdmin, partitions: Sequence[TopicPartition]) -> None:
    """Returns once none of them is moving."""
    if not partitions:
        return
    wanted = frozenset(partitions)
    with counting("moving replicas", len(partitions), "partitions") as advance:
        while True:
            moving = sum(
                TopicPartition(one.topic, PartitionId(one.partition.partition)) in wanted
                for one in await admin.list_partition_reassignments()
            )
            advance(len(partitions) - moving)
            if not moving:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)


def _cancel(target: Target) -> None:
    async def work(admin: AsyncAdmin) -> list[ReassignmentResult]:
        moving = await admin.list_partition_reassignments()
        wanted = [
            Reassignment(at=TopicPartition(one.topic, PartitionId(one.partition.partition)), replicas=None)
            for one in moving
        ]
        return await carry_out(admin, wanted)

    results = with_admin(target, work)
    say(f"Cancelled the moves of {sum(one.error is None for one in results)} partitions.")
    end_with((str(one.at), one.error) for one in results)
