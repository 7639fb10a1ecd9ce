"""One partition followed under one leader epoch.

    following --end--> ended: every call but the one in progress is refused

The pure decisions are `replication.follower`'s. This object notifies the link when the ackable end has risen, and
tracks truncations, because another role must not begin during one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamlog.errors import CorruptMessageError, DamagedFileError, FencedLeaderEpochError
from streamlog.metrics import TopicTraffic
from streamlog.model import INT64_MAX, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from streamlog.ports import Buffer
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.follower import FetchPosition, PartitionFollower
from streamlog.replication.joining import UnprovenEpochs
from streamlog.storage.log.batch_lookup import last_batches
from streamlog.storage.log.log import Log


def _no_listener() -> None:
    """No link listens."""


class FollowerReplica:
    """Made and ended by its `Replica`, driven by the links. One event loop; its methods never run concurrently."""

    __slots__ = (
        "_had_end",
        "_idle",
        "_truncations",
        "ended",
        "follower",
        "leader",
        "leader_epoch",
        "log",
        "on_ackable_end",
        "on_joined",
        "on_start_saved",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic_id: TopicId,
        log: Log,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        high_watermark: Offset,
        traffic: TopicTraffic,
    ) -> None:
        """`high_watermark`: as this replica last knew it."""
        self.topic_id = topic_id
        self.log = log
        self.traffic = traffic
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.follower = PartitionFollower(log, leader_epoch, high_watermark=high_watermark)
        self.on_ackable_end: Callable[[], None] = _no_listener  # set by the link; must not raise
        self.on_start_saved: Callable[[], None] = _no_listener  # likewise
        self.on_joined: Callable[[], None] = _no_listener  # likewise: this replica has entered the ISR
        self.ended = False
        self._had_end = Offset(0)  # it had all below when it last truncated what differed
        self._truncations = 0  # in progress
        self._idle = asyncio.Event()
        self._idle.set()
        log.durability.listen(self._on_synced)
        log.start_saved = self._on_start_saved

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def high_watermark(self) -> Offset:
        return self.follower.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Below this replica's high watermark."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def saved_log_start(self) -> Offset:
        """The log start that this replica has after a crash."""
        return self.log.owner.saved_log_start(self.log)

    @property
    def is_incomplete(self) -> bool:
        """It has truncated what differed from a leader's log, and did not join the ISR since."""
        return self.log.incomplete

    @property
    def has_what_it_had(self) -> bool:
        """Whether it has copied again what it truncated. Otherwise a join was proposed before that."""
        return not self.busy and self.log.log_end_offset >= self._had_end

    def position(self) -> FetchPosition:
        """Where to continue."""
        return self.follower.position()

    def on_batches(self, batches: Buffer, leader_high_watermark: Offset, leader_log_start: Offset) -> None:
        """As `PartitionFollower.on_batches`, and its errors; FencedLeaderEpochError once this has ended."""
        if self.ended:
            self._check()
        follower, size = self.follower, len(batches)
        follower.on_batches(batches, leader_high_watermark, leader_log_start)
        self.traffic.replicated_in += size
        self.log.last_stable_offset(follower.high_watermark)  # lets the log forget the transactions that it settles
        if size and not self.log.config.syncs_each_append:
            self.on_ackable_end()

    async def on_diverging(self, leader_epoch: LeaderEpoch, leader_end: Offset) -> None:
        """As `PartitionFollower.on_diverging`."""
        self._check()
        self._begin_truncation()
        try:
            await self.follower.on_diverging(leader_epoch, leader_end)
        finally:
            self._end_truncation()

    async def restore_producers(self) -> None:
        """Where a truncation could not, because of damage. CorruptMessageError: it is still there; StorageError."""
        if self.log.derived.producers_stale:
            await self.log.restore_producers()

    async def held(self, count: int) -> list[HeldBatch]:
        """The last batches of the log for the leader to compare, as far as they are readable and consistent.
        StorageError.
        """
        try:
            found = await last_batches(self.log, count)
        except (CorruptMessageError, DamagedFileError):
            return []  # a reader of this range finds the damage, and it is repaired
        end, held = -1, []
        for one in found:
            if not max(end, 0) <= one.base_offset < one.next_offset <= INT64_MAX:
                break  # the leader notices that something is missing
            held.append(one)
            end = one.next_offset
        return held

    def unproven_epochs(self, count: int) -> UnprovenEpochs | None:
        """For the leader to compare, the last `count`: damage of a batch's epoch, which its CRC does not cover, may not
        show in what recovery has read. None where there are none, or where offsets may be missing: replicas may note
        the epochs of such a log at other offsets.
        """
        log = self.log
        if log.unproven_from is None or log.has_gaps:
            return None
        begin = max(log.unproven_from, log.log_start_offset)
        if begin >= log.log_end_offset:
            return None
        later = [entry for entry in log.epochs.entries if entry.start_offset > begin]
        if len(later) >= count:
            return UnprovenEpochs(later[-count].start_offset, later[-count:])
        epoch = log.epochs.epoch_of(begin)
        return UnprovenEpochs(begin, later if epoch == NO_LEADER_EPOCH else [(epoch, begin), *later])

    async def on_differing(self, offset: Offset) -> None:
        """As `PartitionFollower.on_differing`. What is truncated may have been acknowledged, and this replica may be
        elected before it has it again: so the log is noted as incomplete first.
        """
        self._check()
        self._begin_truncation()
        self._had_end = max(self._had_end, self.high_watermark)  # what is above was not acknowledged without it
        try:
            await self.log.note_incomplete()
            self._check()
            await self.follower.on_differing(offset)
        finally:
            self._end_truncation()

    async def on_out_of_range(self, leader_start: Offset, leader_end: Offset) -> None:
        """As `PartitionFollower.on_out_of_range`."""
        self._check()
        self._begin_truncation()
        try:
            await self.follower.on_out_of_range(leader_start, leader_end)
        finally:
            self._end_truncation()

    async def on_straddling(self, batches: Buffer, leader_high_watermark: Offset, leader_log_start: Offset) -> None:
        """As `PartitionFollower.on_straddling`, and its errors."""
        self._check()
        self._begin_truncation()
        try:
            await self.follower.on_straddling(batches, leader_high_watermark, leader_log_start)
        finally:
            self._end_truncation()

    def end(self) -> None:
        """Another leader epoch, another role, or none. A truncation in progress is completed: `wait_until_idle`."""
        self.ended = True
        self.on_ackable_end = self.on_start_saved = _no_listener

    @property
    def busy(self) -> bool:
        """A truncation is in progress."""
        return self._truncations > 0

    async def wait_until_idle(self) -> None:
        await self._idle.wait()

    def _check(self) -> None:
        if self.ended:
            raise FencedLeaderEpochError(
                f"{self.partition}: leader epoch {self.leader_epoch} has ended: it is not followed any more",
                field="leader_epoch",
            )

    def _begin_truncation(self) -> None:
        self._truncations += 1
        self._idle.clear()

    def _end_truncation(self) -> None:
        self._truncations -= 1
        if not self._truncations:
            self._idle.set()

    def _on_synced(self, synced_end: Offset) -> None:
        self.on_ackable_end()

    def _on_start_saved(self) -> None:
        self.on_start_saved()
