"""Samples for the conditions of alarms."""

from __future__ import annotations

from typing import Any, Final

from streamlog.client.admin.group_values import GroupListing, GroupState
from streamlog.client.admin.values import LogDir, NodeLogDirs, PartitionDescription, TopicDescription
from streamlog.console.alarms.conditions.assessments import View
from streamlog.console.alarms.conditions.tracks import SampleTracks
from streamlog.console.collection.sample import PartitionEnd, Sample
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, PartitionId, TopicPartition
from streamlog.monitor import ClusterState
from tests.support.health_samples import cluster, state


def topic(name: str, *isrs: tuple[int, ...], leader: int | None = 1) -> TopicDescription:
    """A partition for each ISR, of three replicas."""
    partitions = tuple(
        PartitionDescription(
            partition=PartitionId(number),
            leader=None if leader is None else BrokerId(leader),
            leader_epoch=1,  # type: ignore[arg-type]
            partition_epoch=1,  # type: ignore[arg-type]
            replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
            isr=tuple(map(BrokerId, isr)),
            elr=(),
            adding=(),
            removing=(),
            offline=(),
        )
        for number, isr in enumerate(isrs)
    )
    return TopicDescription(
        name=name,
        topic_id=b"x" * 16,  # type: ignore[arg-type]
        partition_count=len(isrs),
        replication_factor=3,
        configs={},
        partitions=partitions,
        internal=False,
        error=None,
    )


def at(name: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(name, PartitionId(partition))


def group(name: str) -> GroupListing:
    return GroupListing(group=name, state=GroupState.STABLE, member_count=1, coordinator=BrokerId(1))


def log_dirs(node_id: int, *dirs: tuple[str, int | None, StreamlogError | None]) -> NodeLogDirs:
    """(path, percentage used, error)."""
    return NodeLogDirs(
        node_id=BrokerId(node_id),
        error=None,
        log_dirs=tuple(
            LogDir(
                path=path,
                directory_id=b"",
                total_bytes=None if used is None else 1000,
                usable_bytes=None if used is None else 1000 - used * 10,
                replicas=(),
                error=error,
            )
            for path, used, error in dirs
        ),
    )


_PARTS: Final = ("missing", "hanging", "transaction_errors", "log_dirs")


def sample(second: float = 100.0, **more: Any) -> Sample:
    """`topics`, `nodes`, `controller`, and those of `_PARTS`: of the state; `ends`: log ends."""
    described = cluster(*more.pop("nodes", ()), controller=more.pop("controller", 1))
    parts = {name: more.pop(name) for name in _PARTS if name in more}
    ends = {place: PartitionEnd(0, end, 0) for place, end in more.pop("ends", {}).items()}
    found = state(described, *more.pop("topics", ()), **parts)
    return Sample(at_s=second, monotonic_s=second, state=found, ends=ends, **more)


def unreachable(second: float = 100.0) -> Sample:
    missing = {"the cluster's description": StreamlogError("no node answers")}
    return Sample(at_s=second, monotonic_s=second, state=ClusterState(cluster=None, missing=missing))


def view(*samples: Sample, **more: Any) -> View:
    """Of the last one."""
    tracks = SampleTracks()
    for one in samples:
        tracks.add(one)
    return View(sample=samples[-1], tracks=tracks, **more)
