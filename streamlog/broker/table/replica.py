"""One partition on this node: from the assigned state to the actual one.

    assigned        actual                  transition
    --------------  ----------------------  ------------------------------------------------------------------
    nothing         a log                   removed (`-delete`; if it was there at the start: `-stray`, and kept)
    topic A         a log of topic B        as above, then as below
    topic A         no log                  created, with the topic's id in it; if it may be on a missing disk:
                                            offline, unless the partition was assigned to this node just now
    leads           damage in the log       reported offline, so that another replica leads: followers of a leader
                                            that lacks records truncate theirs. The only replica leads without appends
    leads           elected as complete,    likewise: it has truncated what differed from its leader's log, and that
                    but is incomplete       leader was lost before this one was in sync again
    any leader      producers to restore    restored, after an interrupted truncation; then leading, or following
    follows         damage in the log       truncated, then following: the leader has the records
    any             a copy that caught up   swapped, once there is no role (`log_moves`); then the role
    no leader                               no role

`assign` ends a role that is not assigned any more at once, synchronously. What takes time is done in one task
(`_work`), which looks up the assignment after each wait; a role is taken in one step, without a wait after the
last look-up.
No role begins while the log is being truncated for a previous one.

Offline is final until the node restarts, as for a log directory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from msgspec import Struct

from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.leading.leader_replica import IsrProposer, LeaderReplica
from streamlog.broker.repair.log_repairs import Repairs
from streamlog.broker.table.partition_metadata import write_topic_id
from streamlog.broker.table.replica_creations import ReplicaCreations
from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import (
    CorruptMessageError,
    NotLeaderError,
    StorageError,
    StreamlogError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.configs.rules import effective_min_isr, others_eligible
from streamlog.metadata.records import Partition
from streamlog.metrics import Traffic
from streamlog.model import NO_BROKER, BrokerId, Offset, TopicId, TopicPartition
from streamlog.ports import Ports
from streamlog.replication.leader import LeaderTerm
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.directories.log_move import LogMove
from streamlog.storage.log.log import Log


class Assignment(Struct, frozen=True, kw_only=True):
    """A partition's metadata, this node being one of its replicas."""

    topic_id: TopicId
    partition: Partition


class ReplicaFollowing(Protocol):
    """The streams on which this node follows others. Both methods are synchronous; the links' own tasks do the work."""

    def follow(self, replica: FollowerReplica) -> None: ...

    def unfollow(self, replica: FollowerReplica) -> None:
        """From now on no method of the replica may be called; one that is in progress may end."""
        ...


class ReplicaContext(Struct, frozen=True, kw_only=True):
    """What all replicas of a node share."""

    me: BrokerId
    repairs: Repairs
    ports: Ports
    directories: LogDirectories
    creations: ReplicaCreations
    links: ReplicaFollowing
    isr_proposer: IsrProposer
    settings_of: Callable[[str], TopicSettings]  # by topic
    lag_max_ms: Callable[[], int]  # replica.lag.time.max.ms
    is_active: Callable[[BrokerId], bool]  # registered, neither fenced nor stopping
    address_of: Callable[[BrokerId], str | None]
    spawn: Callable[[Coroutine[object, object, None]], None]  # a task that is cancelled when the table stops
    role_changed: Callable[[Replica], None]
    went_offline: Callable[[], None]
    forget_high_watermark: Callable[[TopicPartition], Awaitable[None]]
    traffic: Traffic


