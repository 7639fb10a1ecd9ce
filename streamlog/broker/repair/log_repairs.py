"""Damage that is found in a log is repaired from another replica, automatically.

    damage found --> repairing --all segments intact again-----------------------------> dropped
                        |  ^
                        |  +-- after a pause that grows to a minute <--+
                        +--no replica could be fetched from, or it failed--> left: readers get the error;
                                                                             after HAND_OVER_AFTER attempts, where
                                                                             another replica is in sync: it leads

Only committed batches are fetched, from replicas in the ISR, the leader first. They are checked twice: by the node that
sends them (its log verifies what it reads), and here, against the log's own leader epochs. A node repairs one log at a
time. Readers that meet the damage meanwhile wait (`wait`). A batch of which only the leader epoch is in doubt is served
once an attempt has failed, with the epoch of the log's table: its records are intact.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.errors import BrokerNotAvailableError, StorageError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, Offset, TopicId, TopicPartition
from streamlog.ports import FileSystem, Probe
from streamlog.storage.integrity.repair import repair_segment
from streamlog.storage.log.damaged_ranges import SegmentDamage
from streamlog.storage.log.log import Log
from streamlog.storage.segments.segment import Segment

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 60.0
HAND_OVER_AFTER: Final = 4
WAIT_S: Final = 5.0
"""So long a reader waits for a repair before it gets a retriable error."""


class RangeSource(Protocol):
    """`RangeFetch`."""

    def batches(
        self, node: BrokerId, topic_id: TopicId, at: TopicPartition, begin: Offset, end: Offset
    ) -> AsyncIterator[bytes]: ...


class Repaired(Struct, frozen=True, kw_only=True):
    """The result for one damaged range."""

    damage: SegmentDamage
    source: BrokerId | None  # the node that it was fetched from; None: it is still damaged
    reason: str = ""  # why it is still damaged


class RepairReport(Struct, frozen=True, kw_only=True):
    """The damage that reading a whole replica has found, and the repairs."""

    read_bytes: int
    ranges: tuple[Repaired, ...]


class _Work(Struct, eq=False, kw_only=True):
    log: Log
    attempts: int = 0
    left: bool = False  # the last attempt failed
    ended: asyncio.Event


class Repairs:
    """Owned by `Replicas`. One event loop."""

    def __init__(
        self,
        me: BrokerId,
        fs: FileSystem,
        view: MetadataView,
        source: RangeSource,
        probe: Probe,
        *,
        topic_id_of: Callable[[Log], TopicId | None],
        hand_over: Callable[[Log, StorageError], None],
        spawn: Callable[[Coroutine[object, object, None]], None],
    ) -> None:
        """`topic_id_of`: None where the log is not this node's replica any more. `hand_over`: another replica should
        lead, because this one is damaged.
        """
        self._me = me
        self._fs = fs
        self._view = view
        self._source = source
        self._probe = probe
        self._topic_id_of = topic_id_of
        self._hand_over = hand_over
        self._spawn = spawn
        self._works: dict[Log, _Work] = {}
        self._one_at_a_time = asyncio.Lock()
        self.repaired_ranges = 0  # since the start

    def notice(self, log: Log) -> None:
        """Damage was found in `log`: start its repair. Idempotent."""
        if log not in self._works:
            self._works[log] = work = _Work(log=log, ended=asyncio.Event())
            self._spawn(self._keep(work))

    async def wait(self, log: Log) -> bool:
        """For a reader that has met damage, until it is repaired; False: it is not repaired, and may stay."""
        work = self._works.get(log)
        if work is None or work.left:
            return not log.damaged_segments
        try:
            async with timeout(WAIT_S):
                await work.ended.wait()
        except TimeoutError:
            pass
        return not log.damaged_segments

    def is_under_way(self, log: Log) -> bool:
        work = self._works.get(log)
        return work is not None and not work.left

    async def repair(self, log: Log) -> list[Repaired]:
        """Repair all known damage in `log`. StorageError."""
        async with self._one_at_a_time:
            return await self._repair_all(log)

    async def examine(self, log: Log, *, dry_run: bool) -> RepairReport:
        """Read all of `log`, and repair the damage in it unless `dry_run`. StorageError."""
        read_bytes = 0
        async with self._one_at_a_time:  # no concurrent repair, so what is found can be reported
            for segment in list(log.segments):
                if segment in log.segments:
                    found = await log.examine(segment)
                    read_bytes += 0 if found is None else found.read_bytes
            damages = [damage for found in log.damaged_segments.values() for damage in found.damages]
            if dry_run:
                ranges = [Repaired(damage=damage, source=None) for damage in damages]
            else:
                ranges = await self._repair_all(log)
        return RepairReport(read_bytes=read_bytes, ranges=tuple(ranges))

    # -- within

    async def _keep(self, work: _Work) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while work.log.damaged_segments and self._topic_id_of(work.log) is not None:
                left = [one for one in await self.repair(work.log) if one.source is None]
                if not work.log.damaged_segments:
                    return
                self._on_failure(work, left)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LAST_PAUSE_S)
        except StorageError:
            pass  # its directory has failed, or it is being removed: its owner knows
        finally:
            work.log.serves_doubtful = False
            del self._works[work.log]
            work.ended.set()

    def _on_failure(self, work: _Work, left: Sequence[Repaired]) -> None:
        work.attempts += 1
        if not left:
            return
        work.log.serves_doubtful = True
        if not work.left:
            work.left = True
            work.ended.set()
            for one in left[:10]:
                self._probe(
                    "damage_left",
                    partition=str(work.log.partition),
                    begin=one.damage.begin_offset,
                    end=one.damage.end_offset,
                    reason=one.reason,
                )
        if work.attempts >= HAND_OVER_AFTER and self._sources(work.log.partition):
            self._hand_over(
                work.log,
                StorageError(f"{work.log.partition} is damaged and could not be repaired here: {left[0].damage}"),
            )

    def _sources(self, at: TopicPartition) -> list[BrokerId]:
        """Replicas in sync on other nodes, the leader first."""
        topic = self._view.image.topic_named(at.topic)
        state = None if topic is None else topic.partitions.get(at.partition)
        if state is None:
            return []
        nodes = [node for node in state.isr if node != self._me]
        return sorted(nodes, key=lambda node: node != state.leader)

    async def _repair_all(self, log: Log) -> list[Repaired]:
        found: list[Repaired] = []
        for segment in list(log.damaged_segments):
            found += await self._repair(log, segment)
        return found

    async def _repair(self, log: Log, segment: Segment) -> list[Repaired]:
        topic_id = self._topic_id_of(log)
        sources = self._sources(log.partition)
        reason = "no other replica is in sync"
        for node in sources if topic_id is not None else []:
            assert topic_id is not None
            examined = log.damaged_segments.get(segment)
            if examined is None:
                return []  # truncated meanwhile: damage that remains will be found again
            fetch = partial(self._source.batches, node, topic_id, log.partition)
            try:
                if not await repair_segment(self._fs, log, segment, examined, fetch):
                    return []  # the log has changed: remaining damage will be found again
            except StorageError:
                log.durability.check()
                raise
            except StreamlogError as error:
                reason = f"node {node}: {error}"
                continue
            self.repaired_ranges += len(examined.damages)
            for damage in examined.damages:
                self._probe(
                    "damage_repaired",
                    partition=str(log.partition),
                    begin=damage.begin_offset,
                    end=damage.end_offset,
                    source=node,
                )
            return [Repaired(damage=damage, source=node) for damage in examined.damages]
        left = log.damaged_segments.get(segment)
        return [Repaired(damage=one, source=None, reason=reason) for one in (() if left is None else left.damages)]


def being_repaired(log: Log) -> BrokerNotAvailableError:
    """For a reader that has waited for WAIT_S."""
    return BrokerNotAvailableError(f"{log.partition} is being repaired from another replica: retry later")
