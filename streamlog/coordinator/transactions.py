"""The transaction coordinator of one node: which ids it coordinates, and which node coordinates the others.

It has a shard for each partition of `__transaction_state` that this node leads, and one marker writer for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from heapq import merge
from itertools import islice
from typing import Final

from streamlog.aio.group_tasks import start_unless_ending
from streamlog.aio.timeouts import timeout
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.config.settings import group_settings
from streamlog.coordinator.marker_writer import MarkerLink, MarkerWriter
from streamlog.coordinator.shards import Leaderships, Shards
from streamlog.coordinator.transaction_shard import ProducerIdSequence, TransactionShard
from streamlog.errors import InvalidRequestError, UnknownTopicOrPartitionError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, PartitionId, TopicPartition
from streamlog.ports import Ports
from streamlog.transactions.lifecycle import AddPartitions, Ended, EndTransaction, InitProducer, TransactionalProducer
from streamlog.transactions.records import TWO_PHASE, TransactionValue

TRANSACTIONS_TOPIC: Final = "__transaction_state"
APPLY_WAIT_S: Final = 2.0
"""For metadata that the leader of a partition has applied, and this node has not."""


class TransactionCoordinator:
    """`run` is a task of the node. All commands raise the errors of `TransactionShard`, and NotCoordinatorError."""

    def __init__(
        self,
        replicas: Leaderships,
        view: MetadataView,
        configs: NodeConfigs,
        producer_ids: ProducerIdSequence,
        link: MarkerLink,
        ports: Ports,
    ) -> None:
        self._view = view
        self._configs = configs
        self._clock = ports.clock
        self._tasks: asyncio.TaskGroup | None = None
        self._writer = MarkerWriter(view, link, ports.random, ports.probe)

        def make(replica: LeaderReplica) -> TransactionShard:
            return TransactionShard(
                replica, self._writer, producer_ids, self._expiration_ms, self._spawn, ports.clock, ports.probe
            )

        self._shards = Shards(TRANSACTIONS_TOPIC, "transactional id", replicas, view, make)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._writer.run())
                tasks.create_task(self._shards.run())
        finally:
            self._tasks = None

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        """Start a task in the group of `run`."""
        start_unless_ending(self._tasks, work)

    def _expiration_ms(self) -> int:
        return self._configs.node[group_settings.TRANSACTIONAL_ID_EXPIRATION_MS]

    def coordinator_of(self, transactional_id: str) -> BrokerId:
        """As `Shards.coordinator_of`."""
        return self._shards.coordinator_of(transactional_id)

    # -- commands; `timeout_s`: how long to wait for the previous transaction to complete

    async def init(self, command: InitProducer, timeout_s: float) -> TransactionalProducer:
        """InvalidRequestError: the time-out is too long, or two-phase commit is disabled."""
        limit = self._configs.node[group_settings.TRANSACTION_MAX_TIMEOUT_MS]
        if command.timeout_ms == TWO_PHASE:
            if not self._configs.node[group_settings.TRANSACTION_TWO_PHASE_COMMIT_ENABLE]:
                raise InvalidRequestError(
                    "two-phase commit is disabled; set transaction.two.phase.commit.enable on the nodes",
                    field="enable_two_phase_commit",
                )
        elif command.timeout_ms > limit:
            raise InvalidRequestError(
                f"transaction time-out {command.timeout_ms} ms exceeds transaction.max.timeout.ms, {limit} ms",
                field="transaction_timeout_ms",
                limit=limit,
            )
        return await self._shards.of(command.transactional_id).init(command, self._deadline(timeout_s))

    async def add_partitions(self, command: AddPartitions) -> None:
        """UnknownTopicOrPartitionError: this node does not know one of the partitions yet, or no more."""
        await self._until_known(command.partitions)
        await self._shards.of(command.transactional_id).add_partitions(command)

    async def _until_known(self, partitions: Iterable[TopicPartition]) -> None:
        """A partition that is unknown at the end of its transaction counts as deleted and gets no marker. A later
        coordinator knows what this one does: its leadership comes after it in the metadata log.
        """
        try:
            async with timeout(APPLY_WAIT_S):
                await self._view.wait_until(lambda image: all(map(image.has, partitions)))
        except TimeoutError:
            unknown = sorted(str(one) for one in partitions if not self._view.image.has(one))
            raise UnknownTopicOrPartitionError(
                f"the transaction coordinator does not know {', '.join(unknown[:10])}, and could not end the "
                "transaction there: created just before, or deleted; retry"
            ) from None

    async def end(self, command: EndTransaction, timeout_s: float) -> Ended:
        return await self._shards.of(command.transactional_id).end_transaction(command, self._deadline(timeout_s))

    async def abort(self, transactional_id: str, timeout_s: float) -> None:
        await self._shards.of(transactional_id).abort(transactional_id, self._deadline(timeout_s))

    async def describe(self, transactional_id: str) -> TransactionValue | None:
        return await self._shards.of(transactional_id).describe(transactional_id)

    def own_transactions(self, start: str, count: int) -> list[tuple[str, TransactionValue]]:
        """The first `count` behind the id `start`, of all loaded shards, by transactional id."""
        loaded = [shard for shard in self._shards if shard.log.is_active]
        some = merge(*(shard.transactions_behind(start) for shard in loaded), key=lambda pair: pair[0])
        return list(islice(some, count))

    def coordinated(self) -> Callable[[], list[PartitionId]]:
        """Call the result later: the partitions of `__transaction_state` whose ids have been in `own_transactions` ever
        since.
        """
        loaded = [shard for shard in self._shards if shard.log.is_active]
        return lambda: sorted(shard.log.replica.partition.partition for shard in loaded if shard.log.is_active)

    def _deadline(self, timeout_s: float) -> float:
        return self._clock.monotonic() + timeout_s