class Replica:
    """Owned by `Replicas`. One event loop."""

    def __init__(self, context: ReplicaContext, partition: TopicPartition) -> None:
        self._context = context
        self.partition = partition
        self.assigned: Assignment | None = None
        self.log: Log | None = None
        self.topic_id: TopicId | None = None  # of the log; None: no log, or one without an id
        self.leader: LeaderReplica | None = None
        self.follower: FollowerReplica | None = None  # at most one of the two
        self.offline: StorageError | None = None
        self.unfit: StorageError | None = None  # damaged, and may not lead; it may follow, which repairs it
        self.closing = False  # the log is being removed
        self._fresh = False  # assigned while the node runs: its log is on no missing disk
        self._eligible = True  # in sync or eligible before it was elected, unless the metadata said otherwise
        self._stray = False  # the log was there at the start and has not been assigned since
        self._unrestored: StorageError | None = None  # why the producers' state is missing: damage, not yet repaired
        self._set_aside = False  # the log found at the start: it names another topic, of the same name or by damage
        self._ending: FollowerReplica | None = None  # ended, with a truncation that may be in progress
        self._last_high_watermark = Offset(0)  # of the last role, or of the checkpoint
        self._move: LogMove | None = None  # to another log directory: the copy has caught up
        self._swapping = False
        self._completed = False  # while swapping: it has joined, which is noted in the log that is used afterwards
        self._working = False

    def found(self, log: Log, topic_id: TopicId | None, high_watermark: Offset) -> None:
        """At the start: a log is on the disk."""
        self.log, self.topic_id = log, topic_id
        self._last_high_watermark = Offset(min(high_watermark, log.log_end_offset))
        self._stray = True

    @property
    def high_watermark(self) -> Offset:
        if self.leader is not None:
            return self.leader.high_watermark
        return self._last_high_watermark if self.follower is None else self.follower.high_watermark

    @property
    def _displaced(self) -> bool:
        """The log that was set aside may have been this topic's. Not if that was assigned while the node runs."""
        return self._set_aside and not self._fresh

    @property
    def is_removed(self) -> bool:
        """Neither assigned nor on the disk."""
        return self.assigned is None and self.log is None and not self._working

    @property
    def is_unreported(self) -> bool:
        """It cannot serve, and the metadata do not have it offline."""
        assigned, me = self.assigned, self._context.me
        return self.refusal is not None and assigned is not None and me not in assigned.partition.offline

    @property
    def refusal(self) -> StorageError | None:
        """Why it cannot serve."""
        return self.offline if self.offline is not None else self.unfit

    # -- from the table

    def assign(self, assigned: Assignment | None, *, fresh: bool = False) -> None:
        """By the metadata. `fresh`: the partition was not on this node before."""
        joined, role = self._has_joined(assigned), self.follower or self._ending
        self._note_eligible(assigned)
        self.assigned = assigned
        self._unrestored = None
        self._fresh = assigned is not None and (fresh or self._fresh)
        if assigned is not None and self.log is not None and assigned.topic_id == self.topic_id:
            self._stray = False
        self._leave()
        if joined:
            self._set_aside = False
            if role is None or role.has_what_it_had:
                self._note_complete()
            if self.follower is not None:
                self.follower.on_joined()
        if self.is_unreported:
            self._context.went_offline()
        if not self._working:
            self._settle()

    def _note_eligible(self, assigned: Assignment | None) -> None:
        """Also where it joins and is elected in one step: before an unclean election there is no leader."""
        if assigned is None:
            return
        me, partition = self._context.me, assigned.partition
        if partition.leader != me:
            self._eligible = me in (*partition.isr, *partition.elr)
        elif self.assigned is not None and self.assigned.partition.leader not in (NO_BROKER, me):
            self._eligible = True

    def _has_joined(self, assigned: Assignment | None) -> bool:
        """Whether the replica has entered the ISR as a follower. Only by a change: the first image says nothing of what
        this start of the node has copied.
        """
        before, me = self.assigned, self._context.me
        if before is None or assigned is None or before.topic_id != assigned.topic_id:
            return False
        if assigned.partition.leader == me:
            return False  # by an election
        return me in assigned.partition.isr and me not in before.partition.isr

    def _note_complete(self) -> None:
        if self.log is None or self.offline is not None:
            return
        if self._swapping:  # its files are being copied
            self._completed = True
            return
        try:
            self.log.note_complete()
        except StorageError as error:
            self.fail(error)

    def on_settings(self, settings: TopicSettings) -> None:
        """The topic's configuration may have changed."""
        log = self.log
        if log is None or self.offline is not None:
            return
        log.config = settings.log
        if settings.log.syncs_each_append and log.durability.unsynced_bytes:
            log.durability.request()
        if self.leader is not None and self.assigned is not None:
            self.leader.on_settings(settings)
            self._update_leader(self.leader, self.assigned.partition)
        if self.follower is not None:
            self.follower.on_ackable_end()  # another flush policy may raise it

    def fail(self, error: StorageError) -> None:
        """The replica is offline until the node restarts. Idempotent."""
        if self.offline is not None:
            return
        self.offline = error
        self._context.ports.probe("replica_offline", partition=str(self.partition), reason=str(error))
        self._end(error)
        self._context.went_offline()

    def hand_over(self, error: StorageError) -> None:
        """The damage here cannot be repaired, and another replica is in sync: it should lead. As a follower this one
        is repaired further.
        """
        if self.leader is not None and self.offline is None:
            self._become_unfit(error)

    def swap(self, move: LogMove) -> None:
        """The copy has caught up: it takes the log's place when there is no role. A follower's role ends for that; a
        leader's only with its leader epoch, because a leadership does not begin twice in the same one.
        """
        if self.log is not move.log or self.offline is not None:
            return
        self._move = move
        if self.follower is not None:
            self._end(StorageError(f"{self.partition} moves to another log directory"))
        if not self._working:
            self._settle()

    def withdraw(self, move: LogMove) -> bool:
        """Whether its swap has not begun, and will not."""
        if self._move is move:
            self._move = None
        return not move.is_swapping

    def stop(self, error: StreamlogError) -> None:
        """The node stops: end the role."""
        self._end(error)

    # -- ending a role

    def _leave(self) -> None:
        """End the role if it is not assigned any more; a leader that stays gets the changed metadata."""
        leader, follower, assigned = self.leader, self.follower, self.assigned
        if leader is not None:
            if assigned is not None and self._is_role_of(leader, assigned, self._context.me):
                self._update_leader(leader, assigned.partition)
            else:
                self._end(self._end_reason(assigned))
        elif follower is not None and (assigned is None or not self._is_role_of(follower, assigned, follower.leader)):
            self._end(self._end_reason(assigned))

    def _is_role_of(self, role: LeaderReplica | FollowerReplica, assigned: Assignment, leader: BrokerId) -> bool:
        partition = assigned.partition
        return (role.topic_id, leader, role.leader_epoch) == (
            assigned.topic_id,
            partition.leader,
            partition.leader_epoch,
        )

    def _end_reason(self, assigned: Assignment | None) -> StreamlogError:
        if assigned is None or (self.topic_id is not None and assigned.topic_id != self.topic_id):
            return UnknownTopicOrPartitionError(
                f"{self.partition} has no replica on this node any more", field="partition"
            )
        return not_leader(self.partition, assigned.partition, self._context.address_of)

    def _end(self, error: StreamlogError) -> None:
        leader, follower = self.leader, self.follower
        if leader is None and follower is None:
            return
        self._last_high_watermark = self.high_watermark
        self.leader = self.follower = None
        if self.log is not None:
            self.log.durability.listen(_no_listener)
        if follower is not None:
            follower.end()
            self._ending = follower
            self._context.links.unfollow(follower)
        if leader is not None:
            leader.end(error)
        self._context.role_changed(self)

    # -- work that waits

    def _settle(self) -> None:
        if self._step() is None:
            self._take_role()
        else:
            self._working = True
            self._context.spawn(self._work())

    async def _work(self) -> None:
        try:
            while (step := self._step()) is not None:
                await step()
        except StorageError as e:
            self.fail(e)
        finally:
            self._working = False
        self._take_role()

    def _step(self) -> Callable[[], Awaitable[None]] | None:
        """The next thing to wait for; None: the role can be taken."""
        assigned, log = self.assigned, self.log
        if self.offline is not None:
            return None
        if self._ending is not None and self._ending.busy:
            return self._wait_for_ending
        if log is not None and (assigned is None or self.topic_id not in (None, assigned.topic_id)):
            return self._remove
        if assigned is None or self.leader is not None or self.follower is not None:
            return None
        if log is None:
            return self._create if self._fresh or not self._context.directories.offline else None
        if self.topic_id is None:
            return self._identify
        leader = assigned.partition.leader
        if log.damage is not None:
            settings = self._context.settings_of(self.partition.topic).log
            is_torn_tail = log.torn_unless_synced and not settings.syncs_each_append
            return log.discard_damage if is_torn_tail or leader not in (self._context.me, NO_BROKER) else None
        if log.derived.producers_stale and self._unrestored is None:
            return self._restore_producers
        return self._swap if self._move is not None and self._move.log is log else None

    async def _wait_for_ending(self) -> None:
        """What it has appended or truncated after its role ended counts: the high watermark is that of the log."""
        ending = self._ending
        assert ending is not None
        await ending.wait_until_idle()
        self._last_high_watermark = ending.high_watermark

    async def _remove(self) -> None:
        self.closing = True
        try:
            await self._context.forget_high_watermark(self.partition)
            if self.assigned is None or self.assigned.topic_id != self.topic_id:
                self._context.ports.probe("replica_removed", partition=str(self.partition), stray=self._stray)
                await self._context.directories.remove_log(self.partition, stray=self._stray)
                self.log = self.topic_id = self.unfit = None
                self._last_high_watermark = Offset(0)
                self._set_aside = self._stray and self.assigned is not None
                self._stray = False
        finally:
            self.closing = False

    async def _create(self) -> None:
        assigned = self.assigned
        async with self._context.creations.slot(lambda: self.assigned is assigned) as wanted:
            if wanted and assigned is not None:
                await self._create_for(assigned)

    async def _create_for(self, assigned: Assignment) -> None:
        settings = self._context.settings_of(self.partition.topic)
        log = await self._context.directories.create_log(self.partition, settings.log)
        if self._displaced:
            await log.note_incomplete()  # its end proves nothing
        self.log = log
        await self._write_topic_id(log, assigned.topic_id)

    async def _identify(self) -> None:
        """A log without a topic id: its creation was interrupted, or another program has put it there."""
        assert self.log is not None
        assert self.assigned is not None
        await self._write_topic_id(self.log, self.assigned.topic_id)
        self._stray = False

    async def _write_topic_id(self, log: Log, topic_id: TopicId) -> None:
        try:
            await write_topic_id(self._context.ports.fs, log.directory, topic_id)
        except OSError as e:
            raise self._directory(log).fail(e) from e
        self.topic_id = topic_id

    async def _restore_producers(self) -> None:
        assert self.log is not None
        try:
            await self.log.restore_producers()
        except CorruptMessageError as error:  # as a follower it tries again
            self._unrestored = StorageError(
                f"{self.partition} is damaged, so the state of its producers cannot be restored: {error}"
            )

    async def _swap(self) -> None:
        """The log that is used from now on has the same records, so the high watermark is the same."""
        move, self._move = self._move, None
        assert move is not None
        self._swapping, self._completed = True, False
        try:
            self.log = await move.swap(self._context.settings_of(self.partition.topic).log)
            self.log.config = self._context.settings_of(self.partition.topic).log  # it may have changed meanwhile
            self._swapping = False
            if self._completed:
                self._note_complete()
            await self._context.forget_high_watermark(self.partition)  # in the checkpoint of the other directory
        finally:
            self._swapping = False
            move.settled.set()

    def _directory(self, log: Log) -> LogDirectory:
        return next(one for one in self._context.directories if one.logs.get(self.partition) is log)

    # -- taking a role

    def _take_role(self) -> None:
        assigned, log = self.assigned, self.log
        if assigned is None or self.offline is not None:
            self._context.role_changed(self)
            return
        if self.leader is not None or self.follower is not None:
            return
        partition = assigned.partition
        if log is None:
            missing = ", ".join(self._context.directories.offline)
            self.fail(StorageError(f"{self.partition} may be in a log directory that is offline: {missing}"))
            return
        log.config = self._context.settings_of(self.partition.topic).log
        if partition.leader == self._context.me:
            unfit = self._unfit_to_lead(log, alone=len(partition.replicas) == 1)
            if unfit is not None:
                self._become_unfit(unfit)
                return
            self._set_aside = False
            self._note_complete()
            if self.offline is None:
                self._lead(log, assigned)
        elif partition.leader != NO_BROKER:
            self._follow(log, assigned)

    def _unfit_to_lead(self, log: Log, *, alone: bool) -> StorageError | None:
        """Why it must not lead. `alone`: there is no other replica."""
        if log.damage is not None and not alone:
            return StorageError(f"{self.partition} is damaged and cannot lead: {log.damage}")
        if self._displaced and self._eligible and not alone:
            reason = "its directory named another topic at the start and was set aside (-stray)"
            return StorageError(f"{self.partition} is empty and cannot lead: {reason}")
        if log.incomplete and self._eligible and not alone:
            return StorageError(
                f"{self.partition} may lack acknowledged records and cannot lead: its end was truncated because it "
                "differed from the leader's log, and it has not been in sync since: start the node of the former leader"
                ", then restart this one, so that the other may be elected"
            )
        return self._unrestored if log.derived.producers_stale else None

    def _become_unfit(self, error: StorageError) -> None:
        if self.unfit is None:
            self._context.ports.probe("replica_unfit", partition=str(self.partition), reason=str(error))
        self.unfit = error
        self._context.went_offline()

    def _lead(self, log: Log, assigned: Assignment) -> None:
        context, partition = self._context, assigned.partition
        settings = context.settings_of(self.partition.topic)
        term = LeaderTerm(
            partition=self.partition,
            me=context.me,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            min_insync_replicas=effective_min_isr(settings.min_insync_replicas, partition),
            others_eligible=others_eligible(partition),
            lag_max_ms=context.lag_max_ms(),
        )
        self.leader = LeaderReplica(
            assigned.topic_id,
            log,
            term,
            settings,
            high_watermark=self._last_high_watermark,
            clock=context.ports.clock,
            workers=context.ports.workers,
            isr_proposer=context.isr_proposer,
            may_join=self._may_join,
            traffic=context.traffic.of(self.partition.topic),
            repairs=context.repairs,
        )
        context.ports.probe("leading", partition=str(self.partition), leader_epoch=partition.leader_epoch)
        context.role_changed(self)

    def _follow(self, log: Log, assigned: Assignment) -> None:
        partition = assigned.partition
        self.unfit = None
        self.follower = FollowerReplica(
            assigned.topic_id,
            log,
            partition.leader,
            partition.leader_epoch,
            self._last_high_watermark,
            self._context.traffic.of(self.partition.topic),
        )
        self._context.ports.probe(
            "following",
            partition=str(self.partition),
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
        )
        self._context.role_changed(self)
        self._context.links.follow(self.follower)

    def _may_join(self, broker: BrokerId) -> bool:
        offline = () if self.assigned is None else self.assigned.partition.offline
        return broker not in offline and self._context.is_active(broker)

    def _update_leader(self, leader: LeaderReplica, partition: Partition) -> None:
        leader.on_partition(partition, effective_min_isr(leader.settings.min_insync_replicas, partition))


def not_leader(
    partition: TopicPartition, state: Partition, address_of: Callable[[BrokerId], str | None]
) -> NotLeaderError:
    """With the current leader, as far as it is known."""
    address = address_of(state.leader)
    who = "it has no leader now" if state.leader == NO_BROKER else f"node {state.leader} does"
    details: dict[str, object] = {"leader_epoch": state.leader_epoch}
    if state.leader != NO_BROKER:
        details["leader"] = state.leader
    if address is not None:
        details["address"] = address
    return NotLeaderError(f"this node does not lead {partition}: {who}", **details)


def _no_listener(_: Offset) -> None:
    """The log has neither a leader nor a follower."""
