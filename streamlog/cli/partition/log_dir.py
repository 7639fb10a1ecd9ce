"""`streamlogctl partition move-log-dir`: move replicas between the log directories of their node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import click

from streamlog.cli.common.failures import end_with
from streamlog.cli.common.nouns import topic_partition
from streamlog.cli.common.output import say
from streamlog.cli.common.progress import counting
from streamlog.cli.common.session import with_admin
from streamlog.cli.common.target import Target, cluster_options
from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.client.admin.values import LogDir, ReplicaOnNode
from streamlog.errors import StorageError, StreamlogError
from streamlog.model import INT32_MAX, TopicPartition

_LOOK_AGAIN_S: Final = 0.5


@click.command(name="move-log-dir")
@click.argument("partitions", metavar="TOPIC-PARTITION...", nargs=-1, required=True)
@click.option(
    "--broker", "node_id", type=click.IntRange(0, INT32_MAX), required=True, help="The node whose replicas move."
)
@click.option(
    "--log-dir", "path", metavar="PATH", required=True, help="Where they move to, as in log.dirs of the node."
)
@click.option("--wait", is_flag=True, help="Wait until the replicas have moved.")
@cluster_options
def move_log_dir(target: Target, partitions: tuple[str, ...], *, node_id: int, path: str, wait: bool) -> None:
    """Move replicas to another log directory of their node. They serve meanwhile; one moves at a time.

    'streamlogctl cluster log-dirs --replicas' shows the copies, and why a move has ended. With the directory where a
    replica is already, its move is cancelled. The rate is replica.alter.log.dirs.io.max.bytes.per.second.

    \b
    Examples:
      streamlogctl partition move-log-dir orders-0 orders-1 --broker 1 --log-dir /disk2/streamlog --wait
    """
    named = dict.fromkeys(map(topic_partition, partitions))
    moves = {ReplicaOnNode(at.topic, at.partition, node_id): path for at in named}
    results = with_admin(target, lambda admin: admin.alter_replica_log_dirs(moves))
    for result in results:
        if result.error is None:
            say(f"{result.at.topic}-{result.at.partition} moves to {path} of node {node_id}.")
    failures: list[tuple[str, StreamlogError | None]] = [
        (f"{result.at.topic}-{result.at.partition}", result.error) for result in results
    ]
    if wait:
        begun = [at for at, result in zip(named, results, strict=True) if result.error is None]
        ended = with_admin(target, lambda admin: _moved(admin, begun, node_id, path))
        failures += [(str(at), error) for at, error in ended.items()]
        if begun and not any(error is not None for _, error in failures):
            say("All replicas have moved.")
    end_with(failures)


async def _moved(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], node_id: int, path: str
) -> dict[TopicPartition, StreamlogError]:
    """Returns once none of them moves, with the errors of those that did not."""
    left = dict.fromkeys(partitions)
    failed: dict[TopicPartition, StreamlogError] = {}
    with counting("moving replicas", len(left), "replicas") as advance:
        while left:
            topics = sorted({at.topic for at in left})
            (node,) = await admin.describe_log_dirs([node_id], topics=topics)
            if node.error is not None:
                raise node.error
            for at in list(left):
                outcome = _outcome(at, path, node.log_dirs)
                if outcome is not _UNDER_WAY:
                    del left[at]
                    if outcome is not None:
                        failed[at] = outcome
            advance(len(partitions) - len(left))
            if left:
                await asyncio.sleep(_LOOK_AGAIN_S)
    return failed


_UNDER_WAY: Final = StorageError("under way")


def _outcome(at: TopicPartition, path: str, directories: Sequence[LogDir]) -> StreamlogError | None:
    """None: it has moved."""
    for directory in directories:
        if directory.path == path:
            if directory.error is not None:
                return directory.error
            if any(one.at == at for one in directory.replicas):
                return None
            for future in directory.future_replicas:
                if future.at == at:
                    return _UNDER_WAY if future.error is None else future.error
    if any(one.at == at for directory in directories for one in directory.replicas):
        return StorageError("the move was cancelled, or a restart of the node has ended it: request it again")
    return _UNDER_WAY  # in no directory for a moment, while the copy takes the log's place
