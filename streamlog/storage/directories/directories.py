"""All log directories of a node (`log.dirs`): which partition is in which one, and operation while some are offline.

A directory that fails takes its own partitions offline and no others; when the last one has failed, `run` ends. A new
partition is placed in the online directory with the fewest partitions of its topic, of several the one with the fewest
in all: so a topic has the throughput of all disks, and is not lost with one of them. Partitions being created count,
since all partitions of a new topic are created at once. A partition found in two directories is refused at the start:
which of the two is current cannot be decided locally. Unless one of them says that it may have moved (`log_move`):

    another directory has the partition            it has moved: what is left here is removed
    none has it, but a directory is offline        that one may have it: the replica is offline
    none has it, and all directories are there     it has not moved
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from streamlog.errors import InconsistentClusterError, StorageError
from streamlog.model import BrokerEpoch, BrokerId, TopicPartition
from streamlog.ports import Clock, FileSystem, Probe, Random
from streamlog.ports.spare_files import NO_DESCRIPTOR
from streamlog.storage.directories.directory import CHECKPOINT_INTERVAL_MS, LogDirectory
from streamlog.storage.log.log import Log
from streamlog.storage.log_config import LogConfig


class LogDirectories:
    """Owned by the node. Construct with `open`, then `open_logs`; `run` is a task of the node."""

    def __init__(self, directories: list[LogDirectory], offline: dict[str, StorageError]) -> None:
        self._directories = directories
        self._offline = offline  # path -> why, for those that could not be opened
        self._making: list[tuple[LogDirectory, TopicPartition]] = []  # logs being created

    @classmethod
    async def open(
        cls,
        fs: FileSystem,
        paths: Sequence[str],
        *,
        clock: Clock,
        random: Random,
        probe: Probe,
        node_id: BrokerId,
        cluster_id: str | None = None,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
    ) -> LogDirectories:
        """Lock and check them all. A directory whose disk fails is offline from the start; StorageError if all are.

        Raises LogDirectoryLockedError, InconsistentClusterError, DamagedFileError; locks are released then.
        """
        opened: list[LogDirectory] = []
        offline: dict[str, StorageError] = {}
        try:
            for path in paths:
                try:
                    directory = await LogDirectory.open(
                        fs,
                        path,
                        clock=clock,
                        random=random,
                        probe=probe,
                        node_id=node_id,
                        cluster_id=cluster_id,
                        checkpoint_interval_ms=checkpoint_interval_ms,
                    )
                except OSError as e:
                    offline[path] = StorageError(f"log directory {path} cannot be opened: {e}", path=path)
                    probe("log_directory_offline", path=path, errno=e.errno or 0, reason=str(e))
                    continue
                opened.append(directory)
            _check_belong_together(opened)
            if not opened:
                raise StorageError(f"no log directory can be used: {', '.join(map(str, offline.values()))}")
        except BaseException:
            for directory in opened:
                await directory.close()
            raise
        return cls(opened, offline)

    async def open_logs(self, config_of: Callable[[TopicPartition], LogConfig]) -> None:
        """A directory whose disk fails meanwhile is offline, as one that cannot be opened; StorageError if all are.

        Raises InconsistentClusterError where a partition is in two directories, OSError where descriptors are lacking.
        """
        await self._settle_moves()
        for directory in tuple(self._directories):
            try:
                await directory.open_logs(config_of)
            except OSError as e:
                await self._lose(directory, e)
        seen: dict[TopicPartition, str] = {}
        for directory in self._directories:
            for partition in directory.logs:
                if partition in seen:
                    raise InconsistentClusterError(
                        f"{partition} is in {seen[partition]} and in {directory.path}: move one of them away",
                        field="log.dirs",
                    )
                seen[partition] = directory.path

    async def _lose(self, directory: LogDirectory, error: OSError) -> None:
        """Its disk has failed before all of its logs were open: none of them is used."""
        if error.errno in NO_DESCRIPTOR:
            raise error  # no failure of the disk, and it would be the same with the next one
        self._offline[directory.path] = directory.fail(error)
        self._directories.remove(directory)
        await directory.close()
        if not self._directories:
            raise StorageError(f"no log directory can be used: {', '.join(map(str, self._offline.values()))}")

    async def _settle_moves(self) -> None:
        """Of the process before. A log may have stayed behind on a disk that was away while its copy moved on, so all
        directories are looked at.
        """
        marked: list[tuple[LogDirectory, Mapping[TopicPartition, str]]] = []
        for directory in tuple(self._directories):
            try:
                marked.append((directory, directory.moving.may_have_moved()))
            except OSError as e:
                await self._lose(directory, e)
        for directory, moves in marked:
            try:
                for partition, target_id in moves.items():
                    await self._settle_move(directory, partition, target_id, marked)
            except OSError as e:
                await self._lose(directory, e)

    async def _settle_move(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        target_id: str,
        marked: Sequence[tuple[LogDirectory, Mapping[TopicPartition, str]]],
    ) -> None:
        """OSError. `marked`: the moves that each directory notes; in this one: to the directory with `target_id`."""
        target = next((one for one in self._directories if one.meta.directory_id == target_id), None)
        holders = [one for one in self._directories if one is not directory and one.has_directory(partition)]
        unmarked = [one for one, its in marked if one in holders and partition not in its]
        if unmarked or target in holders:
            await directory.moving.has_moved(partition)
        elif self._offline:
            directory.moving.leave_closed(partition)
        else:
            await directory.moving.has_not_moved(partition, incomplete=target is None)

    def at(self, path: str) -> LogDirectory | None:
        """The directory with this path in the configuration, if it could be opened."""
        return next((directory for directory in self._directories if directory.path == path), None)

    def of(self, log: Log) -> LogDirectory | None:
        """That has this log open."""
        return next((one for one in self._directories if one.logs.get(log.partition) is log), None)

    def __iter__(self) -> Iterator[LogDirectory]:
        return iter(self._directories)

    @property
    def cluster_id(self) -> str | None:
        """Of the cluster that they belong to; None: they have not joined one yet."""
        return next((d.meta.cluster_id for d in self._directories if d.meta.cluster_id is not None), None)

    async def join(self, cluster_id: str) -> None:
        """Durably write this cluster id. InconsistentClusterError where they belong to another cluster."""
        for directory in self.online:
            await directory.join(cluster_id)

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.failure is None]

    @property
    def offline(self) -> dict[str, StorageError]:
        """Path -> why, of every directory that cannot be used."""
        failed = {d.path: d.failure for d in self._directories if d.failure is not None}
        return {**self._offline, **failed}

    @property
    def clean_epoch(self) -> BrokerEpoch | None:
        """Broker epoch of the clean stop before this start; None unless all directories have the same one."""
        first = self._directories[0].clean_epoch
        same = all(directory.clean_epoch == first for directory in self._directories)
        return first if same and not self._offline else None

    def get(self, partition: TopicPartition) -> Log | None:
        for directory in self._directories:
            if partition in directory.logs:
                return directory.logs[partition]
        return None

    async def create_log(self, partition: TopicPartition, config: LogConfig) -> Log:
        """In the online directory with the fewest partitions of the topic. StorageError where none is."""
        online = self.online
        if not online:
            raise StorageError("all log directories are offline")
        directory = online[0] if len(online) == 1 else min(online, key=lambda one: self._load(one, partition.topic))
        making = (directory, partition)
        self._making.append(making)
        try:
            return await directory.create_log(partition, config)
        finally:
            self._making.remove(making)

    def _load(self, directory: LogDirectory, topic: str) -> tuple[int, int]:
        """Partitions of the topic in it, partitions in all."""
        making = [partition for where, partition in self._making if where is directory]
        here = {*directory.logs, *making}
        return sum(partition.topic == topic for partition in here), len(here)

    async def remove_log(self, partition: TopicPartition, *, stray: bool = False) -> None:
        """Does nothing where the partition is not here."""
        for directory in self._directories:
            if partition in directory.logs:
                await directory.remove_log(partition, stray=stray)

    async def run(self, on_offline: Callable[[LogDirectory], None]) -> None:
        """Run all of them. `on_offline` is called for each that fails; StorageError when the last one has."""
        async with asyncio.TaskGroup() as tasks:
            for directory in self._directories:
                tasks.create_task(self._keep(directory, on_offline))

    async def _keep(self, directory: LogDirectory, on_offline: Callable[[LogDirectory], None]) -> None:
        try:
            await directory.run()
        except StorageError:
            on_offline(directory)
            if not self.online:
                raise

    async def close(self, broker_epoch: BrokerEpoch | None = None) -> None:
        """As `LogDirectory.close`, for each."""
        for directory in self._directories:
            await directory.close(broker_epoch)


def _check_belong_together(directories: list[LogDirectory]) -> None:
    clusters = sorted({d.meta.cluster_id for d in directories if d.meta.cluster_id is not None})
    if len(clusters) > 1:
        raise InconsistentClusterError(
            f"the log directories belong to different clusters: {', '.join(clusters)}", field="log.dirs"
        )
    ids = [directory.meta.directory_id for directory in directories]
    for directory in directories:
        if ids.count(directory.meta.directory_id) > 1:
            raise InconsistentClusterError(
                f"{directory.path} is a copy of another log directory (directory.id {directory.meta.directory_id})",
                field="log.dirs",
            )
