"""The member that a Consume call keeps in its group: the Python client's reader and group, on this node's ports.

It gives partitions up when the client has: the call decides when, by `give_up`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from streamlog.api.convert.records.consume import ConsumeJoin
from streamlog.client import settings as client_config
from streamlog.client.consumer.assigned_reader import AssignedReader
from streamlog.client.consumer.consumer_records import ConsumerBatch
from streamlog.client.consumer.corrupt_batches import CorruptBatches
from streamlog.client.consumer.partition_reader import PartitionReader
from streamlog.client.groups.consumer_group import ConsumerGroup, ToCommit
from streamlog.client.groups.rebalancing import Listeners
from streamlog.config import load_consumer
from streamlog.errors import CorruptBatchError, MaxPollIntervalError
from streamlog.model import PartitionId, TopicPartition
from streamlog.ports import Ports
from streamlog.services.records.consuming.consume_status import MemberStanding

_HEARTBEAT_MS: Final = 3_000
_FETCH_BYTES: Final = 4 << 20
"""Fetched ahead of the credits."""


class ConsumeMember:
    """A member whose records are processed by a client: it gives up partitions when the client has."""

    def __init__(
        self,
        wanted: ConsumeJoin,
        servers: str,
        ports: Ports,
        give_up: Callable[[Iterable[TopicPartition]], Coroutine[Any, Any, None]],
        serving_epoch: int = 0,
    ) -> None:
        """`serving_epoch`: this node's broker epoch. When the node fails, the member is removed."""
        session_ms = wanted.session_timeout_ms
        optional = {
            "group.instance.id": wanted.instance_id,
            "group.remote.assignor": wanted.assignor,
            "client.rack": wanted.rack,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": min(_HEARTBEAT_MS, max(1, session_ms // 3)) if session_ms else 0,
        }
        config = client_config.loaded(
            load_consumer,
            {
                "bootstrap.servers": servers,
                "group.id": wanted.group,
                "client.id": wanted.client_id,
                "enable.auto.commit": False,
                "auto.offset.reset": wanted.offset_reset,
                "isolation.level": wanted.isolation_level.name.lower(),
                "max.poll.interval.ms": wanted.processing_timeout_ms,
                "fetch.max.bytes": _FETCH_BYTES,
                "on.corrupt.batch": "skip" if wanted.skip_corrupt else "fail",
                **{name: value for name, value in optional.items() if value},
            },
            {},
        )
        self._name = wanted.group
        self._give_up = give_up
        self._serving_epoch = serving_epoch
        self._skipped: list[CorruptBatchError] = []  # reported to the client, not in this node's log
        self._corrupt = CorruptBatches(skip=wanted.skip_corrupt, report=self._skipped.append)
        self._reader = AssignedReader(config, ports, self._corrupt)
        self.activity = 0
        """How many messages of the client were received."""
        self.idle = True  # the client has no records to process, so it cannot be too slow

    def start(self, wanted: ConsumeJoin, listeners: Listeners) -> None:
        """Join the group."""
        self._reader.open()
        self._group = ConsumerGroup(
            self._name,
            self._reader,
            activity=lambda: (self.activity, self.idle),
            before_revoke=self._give_up,
            serving_epoch=self._serving_epoch,
        )
        self._reader.run_in_background(self._group.work())
        self._group.subscribe(wanted.topics, wanted.pattern or None, listeners)

    async def close(self, timeout_s: float) -> None:
        """Leave the group."""
        try:
            if self._reader.is_running:
                await self._group.close(timeout_s, processed=True)
        finally:
            await self._reader.close()

    @property
    def member_id(self) -> str | None:
        """None: not a member now."""
        return self._group.member_id

    @property
    def member_epoch(self) -> int | None:
        """None: not a member now."""
        return self._group.member_epoch

    @property
    def was_silent(self) -> bool:
        """It was lost because its client has sent nothing for its processing timeout."""
        return isinstance(self._group.membership.error, MaxPollIntervalError)

    @property
    def standing(self) -> MemberStanding:
        membership = self._group.membership
        is_member = membership.who() is not None
        return MemberStanding(
            is_member=is_member,
            trouble=None if is_member else membership.retried_error,
            assigned=len(membership.owned),
        )

    def reader(self, partition: TopicPartition) -> PartitionReader | None:
        """None: not assigned now."""
        return self._reader.fetcher.readers.get(partition)

    def take_skipped(self, left: TopicPartition | None) -> list[CorruptBatchError]:
        """Those since the last call that reading has come to. Prefetched batches before one, and the rest of a batch of
        `left`, have to be sent first.
        """
        taken = [one for one in self._skipped if self._has_come_to(one, left)]
        self._skipped[:] = [one for one in self._skipped if one not in taken]
        return taken

    def _has_come_to(self, skipped: CorruptBatchError, left: TopicPartition | None) -> bool:
        partition = TopicPartition(skipped.topic, PartitionId(skipped.partition))
        reader = self.reader(partition)
        if reader is None:
            return True  # it is no longer assigned
        return partition != left and reader.position is not None and reader.position >= skipped.offset

    def forget_skipped(self, partitions: Sequence[TopicPartition]) -> None:
        """Of partitions that are given up: when they come back, they are read from what is committed then."""
        kept = [one for one in self._skipped if TopicPartition(one.topic, PartitionId(one.partition)) not in partitions]
        self._skipped[:] = kept
        self._corrupt.forget(partitions)

    def wake(self) -> None:
        """`next_batch` looks again."""
        self._reader.fetcher.wake()

    def on_activity(self) -> None:
        """A message of the client was received."""
        self.activity += 1

    async def settle_until(self, done: asyncio.Future[None]) -> None:
        """Partitions are assigned and revoked. `wake` has to be called when it is done. Raises what the coordinator
        refuses.
        """
        while not done.done():
            self._reader.check_open()
            await self._group.settle()
            if not done.done():
                await self._reader.fetcher.wait_for_change()

    async def next_batch(self, wanted: Callable[[], bool]) -> ConsumerBatch | None:
        """When it is ready, and wanted; meanwhile partitions are assigned and revoked. None: look again. Raises what
        the coordinator refuses, and the error of a partition.
        """
        reader, group = self._reader, self._group
        reader.check_open()
        await group.settle()
        if reader.fetcher.ready:
            if wanted():
                reader.in_flight.clear()
                return reader.take_batch()
        else:
            group.raise_error()
        if not reader.interrupted:
            await reader.fetcher.wait_for_change()
        return None

    async def commit(self, offsets: ToCommit) -> None:
        """As AsyncConsumer.commit."""
        self._reader.check_open()
        await self._group.commit(offsets)
