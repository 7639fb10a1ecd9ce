"""The partition table of a node: the replicas on this node, as the metadata assign them.

    open      the logs are opened (recovered, after an unclean stop); no metadata are needed yet
    run       the image is applied, and each following one; maintenance of the logs runs beside it
    close     high watermarks and logs are synced; with a broker epoch the stop counts as clean

`run` must start when the image has this process's registration: a log that such an image does not assign to this node
is a stray. It is kept under another name, because this node has not seen that its topic was deleted.

Only this table creates `Replica` objects and passes the metadata to them, in the order of the metadata log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Protocol

from streamlog.aio.group_tasks import start_unless_ending, unwrapped
from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.leading.leader_replica import IsrProposer, LeaderReplica
from streamlog.broker.repair.digest import LogDigest, digest_of
from streamlog.broker.repair.log_repairs import RepairReport, Repairs
from streamlog.broker.repair.range_fetch import RangeFetch
from streamlog.broker.table import deleted_records
from streamlog.broker.table.deleted_records import LocalDeletion
from streamlog.broker.table.high_watermark_checkpoint import HighWatermarks
from streamlog.broker.table.lag_reviews import LagReviews
from streamlog.broker.table.log_dirs import LogDirDescription, describe
from streamlog.broker.table.log_moves import LeadershipResigner, LogMoves
from streamlog.broker.table.log_upkeep import upkeep_of
from streamlog.broker.table.offline_reports import OfflineReplicaReporter, OfflineReports
from streamlog.broker.table.partition_metadata import read_topic_id
from streamlog.broker.table.replica import Assignment, Replica, ReplicaContext, ReplicaFollowing, not_leader
from streamlog.broker.table.replica_creations import ReplicaCreations
from streamlog.broker.table.replica_state import state_of
from streamlog.broker.table.settings_by_topic import SettingsByTopic
from streamlog.config.settings import node_settings
from streamlog.errors import (
    DamagedFileError,
    LeaderNotAvailableError,
    NotLeaderError,
    StorageError,
    UnknownTopicIdError,
)
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage, Topic, require_partition
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.records import Partition
from streamlog.metadata.view import MetadataView
from streamlog.metrics import Traffic
from streamlog.model import NO_BROKER, BrokerEpoch, BrokerId, Offset, PartitionId, TopicId, TopicPartition
from streamlog.ports import Ports
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log


class ReplicaController(OfflineReplicaReporter, LeadershipResigner, Protocol):
    """The active controller."""


class Replicas:
    """Owned by the node. One event loop. Lifecycle: open, run, close."""

    def __init__(
        self,
        me: BrokerId,
        directories: LogDirectories,
        view: MetadataView,
        configs: NodeConfigs,
        links: ReplicaFollowing,
        isr_proposer: IsrProposer,
        controller: ReplicaController,
        ports: Ports,
        may_delete_by_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """`directories` are open, their logs are not. `may_delete_by_time`: whether the wall clock can be trusted."""
        self._may_delete_by_time = may_delete_by_time
        self._me = me
        self._directories = directories
        self._view = view
        self._configs = configs
        self._ports = ports
        self._image = view.image  # that has been applied
        self._replicas: dict[TopicPartition, Replica] = {}
        self._leaders: dict[tuple[str, int], LeaderReplica] = {}
        self._on_leading: tuple[Callable[[LeaderReplica], None], ...] = ()
        self._settings = SettingsByTopic(configs, ports.probe)
        self._tasks: asyncio.TaskGroup | None = None  # while running
        self._reports = OfflineReports(controller, ports.probe, self._unreported)
        self._high_watermarks = HighWatermarks(ports.fs, directories, ports.probe, self._high_watermarks_of)
        self.moves = LogMoves(
            ports,
            directories,
            controller,
            self._replicas.get,
            lambda: configs.node[node_settings.REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND],
            self._spawn,
        )
        self.traffic = Traffic()
        self.repairs = Repairs(
            me,
            ports.fs,
            view,
            RangeFetch(view, ports.network),
            ports.probe,
            topic_id_of=self._topic_id_of,
            hand_over=self._hand_over,
            spawn=self._spawn,
        )
        self._creations = ReplicaCreations(ports.fs, ports.clock, ports.probe)
        self._context = ReplicaContext(
            repairs=self.repairs,
            me=me,
            ports=ports,
            directories=directories,
            creations=self._creations,
            links=links,
            isr_proposer=isr_proposer,
            settings_of=self._settings.of,
            lag_max_ms=self._lag_max_ms,
            is_active=self._is_active,
            address_of=view.hinted_address,
            spawn=self._spawn,
            role_changed=self._role_changed,
            went_offline=self._reports.wake,
            forget_high_watermark=self._high_watermarks.forget,
            traffic=self.traffic,
        )

    # -- lifecycle

    async def open(self) -> None:
        """Open all logs. Raises InconsistentClusterError, StorageError."""
        await self._directories.open_logs(lambda partition: self._settings.of(partition.topic).log)
        high_watermarks = self._high_watermarks.read()
        for directory in self._directories:
            directory.on_damage = self.repairs.notice
            for partition, log in directory.logs.items():
                replica = self._replicas[partition] = Replica(self._context, partition)
                self._found(replica, directory, log, high_watermarks.get(partition, Offset(0)))

    def _found(self, replica: Replica, directory: LogDirectory, log: Log, high_watermark: Offset) -> None:
        topic_id: TopicId | None = None
        try:
            topic_id = read_topic_id(self._ports.fs, log.directory)
        except DamagedFileError as e:
            replica.fail(StorageError(f"{replica.partition}: its topic is unknown: {e}", path=e.path))
        except OSError as e:
            replica.fail(directory.fail(e))
        replica.found(log, topic_id, high_watermark)

    @property
    def clean_epoch(self) -> BrokerEpoch | None:
        """After `open`: the broker epoch of the clean stop before this start. None if the stop was not clean, or a log
        turned out to lack records: then this node must leave the ISRs before it comes back.
        """
        logs = (log for directory in self._directories for log in directory.logs.values())
        return None if any(log.damage is not None for log in logs) else self._directories.clean_epoch

    async def run(self) -> None:
        """Follow the metadata. Ends with StorageError when the last log directory has failed."""
        stop_listening = [self._view.listen(self._on_metadata), self._configs.listen(self._on_configs)]
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._keep_directories())
                for directory in self._directories.online:
                    tasks.create_task(
                        upkeep_of(
                            directory,
                            self._configs,
                            self._ports,
                            self._bound_of,
                            self._on_deleted,
                            self._may_delete_by_time,
                        )
                    )
                tasks.create_task(self._keep_high_watermarks())
                tasks.create_task(LagReviews(self.leaders, self._lag_max_ms, self._ports.clock).run())
                tasks.create_task(self._reports.run())
                self._settings.clear()  # `open` may have come before the topics' configurations
                self._image = self._view.image
                self._apply(self._image)
                try:
                    await asyncio.get_running_loop().create_future()  # until a task fails, or `run` is cancelled
                finally:
                    self._stop_following(stop_listening)
        except BaseExceptionGroup as group:
            raise unwrapped(group, StorageError) from None  # all of them say that the disks have failed
        finally:
            for replica in list(self._replicas.values()):
                replica.stop(NotLeaderError(f"{replica.partition}: this node is stopping"))

    def _stop_following(self, stop_listening: list[Callable[[], None]]) -> None:
        for stop in stop_listening:
            stop()
        self._tasks = None

    async def _keep_directories(self) -> None:
        try:
            await self._directories.run(self._on_directory_offline)
        finally:
            self._tasks = None  # from now on the group takes no new task

    async def close(self, broker_epoch: BrokerEpoch | None = None) -> None:
        """After `run` has ended. With a broker epoch everything is synced and the stop is marked clean."""
        if broker_epoch is not None:
            await self._high_watermarks.write()
        await self._directories.close(broker_epoch)

    # -- for services and the node

    @property
    def lacks_descriptors(self) -> bool:
        """New replicas wait: the process may open too few files."""
        return self._creations.lacks_descriptors

    @property
    def node_id(self) -> BrokerId:
        """Of this node."""
        return self._me

    def leader(self, topic: str, topic_id: TopicId | None, partition: PartitionId) -> LeaderReplica:
        """Of a partition that this node leads now. By name, by id (the name is empty then), or both.

        Raises UnknownTopicOrPartitionError, UnknownTopicIdError, NotLeaderError (details `leader`, `address`,
        `leader_epoch`), LeaderNotAvailableError (it is about to lead, or there is no leader), StorageError (its disk
        failed).
        """
        found = self._leaders.get((topic, partition))
        if found is not None and (topic_id is None or found.topic_id == topic_id):
            return found
        return self._look_up(topic, topic_id, partition)

    def _look_up(self, name: str, topic_id: TopicId | None, partition_id: PartitionId) -> LeaderReplica:
        topic = self._topic(name, topic_id)
        state = require_partition(topic, partition_id)
        partition = TopicPartition(topic.name, partition_id)
        found = self._leaders.get((topic.name, partition_id))
        if found is not None and found.topic_id == topic.topic_id:
            return found
        replica = self._replicas.get(partition)
        if replica is not None and replica.refusal is not None and state.leader in (self._me, NO_BROKER):
            raise replica.refusal
        if state.leader == NO_BROKER:
            raise LeaderNotAvailableError(f"{partition} has no leader now", leader_epoch=state.leader_epoch)
        if state.leader == self._me:
            raise LeaderNotAvailableError(f"{partition}: this node is about to lead", leader_epoch=state.leader_epoch)
        raise not_leader(partition, state, self._view.hinted_address)

    def _topic(self, name: str, topic_id: TopicId | None) -> Topic:
        image = self._view.image
        if topic_id is None:
            return image.require_topic(name)
        topic = image.require_topic_id(topic_id)
        if name and topic.name != name:
            raise UnknownTopicIdError(f"topic {name!r} has another id", field="topic_id")
        return topic

    def leaders(self) -> Iterator[LeaderReplica]:
        """All that this node leads now; the caller may wait during the iteration."""
        return iter(tuple(self._leaders.values()))

    def listen_for_leaders(self, listener: Callable[[LeaderReplica], None]) -> None:
        """Notify `listener` of each leadership that begins from now on; the leader's watchers are notified of its end.

        Called on the event loop; must not wait.
        """
        self._on_leading = (*self._on_leading, listener)

    def followers(self) -> Iterator[FollowerReplica]:
        """All that this node follows now."""
        return iter([replica.follower for replica in self._replicas.values() if replica.follower is not None])

    def all_replicas(self) -> Iterator[Replica]:
        """All on this node, in any role; the caller may wait during the iteration."""
        return iter(tuple(self._replicas.values()))

    @property
    def directories(self) -> LogDirectories:
        return self._directories

    def describe_log_dirs(self, topics: Sequence[str] = ()) -> list[LogDirDescription]:
        """The log directories in the order of the configuration; only of these topics, if any are named."""
        return describe(self._ports.fs, self._directories, self.moves, frozenset(topics))

    def move_log(self, topic: str, topic_id: TopicId | None, partition: PartitionId, path: str) -> None:
        """Begin to move the replica to the log directory with this path; where it is there, cancel its move.

        UnknownTopicOrPartitionError, UnknownTopicIdError, InvalidRequestError, StorageError.
        """
        found = self._topic(topic, topic_id)
        require_partition(found, partition)
        self.moves.request(TopicPartition(found.name, partition), path)

    async def digest(
        self,
        topic: str,
        topic_id: TopicId | None,
        partition: PartitionId,
        start_offset: Offset | None = None,
        end_offset: Offset | None = None,
    ) -> LogDigest:
        """Of the records in the range, of a replica that leads or follows (by default: log start to high watermark).

        Raises UnknownTopicOrPartitionError, UnknownTopicIdError, OffsetOutOfRangeError, StorageError.
        """
        replica, log = self._copy(topic, topic_id, partition)
        return await digest_of(log, lambda: replica.high_watermark, self._ports.workers, start_offset, end_offset)

    async def repair(
        self, topic: str, topic_id: TopicId | None, partition: PartitionId, *, dry_run: bool
    ) -> RepairReport:
        """Read all of a replica that leads or follows, and repair the damage in it. As `digest`."""
        _, log = self._copy(topic, topic_id, partition)
        return await self.repairs.examine(log, dry_run=dry_run)

    async def delete_records(
        self, topic: str, topic_id: TopicId | None, partition: PartitionId, before: Offset | None, *, within_s: float
    ) -> LocalDeletion:
        """As the leader: `deleted_records.delete_before`. Errors as `leader`, too."""
        leader = self.leader(topic, topic_id, partition)
        return await deleted_records.delete_before(leader, before, self._directories, within_s=within_s)

    async def confirm_log_start(self, topic_id: TopicId, partition: PartitionId, start: Offset) -> None:
        """As a follower: `deleted_records.confirm`. UnknownTopicIdError, NotLeaderError (it is not here)."""
        await deleted_records.confirm(lambda: self._copy("", topic_id, partition)[1], start, self._directories)

    def _copy(self, topic: str, topic_id: TopicId | None, partition: PartitionId) -> tuple[Replica, Log]:
        """The replica on this node, in any role, and its log."""
        found = self._topic(topic, topic_id)
        replica = self._replicas.get(TopicPartition(found.name, partition))
        if replica is not None and replica.offline is not None:
            raise replica.offline
        if replica is None or replica.log is None or replica.topic_id != found.topic_id:
            state = require_partition(found, partition)
            raise not_leader(TopicPartition(found.name, partition), state, self._view.hinted_address)
        return replica, replica.log

    async def read_range(
        self, topic_id: TopicId, partition: PartitionId, start: Offset, end: Offset, size_max: int
    ) -> bytes:
        """Committed batches of [start, end) for another replica, from a replica that leads or follows.

        Raises UnknownTopicIdError, UnknownTopicOrPartitionError, NotLeaderError (it is not here),
        OffsetOutOfRangeError, StorageError, DamagedFileError.
        """
        topic = self._topic("", topic_id)
        replica = self._replicas.get(TopicPartition(topic.name, partition))
        if replica is None or replica.log is None or replica.topic_id != topic_id or replica.refusal is not None:
            state = require_partition(topic, partition)
            raise not_leader(TopicPartition(topic.name, partition), state, self._view.hinted_address)
        log = replica.log
        if start < log.log_start_offset or end > min(replica.high_watermark, log.log_end_offset):
            raise log.out_of_range(end)
        return await log.read(start, size_max, end_offset=end)

    def _topic_id_of(self, log: Log) -> TopicId | None:
        replica = self._replicas.get(log.partition)
        return None if replica is None or replica.log is not log or replica.closing else replica.topic_id

    def _hand_over(self, log: Log, error: StorageError) -> None:
        replica = self._replicas.get(log.partition)
        if replica is not None and replica.log is log:
            replica.hand_over(error)

    def replica_state(self, key: PartitionKey, broker_epoch: BrokerEpoch) -> ReplicaState | None:
        """The log ends of the replica on this node, for an election without a leader in sync. None: it is not here."""
        topic = self._image.topics.get(key[0])
        replica = None if topic is None else self._replicas.get(TopicPartition(topic.name, key[1]))
        if replica is None or replica.log is None or replica.topic_id != key[0] or replica.closing:
            return None
        return state_of(replica.log, self._me, broker_epoch, damaged=replica.refusal is not None)

    # -- from the metadata

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        before, self._image = self._image, image
        if delta is None:
            self._apply(image)
            return
        for topic in delta.removed_topics():
            self._settings.forget(topic.name)
            self.traffic.forget(topic.name)
        for topic_id, differences in delta.changed_topics():  # deleted topics come first
            topic = image.topics.get(topic_id) or before.topics[topic_id]
            for partition_id, old, new in differences:
                self._apply_one(TopicPartition(topic.name, partition_id), topic_id, old, new)

    def _apply_one(
        self, partition: TopicPartition, topic_id: TopicId, old: Partition | None, new: Partition | None
    ) -> None:
        if new is not None and self._me in new.replicas:
            fresh = old is None or self._me not in old.replicas
            self._replica(partition).assign(Assignment(topic_id=topic_id, partition=new), fresh=fresh)
            return
        replica = self._replicas.get(partition)
        if replica is not None and replica.assigned is not None and replica.assigned.topic_id == topic_id:
            replica.assign(None)

    def _apply(self, image: MetadataImage) -> None:
        """The whole image: at the start, and after a snapshot."""
        assigned: dict[TopicPartition, Assignment] = {}
        for topic_id, partition_id in image.roles.partitions(Role.REPLICA, self._me):
            topic = image.topics[topic_id]
            state = topic.partitions[partition_id]
            assigned[TopicPartition(topic.name, partition_id)] = Assignment(topic_id=topic_id, partition=state)
        self._settings.keep(lambda name: image.topic_named(name) is not None)
        for partition, replica in list(self._replicas.items()):
            if partition not in assigned:
                replica.assign(None)
        for partition, assignment in assigned.items():
            self._replica(partition).assign(assignment)

    def _replica(self, partition: TopicPartition) -> Replica:
        replica = self._replicas.get(partition)
        if replica is None:
            replica = self._replicas[partition] = Replica(self._context, partition)
        return replica

    def _role_changed(self, replica: Replica) -> None:
        partition = replica.partition
        key = (partition.topic, partition.partition)
        before = self._leaders.pop(key, None)
        if replica.leader is not None:
            self._leaders[key] = replica.leader
            if replica.leader is not before:
                for listener in self._on_leading:
                    listener(replica.leader)
        if replica.is_removed:
            self._replicas.pop(partition, None)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        start_unless_ending(self._tasks, work)  # else the next start continues

    def _is_active(self, broker_id: BrokerId) -> bool:
        broker = self._view.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def _on_configs(self, topics: Sequence[str] | None) -> None:
        changed = self._settings.update(topics, lambda name: self._view.image.topic_named(name) is not None)
        for partition, replica in self._replicas.items():
            if partition.topic in changed:
                replica.on_settings(changed[partition.topic])

    def _lag_max_ms(self) -> int:
        return self._configs.node[node_settings.REPLICA_LAG_TIME_MAX_MS]

    # -- maintenance

    def _on_directory_offline(self, directory: LogDirectory) -> None:
        assert directory.failure is not None
        for partition in list(directory.logs):
            if partition in self._replicas:
                self._replicas[partition].fail(directory.failure)

    def _unreported(self) -> list[PartitionKey]:
        """Replicas that cannot serve, and that the metadata do not have offline."""
        return [
            (replica.assigned.topic_id, replica.partition.partition)
            for replica in self._replicas.values()
            if replica.is_unreported and replica.assigned is not None
        ]

    def _bound_of(self, log: Log) -> Offset:
        """Where retention and compaction stop: the high watermark, or the previous one of a replica without a role."""
        replica = self._replicas.get(log.partition)
        return Offset(0) if replica is None or replica.log is not log else replica.high_watermark

    def _on_deleted(self, log: Log) -> None:
        leader = self._leaders.get((log.partition.topic, log.partition.partition))
        if leader is not None:
            leader.on_log_start_moved()

    def _high_watermarks_of(self, directory: LogDirectory) -> Mapping[TopicPartition, Offset]:
        return {
            partition: replica.high_watermark
            for partition in directory.logs
            if (replica := self._replicas.get(partition)) is not None and not replica.closing
        }

    async def _keep_high_watermarks(self) -> None:
        while True:
            interval_ms = self._configs.node[node_settings.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS]
            await asyncio.sleep(interval_ms / 1000)
            await self._high_watermarks.write()
