"""One partition on this node: from what the metadata wants to what is.

    wanted          what there is           what is done about it
    --------------  ----------------------  ------------------------------------------------------------------
    nothing         a log                   removed (`-delete`; found at the start already: `-stray`, and kept)
    topic A         a log of topic B        as above, then as below
    topic A         no log                  made, with the topic's id in it; where a disk is missing on which it may
                                            be: offline, unless the partition has come to this node just now
    leader is me    damage in the log       told as offline, so that another replica leads: who follows a leader that
                                            lacks records cuts its own. The only replica leads, and appends nothing
    a leader        producers to restore    restored, where a cut was left half done; then leading, or following
    leader is it    damage in the log       cut away, then following: the leader has the records
    no leader                               neither

`want` ends at once, synchronously, what is wanted no more. What takes time is done in one task (`_work`), which asks
after each wait what is wanted by then; roles are taken in one step, without a wait between the last look and the deed.
No role begins while the log is being cut on behalf of a former one.

Offline is final until the node starts again, as it is for a log directory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from msgspec import Struct

from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.leading.leader_replica import IsrProposer, LeaderReplica
from streamlog.broker.repair.log_repairs import Repairs
from streamlog.broker.table.partition_metadata import write_identity
from streamlog.broker.topic_settings import TopicSettings
from streamlog.errors import NotLeaderError, StorageError, StreamlogError, UnknownTopicOrPartitionError
from streamlog.metadata.configs.rules import effective_min_isr
from streamlog.metadata.records import Partition
from streamlog.metrics import Traffic
from streamlog.model import NO_BROKER, BrokerId, Offset, TopicId, TopicPartition
from streamlog.ports import Ports
from streamlog.replication.leader import LeaderTerm
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log


class Assignment(Struct, frozen=True, kw_only=True):
    """What the metadata wants of a partition on this node, which is one of its replicas."""

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
    links: ReplicaFollowing
    isr_proposer: IsrProposer
    settings_of: Callable[[str], TopicSettings]  # by topic
    lag_max_ms: Callable[[], int]  # replica.lag.time.max.ms
    is_active: Callable[[BrokerId], bool]  # registered, neither fenced nor stopping
    address_of: Callable[[BrokerId], str | None]
    spawn: Callable[[Coroutine[object, object, None]], None]  # a task that lives as long as the table runs
    role_changed: Callable[[Replica], None]
    went_offline: Callable[[], None]
    forget_high_watermark: Callable[[TopicPartition], Awaitable[None]]
    traffic: Traffic


class Replica:
    """Owned by `Replicas`. One event loop."""

    def __init__(self, surroundings: ReplicaContext, partition: TopicPartition) -> None:
        self._around = surroundings
        self.partition = partition
        self.wanted: Assignment | None = None
        self.log: Log | None = None
        self.topic_id: TopicId | None = None  # that the log is of; None: no log, or one that says nothing
        self.leader: LeaderReplica | None = None
        self.follower: FollowerReplica | None = None  # at most one of the two
        self.offline: StorageError | None = None
        self.unfit: StorageError | None = None  # damaged, and may not lead; it may follow, and is repaired then
        self.closing = False  # the log is being removed
        self._fresh = False  # has come to this node while it ran: if there is no log here, there is none elsewhere
        self._stray = False  # the log was found at the start and has not been claimed since
        self._ending: FollowerReplica | None = None  # ended, with a cut that may be under way
        self._last_high_watermark = Offset(0)  # of the last role, or of the checkpoint
        self._working = False

    def found(self, log: Log, topic_id: TopicId | None, high_watermark: Offset) -> None:
        """At the start: a log stands on the disk."""
        self.log, self.topic_id = log, topic_id
        self._last_high_watermark = Offset(min(high_watermark, log.log_end_offset))
        self._stray = True

    @property
    def high_watermark(self) -> Offset:
        if self.leader is not None:
            return self.leader.high_watermark
        return self._last_high_watermark if self.follower is None else self.follower.high_watermark

    @property
    def gone(self) -> bool:
        """Nothing is wanted and nothing is there."""
        return self.wanted is None and self.log is None and not self._working

    @property
    def unreported(self) -> bool:
        """It cannot serve, and the cluster does not know it."""
        wanted, me = self.wanted, self._around.me
        return self.refusal is not None and wanted is not None and me not in wanted.partition.offline

    @property
    def refusal(self) -> StorageError | None:
        """Why it cannot serve, though it may be wanted to."""
        return self.offline if self.offline is not None else self.unfit

    # -- what the table tells

    def want(self, wanted: Assignment | None, *, fresh: bool = False) -> None:
        """The metadata's word. `fresh`: the partition was not this node's before."""
        self.wanted = wanted
        self._fresh = wanted is not None and (fresh or self._fresh)
        if wanted is not None and self.log is not None and wanted.topic_id == self.topic_id:
            self._stray = False
        self._leave()
        if self.unreported:
            self._around.went_offline()
        if not self._working:
            self._settle()

    def on_settings(self, settings: TopicSettings) -> None:
        """The topic's configuration has changed, or may have."""
        log = self.log
        if log is None or self.offline is not None:
            return
        log.config = settings.log
        if settings.log.syncs_each_append and log.durability.unsynced_bytes:
            log.durability.request()
        if self.leader is not None and self.wanted is not None:
            self.leader.on_settings(settings)
            self._tell_leader(self.leader, self.wanted.partition)
        if self.follower is not None:
            self.follower.on_ackable_end()  # another flush policy may raise it

    def fail(self, error: StorageError) -> None:
        """The replica cannot be served here until the node starts again. Idempotent."""
        if self.offline is not None:
            return
        self.offline = error
        self._around.ports.probe("replica_offline", partition=str(self.partition), reason=str(error))
        self._end(error)
        self._around.went_offline()

    def hand_over(self, error: StorageError) -> None:
        """What is damaged here cannot be repaired, and another replica is in sync: it is to lead. As a follower this
        one goes on being repaired.
        """
        if self.leader is not None and self.offline is None:
            self._be_unfit(error)

    def stop(self, error: StreamlogError) -> None:
        """The node stops: end the role, and want nothing any more."""
        self._end(error)

    # -- leaving

    def _leave(self) -> None:
        """End the role that is wanted no more; a leader that stays learns what has changed around it."""
        leader, follower, wanted = self.leader, self.follower, self.wanted
        if leader is not None:
            if wanted is not None and self._is_role_of(leader, wanted, self._around.me):
                self._tell_leader(leader, wanted.partition)
            else:
                self._end(self._why_not(wanted))
        elif follower is not None and (wanted is None or not self._is_role_of(follower, wanted, follower.leader)):
            self._end(self._why_not(wanted))

    def _is_role_of(self, role: LeaderReplica | FollowerReplica, wanted: Assignment, leader: BrokerId) -> bool:
        partition = wanted.partition
        return (role.topic_id, leader, role.leader_epoch) == (
            wanted.topic_id,
            partition.leader,
            partition.leader_epoch,
        )

    def _why_not(self, wanted: Assignment | None) -> StreamlogError:
        if wanted is None or (self.topic_id is not None and wanted.topic_id != self.topic_id):
            return UnknownTopicOrPartitionError(f"{self.partition} is not on this node any more", field="partition")
        return not_leader(self.partition, wanted.partition, self._around.address_of)

    def _end(self, error: StreamlogError) -> None:
        leader, follower = self.leader, self.follower
        if leader is None and follower is None:
            return
        self._last_high_watermark = self.high_watermark
        self.leader = self.follower = None
        if self.log is not None:
            self.log.durability.listen(_nobody)
        if follower is not None:
            follower.end()
            self._ending = follower
            self._around.links.unfollow(follower)
        if leader is not None:
            leader.end(error)
        self._around.role_changed(self)

    # -- working

    def _settle(self) -> None:
        if self._step() is None:
            self._take_role()
        else:
            self._working = True
            self._around.spawn(self._work())

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
        """What must be waited for next; None: nothing, the role can be taken."""
        wanted, log = self.wanted, self.log
        if self.offline is not None:
            return None
        if self._ending is not None and self._ending.busy:
            return self._ending.wait_until_idle
        if log is not None and (wanted is None or self.topic_id not in (None, wanted.topic_id)):
            return self._remove
        if wanted is None or self.leader is not None or self.follower is not None:
            return None
        if log is None:
            return self._create if self._fresh or not self._around.directories.offline else None
        if self.topic_id is None:
            return self._identify
        leader = wanted.partition.leader
        if log.damage is not None:
            return log.discard_damage if leader not in (self._around.me, NO_BROKER) else None
        return self._restore_producers if log.derived.producers_stale else None

    async def _remove(self) -> None:
        self.closing = True
        try:
            await self._around.forget_high_watermark(self.partition)
            if self.wanted is None or self.wanted.topic_id != self.topic_id:
                self._around.ports.probe("replica_removed", partition=str(self.partition), stray=self._stray)
                await self._around.directories.remove_log(self.partition, stray=self._stray)
                self.log = self.topic_id = self.unfit = None
                self._last_high_watermark = Offset(0)
                self._stray = False
        finally:
            self.closing = False

    async def _create(self) -> None:
        wanted = self.wanted
        assert wanted is not None
        settings = self._around.settings_of(self.partition.topic)
        self.log = await self._around.directories.create_log(self.partition, settings.log)
        await self._write_identity(self.log, wanted.topic_id)

    async def _identify(self) -> None:
        """A log that does not say whose it is: its making was cut short, or another program has put it there."""
        assert self.log is not None
        assert self.wanted is not None
        await self._write_identity(self.log, self.wanted.topic_id)
        self._stray = False

    async def _write_identity(self, log: Log, topic_id: TopicId) -> None:
        try:
            await write_identity(self._around.ports.fs, log.directory, topic_id)
        except OSError as e:
            raise self._directory(log).fail(e) from e
        self.topic_id = topic_id

    async def _restore_producers(self) -> None:
        assert self.log is not None
        try:
            await self.log.restore_producers()
        except OSError as e:
            raise self._directory(self.log).fail(e) from e

    def _directory(self, log: Log) -> LogDirectory:
        return next(one for one in self._around.directories if one.logs.get(self.partition) is log)

    # -- taking a role

    def _take_role(self) -> None:
        wanted, log = self.wanted, self.log
        if wanted is None or self.offline is not None:
            self._around.role_changed(self)
            return
        if self.leader is not None or self.follower is not None:
            return
        partition = wanted.partition
        if log is None:
            missing = ", ".join(self._around.directories.offline)
            self.fail(StorageError(f"{self.partition} may be in a log directory that is offline: {missing}"))
            return
        log.config = self._around.settings_of(self.partition.topic).log
        if partition.leader == self._around.me:
            if log.damage is not None and len(partition.replicas) > 1:
                self._be_unfit(StorageError(f"{self.partition} is damaged and cannot lead: {log.damage}"))
                return
            self._lead(log, wanted)
        elif partition.leader != NO_BROKER:
            self._follow(log, wanted)

    def _be_unfit(self, error: StorageError) -> None:
        if self.unfit is None:
            self._around.ports.probe("replica_unfit", partition=str(self.partition), reason=str(error))
        self.unfit = error
        self._around.went_offline()

    def _lead(self, log: Log, wanted: Assignment) -> None:
        around, partition = self._around, wanted.partition
        settings = around.settings_of(self.partition.topic)
        term = LeaderTerm(
            partition=self.partition,
            me=around.me,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            min_insync_replicas=effective_min_isr(settings.min_insync_replicas, partition),
            lag_max_ms=around.lag_max_ms(),
        )
        self.leader = LeaderReplica(
            wanted.topic_id,
            log,
            term,
            settings,
            high_watermark=self._last_high_watermark,
            clock=around.ports.clock,
            workers=around.ports.workers,
            isr_proposer=around.isr_proposer,
            may_join=self._may_join,
            traffic=around.traffic.of(self.partition.topic),
            repairs=around.repairs,
        )
        around.ports.probe("leading", partition=str(self.partition), leader_epoch=partition.leader_epoch)
        around.role_changed(self)

    def _follow(self, log: Log, wanted: Assignment) -> None:
        partition = wanted.partition
        self.unfit = None
        self.follower = FollowerReplica(
            wanted.topic_id,
            log,
            partition.leader,
            partition.leader_epoch,
            self._last_high_watermark,
            self._around.traffic.of(self.partition.topic),
        )
        self._around.ports.probe(
            "following",
            partition=str(self.partition),
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
        )
        self._around.role_changed(self)
        self._around.links.follow(self.follower)

    def _may_join(self, broker: BrokerId) -> bool:
        offline = () if self.wanted is None else self.wanted.partition.offline
        return broker not in offline and self._around.is_active(broker)

    def _tell_leader(self, leader: LeaderReplica, partition: Partition) -> None:
        minimum = effective_min_isr(leader.settings.min_insync_replicas, partition)
        leader.on_partition(partition.replicas, partition.isr, partition.partition_epoch, minimum)


def not_leader(
    partition: TopicPartition, state: Partition, address_of: Callable[[BrokerId], str | None]
) -> NotLeaderError:
    """Names who leads, as far as it is known."""
    address = address_of(state.leader)
    who = "nobody leads it now" if state.leader == NO_BROKER else f"node {state.leader} does"
    details: dict[str, object] = {"leader_epoch": state.leader_epoch}
    if state.leader != NO_BROKER:
        details["leader"] = state.leader
    if address is not None:
        details["address"] = address
    return NotLeaderError(f"this node does not lead {partition}: {who}", **details)


def _nobody(_: Offset) -> None:
    """The log has neither a leader nor a follower to tell."""
