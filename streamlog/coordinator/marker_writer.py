"""Sends transaction markers from the coordinators of this node to the leaders of all partitions.

    prepared end --decision replicated--> a marker for each partition --> queue of its leader's node --> written
                                               ^__ after a back-off ___ refused, no response, new leader _|

A node gets one request at a time, with all markers queued for it. A marker is retried until the partition's current
leader has written it; a partition of a deleted topic needs none. Retries stop only when the coordinator's leadership
ends or a newer coordinator has written its marker; the new coordinator continues from the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from streamlog.aio.group_tasks import start_unless_ending
from streamlog.aio.timeouts import timeout
from streamlog.coordinator.transaction_shard import PreparedEnd, TransactionShard
from streamlog.errors import (
    CoordinatorNotAvailableError,
    LeaderNotAvailableError,
    ProducerFencedError,
    StreamlogError,
    TransactionCoordinatorFencedError,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, TopicPartition
from streamlog.ports import Probe, Random
from streamlog.records import EndTransactionMarker
from streamlog.transactions.lifecycle import marker_of
from streamlog.transactions.markers import Grant, MarkerOutcome, PartitionMarker
from streamlog.transactions.records import TransactionStatus

MARKERS_PER_REQUEST_MAX: Final = 1_000
BACKOFF_S: Final = (0.02, 0.5)
"""First and longest wait before a marker is retried: a fail-over takes less than a second."""


class MarkerLink(Protocol):
    """Calls to the nodes that lead the partitions."""

    async def write(self, node: BrokerId, markers: Sequence[PartitionMarker]) -> Sequence[MarkerOutcome]:
        """The outcome of each marker. StreamlogError: all outcomes are unknown."""
        ...

    async def take_back(self, node: BrokerId, grant: Grant) -> bool:
        """Whether a partition that `node` leads has used the grant. StreamlogError: unknown."""
        ...


class _Job:
    """The markers of one prepared end."""

    def __init__(self, shard: TransactionShard, prepared: PreparedEnd) -> None:
        self.shard = shard
        self.prepared = prepared
        self.missing = dict.fromkeys(sorted(prepared.value.partitions))
        self.ended: list[TopicPartition] = []  # partitions with records of the transaction
        self.fenced = False

    @property
    def is_finished(self) -> bool:
        shard, prepared = self.shard, self.prepared
        return self.fenced or not (shard.log.is_active and prepared.is_of(shard.values.get(prepared.transactional_id)))

    def done(self, partition: TopicPartition, *, ended: bool) -> None:
        self.missing.pop(partition, None)
        if ended:
            self.ended.append(partition)
        if not self.missing and not self.is_finished:
            self.shard.completed(self.prepared.transactional_id, self.prepared.value, frozenset(self.ended))


class _Item:
    """One marker to be written."""

    __slots__ = ("attempts", "job", "marker")

    def __init__(self, job: _Job, marker: PartitionMarker) -> None:
        self.job = job
        self.marker = marker
        self.attempts = 0


class MarkerWriter:
    """One for each node; `run` is a task of the coordinator."""

    def __init__(self, view: MetadataView, link: MarkerLink, random: Random, probe: Probe) -> None:
        self._view = view
        self._link = link
        self._random = random
        self._probe = probe
        self._tasks: asyncio.TaskGroup | None = None
        self._queues: dict[BrokerId, deque[_Item]] = {}  # each has a task, and is removed when empty

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            self._queues.clear()

    def write(self, shard: TransactionShard, prepared: PreparedEnd) -> Collection[TopicPartition]:
        """As coordinator.transaction_shard.MarkerQueue."""
        job = _Job(shard, prepared)
        start_unless_ending(self._tasks, self._begin(job))
        return job.missing.keys()

    async def _begin(self, job: _Job) -> None:
        """Wait until the decision is replicated; no marker may be written before."""
        attempt = 0
        while not job.is_finished:
            try:
                await job.shard.log.wait_until_safe()
                break
            except CoordinatorNotAvailableError:  # in the log, on too few replicas
                attempt += 1
                await self._pause(attempt)
            except StreamlogError:
                return
        if job.is_finished:
            return
        if not job.missing:
            job.shard.completed(job.prepared.transactional_id, job.prepared.value)
        value = job.prepared.value
        producer_id, producer_epoch = marker_of(value)
        marker = EndTransactionMarker(
            commit=value.state is TransactionStatus.PREPARE_COMMIT, coordinator_epoch=job.prepared.coordinator_epoch
        )
        for partition in tuple(job.missing):
            one = PartitionMarker(
                partition=partition,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                marker=marker,
                opens_next=partition in value.next_partitions,
            )
            self._route(_Item(job, one))

    def _route(self, item: _Item) -> None:
        if item.job.is_finished or self._tasks is None:
            return
        partition = item.marker.partition
        leader = self._leader_of(partition)
        if leader is None:
            item.job.done(partition, ended=False)
            return
        queue = self._queues.get(leader)
        if queue is None:
            queue = self._queues[leader] = deque()
            start_unless_ending(self._tasks, self._serve(leader, queue))
        queue.append(item)

    async def _serve(self, node: BrokerId, queue: deque[_Item]) -> None:
        """Until the queue is empty."""
        while queue:
            some = [queue.popleft() for _ in range(min(len(queue), MARKERS_PER_REQUEST_MAX))]
            some = [item for item in some if not item.job.is_finished]
            failed = await self._write(node, some) if some else []
            if failed:
                start_unless_ending(self._tasks, self._again(failed))
        del self._queues[node]

    async def _again(self, failed: list[_Item]) -> None:
        for item in failed:
            item.attempts += 1
        await self._pause(max(item.attempts for item in failed))
        for item in failed:
            self._route(item)

    async def _write(self, node: BrokerId, some: list[_Item]) -> list[_Item]:
        """The items to be retried."""
        outcomes: Sequence[MarkerOutcome]
        try:
            if node == NO_BROKER:
                raise LeaderNotAvailableError("these partitions have no leader")
            outcomes = await self._link.write(node, [item.marker for item in some])
        except StreamlogError as refused:
            outcomes = [MarkerOutcome(refused)] * len(some)
        failed = []
        for item, outcome in zip(some, outcomes, strict=True):
            if outcome.error is None:
                item.job.done(item.marker.partition, ended=outcome.ended)
            elif isinstance(outcome.error, TransactionCoordinatorFencedError | ProducerFencedError):
                self._on_fenced(item, outcome.error)
            else:
                failed.append(item)
        return failed

    def _on_fenced(self, item: _Item, error: StreamlogError) -> None:
        """A newer coordinator has ended this transaction: this one stops."""
        item.job.fenced = True
        self._probe(
            "transaction_marker_fenced",
            transactional_id=item.job.prepared.transactional_id,
            partition=str(item.marker.partition),
            reason=str(error),
        )

    async def _pause(self, attempt: int) -> None:
        """Longer each time; shorter when the metadata changes."""
        first_s, longest_s = BACKOFF_S
        pause_s = min(first_s * 2 ** min(attempt - 1, 16), longest_s) * self._random.uniform(0.8, 1.2)
        index = self._view.image.index
        try:
            async with timeout(pause_s):
                await self._view.wait_until(lambda image: image.index != index)
        except TimeoutError:
            return
        await asyncio.sleep(first_s)  # the nodes have applied the change by now

    # -- transactions opened in advance

    async def take_back(self, grant: Grant) -> bool:
        """As coordinator.transaction_shard.MarkerQueue."""
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for partition in grant.partitions:
            leader = self._leader_of(partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append(partition)
        if NO_BROKER in by_leader:
            raise LeaderNotAvailableError("some of the partitions have no leader")
        used = False
        for leader, partitions in by_leader.items():
            for first in range(0, len(partitions), MARKERS_PER_REQUEST_MAX):
                some = tuple(partitions[first : first + MARKERS_PER_REQUEST_MAX])
                used |= await self._link.take_back(leader, replace(grant, partitions=some))
        return used

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        """NO_BROKER where it has none. None where the partition has been deleted."""
        topic = self._view.image.topic_named(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[partition.partition].leader
