"""How the watch sees what nodes do: for the length of a run, these methods of the real classes notify it.

A node need not report so much in production. Which node it is follows from the process whose context the call
runs in. What is looked at is whatever stands in the class then, a planted defect included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any
from unittest import mock

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.model import TopicPartition
from streamlog.replication.follower import PartitionFollower
from streamlog.replication.leader import PartitionLeader
from streamlog.sim.process import PROCESS, Process
from streamlog.storage.directories.directory import LogDirectory
from streamlog.storage.log.log import Log

from .watch import Term, Watch


@contextmanager
def looking(watch: Watch) -> Iterator[None]:
    def removed(process: Process, directory: LogDirectory, partition: TopicPartition) -> None:
        watch.removed(process, partition)

    def leads(process: Process, leader: LeaderReplica) -> None:
        watch.leads(process, Term(leader.topic_id, leader.partition, leader.leader_epoch), leader.log_start_offset)

    def appended(process: Process, leader: PartitionLeader) -> None:
        watch.appended(process, leader._term.partition, leader.leader_epoch)

    def leader_moved(process: Process, leader: PartitionLeader) -> None:
        watch.high_watermark(process, leader._term.partition, leader.high_watermark)

    def follower_moved(process: Process, follower: PartitionFollower) -> None:
        watch.high_watermark(process, _log(follower).partition, follower.high_watermark)

    def differs(process: Process, follower: PartitionFollower) -> None:
        watch.differs(process, _log(follower).partition)

    def log_starts(process: Process, log: Log) -> None:
        watch.log_starts(process, log.partition, log.log_start_offset)

    def opened(process: Process, directory: LogDirectory) -> None:
        watch.opened(process, directory)

    with ExitStack() as stack:
        for owner, name, notify in (
            (LeaderReplica, "__init__", leads),
            (PartitionLeader, "append", appended),
            (PartitionLeader, "_advance", leader_moved),
            (PartitionFollower, "__init__", follower_moved),
            (PartitionFollower, "on_batches", follower_moved),
            (PartitionFollower, "on_diverging", follower_moved),
            (PartitionFollower, "on_differing", differs),
            (Log, "advance_log_start", log_starts),
            (LogDirectory, "open_logs", opened),
            (LogDirectory, "remove_log", removed),
        ):
            stack.enter_context(mock.patch.object(owner, name, _notifying(getattr(owner, name), notify)))
        yield


def _log(follower: PartitionFollower) -> Log:
    log = follower._log
    assert isinstance(log, Log)
    return log


def _notifying(method: Callable[..., Any], notify: Callable[..., None]) -> Callable[..., Any]:
    """`method`, which notifies when it has returned; not when it has raised. What `notify` takes, it gets."""
    taken = len(signature(notify).parameters) - 2

    def notified(owner: Any, args: tuple[Any, ...]) -> None:
        process = PROCESS.get()
        if process is not None and process.alive:
            notify(process, owner, *args[:taken])

    if iscoroutinefunction(method):

        @wraps(method)
        async def waits(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = await method(self, *args, **kwargs)
            notified(self, args)
            return result

        return waits

    @wraps(method)
    def returns(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        notified(self, args)
        return result

    return returns
