"""What is read when all is quiet: from the running nodes their digests, from the stopped ones their files and logs.

A replica's bytes are read from its files, by the code that opens a log; its high watermark is what the node said last.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from streamlog.client import AsyncAdmin
from streamlog.client.admin.values import TopicDescription
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, Offset, TopicPartition
from streamlog.ports.posix_disk import PosixFileSystem
from streamlog.ports.system import SystemClock
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log_config import LogConfig
from tests.cluster.checking.replicas import Replica, read_replica
from tests.nemesis.clients.workload import TOPICS
from tests.nemesis.nodes import Node

SAME_S: Final = 10.0
"""Until all replicas of a partition say the same."""
LOG_LINES_MAX_PER_S: Final = 200
"""In one second of one node's life, start-up included."""
_BAD_LINE: Final = re.compile(r"Traceback|InvariantError|\bINTERNAL\b|was never awaited|never retrieved")
_SECOND: Final = re.compile(r"\d\d:\d\d:\d\d")

Wrong = Callable[[str, str], None]
Marks = Mapping[TopicPartition, Mapping[int, Offset]]
"""The high watermark of each replica, by node."""


async def quiet_marks(servers: str, *, within_s: float, now: Callable[[], float], wrong: Wrong) -> Marks:
    """Wait until every replica is in sync, then compare all of each partition (I8)."""
    async with AsyncAdmin(bootstrap_servers=servers, request_timeout_ms=10_000) as admin:
        topics = await _until_in_sync(admin, within_s, now, wrong)
        marks: dict[TopicPartition, dict[int, Offset]] = {}
        until = now() + within_s
        for topic in topics:
            for one in topic.partitions:
                at = TopicPartition(topic.name, one.partition)
                found = await _compare(admin, at, until, now, wrong, compacted=_is_compacted(topic))
                if found is not None:
                    marks[at] = found
        return marks


def _is_compacted(topic: TopicDescription) -> bool:
    return topic.internal or "compact" in topic.configs.get("cleanup.policy", "")


async def _until_in_sync(
    admin: AsyncAdmin, within_s: float, now: Callable[[], float], wrong: Wrong
) -> Sequence[TopicDescription]:
    until = now() + within_s
    topics: list[TopicDescription] = []
    while True:
        try:
            names = [topic.name for topic in await admin.list_topics(include_internal=True)]
            topics = [topic for topic in await admin.describe_topics(names) if topic.error is None]
            moving = [str(move.topic) for move in await admin.list_partition_reassignments()]
            behind = [
                f"{topic.name}-{p.partition}: leader {p.leader}, ISR {[*p.isr]} of {[*p.replicas]}"
                for topic in topics
                for p in topic.partitions
                if p.leader is None or len(p.isr) < len(p.replicas)
            ]
        except StreamlogError as error:
            behind, moving = [repr(error)], []
        if not behind and not moving:
            return topics
        if now() > until:
            wrong("I19", f"not in sync {within_s:g} s after all was healed: {behind[:5]}, moving {moving[:5]}")
            return topics
        await asyncio.sleep(0.3)


async def _compare(
    admin: AsyncAdmin, at: TopicPartition, until: float, now: Callable[[], float], wrong: Wrong, *, compacted: bool
) -> dict[int, Offset] | None:
    """The high watermark of each replica, None where that cannot be had. Followers get the last one a little
    later, so it is asked again. Replicas of a compacted topic are cleaned each in its own time: only ends are compared.
    """
    last = now() + SAME_S
    while True:
        try:
            found = await admin.digest_replicas(at.topic, at.partition, timeout_s=20)
        except StreamlogError as error:
            problem, marks = f"{at} cannot be compared: {error}", None
        else:
            marks = {int(one.node_id): one.high_watermark for one in found.replicas}
            ends = {(one.high_watermark, one.log_end) for one in found.replicas}
            errors = [str(one.error) for one in found.replicas if one.error is not None]
            if len(ends) == 1 and not errors and (found.identical or compacted):
                return marks
            rows = [(r.node_id, r.log_start, r.high_watermark, r.log_end, r.digest.hex()[:8]) for r in found.replicas]
            epochs = {r.node_id: {(int(e.leader_epoch), int(e.start_offset)) for e in r.epochs} for r in found.replicas}
            of_all = set.intersection(*epochs.values()) if epochs else set()
            differing = {node: sorted(entries - of_all) for node, entries in epochs.items()}
            problem = (
                f"{at}: (node, start, high watermark, end, digest) {rows}, "
                f"(epoch, start) that not all of them have {differing} {errors}"
            )
        if now() > min(until, last):
            wrong("I8", problem)
            return marks
        await asyncio.sleep(0.3)


def _unheard(_event: str, /, **_fields: object) -> None:
    """Recovery of a log that was closed in good order has nothing to say."""


async def read_replicas(node: Node, marks: Marks, wrong: Wrong) -> list[Replica]:
    """Of the topics of the workload, from the files of a node that was stopped in good order."""
    files = PosixFileSystem()
    names = {topic.name for topic in TOPICS}
    found = []
    try:
        directory = await LogDirectory.open(
            files,
            str(node.data),
            clock=SystemClock(),
            random=random.Random(),
            probe=_unheard,
            node_id=BrokerId(node.node_id),
        )
        await directory.open_logs(lambda partition: LogConfig())
        for partition, log in directory.logs.items():
            mark = marks.get(partition, {}).get(node.node_id)
            if partition.topic in names and mark is not None:
                try:
                    found.append(read_replica(BrokerId(node.node_id), log, mark))
                except StreamlogError as error:
                    wrong("I20", f"{partition} on node {node.node_id}: {error}")
        await directory.close()
    finally:
        files.close()
    return found


def gaps(replicas: Sequence[Replica], compacted: frozenset[str]) -> Iterator[str]:
    """I20: each batch begins where the one before ended, but where compaction has been."""
    for replica in replicas:
        if replica.partition.topic in compacted:
            continue
        for before, after in zip(replica.batches, replica.batches[1:], strict=False):
            if after.base_offset != before.next_offset:
                yield (
                    f"{replica.partition} on node {replica.broker}: a batch ends at {before.next_offset}, "
                    f"the next one begins at {after.base_offset}"
                )


def expired(replicas: Sequence[Replica]) -> Iterator[str]:
    """I18: no topic of the workload keeps anything for less than a week, so nothing may have been deleted."""
    for replica in replicas:
        if replica.log_start > 0:
            where = f"{replica.partition} on node {replica.broker}"
            yield f"{where} begins at {replica.log_start}: records were deleted that were minutes old"


def bad_lines(node: Node) -> Iterator[str]:
    """What should not be in a node's log."""
    if not node.log.exists():
        return
    lines = node.log.read_text(errors="replace").splitlines()
    bad = [number for number, line in enumerate(lines) if _BAD_LINE.search(line)]
    if bad:
        around = " | ".join(line.strip() for line in lines[max(0, bad[0] - 2) : bad[0] + 12])
        yield f"node {node.node_id}, line {bad[0] + 1} of its log ({len(bad)} such lines): {around}"
    seconds = Counter(found[0] for line in lines if (found := _SECOND.search(line)) is not None)
    for when, count in seconds.items():
        if count > LOG_LINES_MAX_PER_S:
            yield f"node {node.node_id} writes {count} lines into its log in the second {when}"
