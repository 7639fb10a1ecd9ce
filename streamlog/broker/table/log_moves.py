"""Replicas that move between the log directories of this node (Kafka's AlterReplicaLogDirs).

    requested --its turn--> copying --caught up--> waiting for the role's end --swapped--> done
        |                      |-- no space, damage, a failed disk --> ended, with a reason
        +--cancelled: a request for the directory where it is, or for another one

One move at a time, in the order of the requests; at most one request a replica. What a restart interrupts is not
resumed: the start removes the copy, and the replica is where it was.

A leader asks the controller for a new leader epoch when the copy has caught up: another replica in sync leads, or this
one again where there is none. In the moment without a role the copy takes the log's place (`Replica.swap`). While the
controller does not answer, the leader leads on and the copy goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, Protocol

from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.broker.table.replica import Replica
from streamlog.broker.throttle import Throttle
from streamlog.errors import InvalidRequestError, StorageError, StreamlogError
from streamlog.metadata.image.roles import PartitionKey
from streamlog.model import LeaderEpoch, TopicPartition
from streamlog.ports import Ports, RpcError
from streamlog.storage.directories.directories import LogDirectories
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.directories.log_move import LogMove

ROLE_END_S: Final = 10.0
"""How long the end of a leadership is waited for, before the copy catches up again."""
AGAIN_S: Final = 1.0


class LeadershipResigner(Protocol):
    """The active controller."""

    async def resign_leadership(self, key: PartitionKey, leader_epoch: LeaderEpoch) -> None:
        """This node leads the partition in this epoch, and another one must begin. StreamlogError, RpcError (a
        controller of an earlier release).
        """
        ...


class MovingReplica(Struct, frozen=True, kw_only=True):
    """A replica that moves, or was to move, to a log directory."""

    partition: TopicPartition
    size_bytes: int = 0  # of the copy
    offset_lag: int = 0  # at most so many offsets are not in the copy
    error: StorageError | None = None  # why the move ended; kept until the next request or restart


class LogMoves:
    """Owned by `Replicas`. A task of it runs while there are requests."""

    def __init__(
        self,
        ports: Ports,
        directories: LogDirectories,
        resigner: LeadershipResigner,
        replica_of: Callable[[TopicPartition], Replica | None],
        rate: Callable[[], int],
        spawn: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        """`rate`: replica.alter.log.dirs.io.max.bytes.per.second. `spawn`: a task that the end of the table cancels."""
        self._ports = ports
        self._directories = directories
        self._resigner = resigner
        self._replica_of = replica_of
        self._rate = rate
        self._throttle = Throttle(ports.clock, rate())
        self._queue: dict[TopicPartition, LogDirectory] = {}  # with the one that moves now
        self._current: LogMove | None = None
        self._failures: dict[TopicPartition, tuple[LogDirectory, StorageError]] = {}
        self._spawn = spawn
        self._working = False

    # -- requests

    def request(self, partition: TopicPartition, path: str) -> None:
        """Move the replica to the directory with this path in the configuration; where it is there, cancel its move.

        InvalidRequestError (no such directory, no such replica, its swap is under way), StorageError.
        """
        target = self._directories.at(path)
        if target is None:
            if path in self._directories.offline:
                raise self._directories.offline[path]
            known = ", ".join(sorted({*self._directories.offline, *(one.path for one in self._directories)}))
            raise InvalidRequestError(f"this node has no log directory {path!r}; it has {known}", field="log_dir")
        target.check()
        source = self._source_of(partition)
        self._cancel(partition, target)
        self._failures.pop(partition, None)
        if source is target:
            return
        if target.has_directory(partition):
            raise InvalidRequestError(
                f"{path} already has a directory named {partition}, which is not in use: move it away", field="log_dir"
            )
        self._queue[partition] = target
        if not self._working:
            self._working = True
            self._spawn(self._work())

    def _source_of(self, partition: TopicPartition) -> LogDirectory:
        replica = self._replica_of(partition)
        if replica is None or replica.log is None or replica.closing:
            raise InvalidRequestError(f"this node has no replica of {partition}", field="partition")
        if replica.offline is not None:
            raise replica.offline
        source = self._directories.of(replica.log)
        if source is None:
            raise InvalidRequestError(f"{partition} completes a move at this moment: retry later", field="partition")
        return source

    def _cancel(self, partition: TopicPartition, target: LogDirectory) -> None:
        """A previous request for another directory."""
        if self._queue.get(partition) not in (None, target):
            del self._queue[partition]
            if self._current is not None and self._current.log.partition == partition:
                self._current.cancel("cancelled by a later request")

    def in_directory(self, directory: LogDirectory) -> list[MovingReplica]:
        """The replicas that move to this directory, or were to move there."""
        found = [self._described(partition) for partition, target in self._queue.items() if target is directory]
        found += [
            MovingReplica(partition=partition, error=error)
            for partition, (target, error) in self._failures.items()
            if target is directory and self._replica_of(partition) is not None
        ]
        return sorted(found, key=lambda one: one.partition)

    def _described(self, partition: TopicPartition) -> MovingReplica:
        move = self._current
        if move is not None and move.log.partition == partition:
            return MovingReplica(partition=partition, size_bytes=move.size_bytes, offset_lag=move.offset_lag)
        replica = self._replica_of(partition)
        if replica is None or replica.log is None:
            return MovingReplica(partition=partition)
        lag = replica.log.log_end_offset - replica.log.log_start_offset
        return MovingReplica(partition=partition, offset_lag=lag)

    # -- moving

    async def _work(self) -> None:
        try:
            while self._queue:
                partition, target = next(iter(self._queue.items()))
                await self._move(partition, target)
                if self._queue.get(partition) is target:
                    del self._queue[partition]
        finally:
            self._working = False

    async def _move(self, partition: TopicPartition, target: LogDirectory) -> None:
        replica, probe = self._replica_of(partition), self._ports.probe
        try:
            source = self._source_of(partition)
        except StreamlogError as error:
            probe("log_move_ended", partition=str(partition), target=target.path, reason=error.message)
            return
        assert replica is not None  # it has a source
        assert replica.log is not None
        move = LogMove(self._ports.fs, replica.log, source, target, self._ports.random, self._pace)
        self._current = move
        probe("log_move_begun", partition=str(partition), source=source.path, target=target.path)
        try:
            await move.begin()
            while not move.is_done and move.failure is None:
                await move.catch_up()
                await self._swap(replica, move)
        except StorageError as error:
            move.failure = error
        finally:
            replica.withdraw(move)
            self._current = None
        if move.failure is None:
            probe("log_moved", partition=str(partition), source=source.path, target=target.path)
            return
        probe("log_move_ended", partition=str(partition), target=target.path, reason=move.failure.message)
        await move.abandon()
        if self._queue.get(partition) is target:
            self._failures[partition] = (target, move.failure)
            for gone in [one for one in self._failures if self._replica_of(one) is None]:
                del self._failures[gone]

    async def _swap(self, replica: Replica, move: LogMove) -> None:
        """Try to; afterwards the move is done, has failed, or must catch up again. StorageError."""
        replica.swap(move)
        leader, assigned = replica.leader, replica.assigned
        if leader is not None and assigned is not None:
            try:
                await self._resigner.resign_leadership(
                    (assigned.topic_id, replica.partition.partition), leader.leader_epoch
                )
            except (StreamlogError, RpcError) as error:
                self._ports.probe("leadership_not_resigned", partition=str(replica.partition), reason=str(error))
                if replica.withdraw(move):
                    await asyncio.sleep(AGAIN_S)
                    return
        try:
            async with timeout(ROLE_END_S):
                await move.settled.wait()
        except TimeoutError:
            if replica.withdraw(move):
                return
            await move.settled.wait()
        if not move.is_done and move.failure is None:  # its disk has failed
            raise replica.offline or StorageError(f"{replica.partition}: the log could not be opened again")

    def _pace(self, size: int) -> float:
        throttle = self._throttle
        throttle.set_rate(self._rate())
        wait_s = throttle.wait_s()
        if wait_s > 0:
            return min(wait_s, AGAIN_S)  # the rate may change
        throttle.charge(size)
        return 0.0
