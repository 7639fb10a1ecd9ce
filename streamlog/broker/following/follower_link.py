"""The follower's side of one replication stream: all partitions that this node copies from one leader node.

Each partition that is followed goes through

    waiting --stream open, its last batches read--> followed under a slot --batches, facts--> followed
       ^                                        | diverging, differing, out of range, batches that do not fit,
       |                                        v disk busy
       +--done, at once or after a pause---- repairing        the slot has ended; a task truncates the log, or waits
                                                | its disk has failed
                                                v
                                             stopped          until it is followed again

`unfollow` ends it from any state. When the stream breaks every slot ends, and what was followed waits for the next
stream; repairs continue.

To the leader goes one message for all that is pending: new slots, positions, ended slots. A position is sent when the
log's ackable end has moved, or a new log start is in the checkpoint; syncs that finish while a message is being sent
share the next one. From the leader, a message is appended before the next one is read: a disk that cannot keep up
blocks the stream, and nothing queues here.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from streamlog.aio.group_tasks import start_unless_ending
from streamlog.broker import replica_wire as wire
from streamlog.broker.following.follower_replica import FollowerReplica
from streamlog.broker.following.follower_traces import FollowerTraces
from streamlog.broker.replica_wire import CREDIT_MAX, Follow, FollowerHello, Position, Request, SlotUpdate
from streamlog.broker.throttle import Throttle
from streamlog.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    OffsetOutOfRangeError,
    StorageError,
    StreamlogError,
    ThrottledError,
)
from streamlog.model import INT64_MAX, Offset
from streamlog.ports import Probe, Random, RpcError, Stream, Tracing
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.joining import UnprovenEpochs

FOLLOWS_PER_MESSAGE: Final = 2_000
"""Some 60 bytes each; the message has a bound (replica_wire.REQUEST_BYTES_MAX)."""
HELD_COUNT: Final = 16
"""Batches that are named to the leader when following begins; four times as many each time they differed."""
NAMED_PER_MESSAGE: Final = 20_000
"""Batches and leader epochs that are named to the leader: 30 bytes each at most."""
READ_AT_ONCE: Final = 16
"""Logs whose last batches are read at the same time."""
RETRY_S: Final = (0.02, 1.0)
"""First and longest pause before a partition is followed again that the leader refused."""
LOG_AGAIN_S: Final = 60.0
"""Why a partition cannot be followed is logged at first, and then at this interval."""
GRANT_BYTES: Final = 256 << 10
"""Credit that a throttled follower grants at a time."""


class FollowState(enum.Enum):
    WAITING = enum.auto()
    FOLLOWED = enum.auto()
    REPAIRING = enum.auto()
    STOPPED = enum.auto()


class Followed:
    """One partition on this link. Owned by it."""

    __slots__ = (
        "credit_bytes",
        "failure_logged_s",
        "held",
        "held_count",
        "pause_s",
        "received_bytes",
        "replica",
        "reported_end",
        "saved_log_start",
        "slot",
        "state",
        "timer",
        "traces",
    )

    def __init__(self, replica: FollowerReplica) -> None:
        self.replica = replica
        self.state = FollowState.WAITING
        self.slot = -1  # while FOLLOWED
        self.reported_end = Offset(0)  # in this slot
        self.saved_log_start: Offset | None = None  # to be reported; None: it was
        self.received_bytes = 0  # in this slot
        self.credit_bytes: int | None = None  # in this slot; None: without limit
        self.held: Sequence[HeldBatch] = ()  # the last batches of the log, while WAITING
        self.held_count = HELD_COUNT  # how many are named; more after they differed
        self.failure_logged_s: float | None = None  # when a failure was logged last; None: since then it was followed
        self.pause_s = RETRY_S[0]  # before the next attempt, after a failed one
        self.timer: asyncio.TimerHandle | None = None
        self.traces: FollowerTraces | None = None  # while traced appends are not yet synced

    def close(self) -> None:
        self.state = FollowState.STOPPED
        if self.timer is not None:
            self.timer.cancel()


class FollowerLink:
    """Owned by the links. All but `exchange` is synchronous; repairs are tasks of `tasks`."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        throttle: Throttle,
        in_sync: Callable[[FollowerReplica], bool],
        random: Random,
        probe: Probe,
        tracing: Tracing | None = None,
    ) -> None:
        """`in_sync`: whether this node is in the ISR of the partition, by its metadata."""
        self._tasks = tasks
        self._throttle = throttle
        self._in_sync = in_sync
        self._random = random
        self._probe = probe
        self._tracing = tracing
        self._followed: dict[FollowerReplica, Followed] = {}
        self.has_worked = False  # a message was received on the current stream, or the last one
        self._is_open = False  # the stream
        self._next_slot = 0  # never falls within a stream
        self._slots: dict[int, Followed] = {}
        self._to_follow: dict[Followed, None] = {}
        self._to_report: dict[Followed, None] = {}
        self._to_unfollow: list[int] = []  # bounded by the slots that were open when it was last emptied
        self._to_grant: dict[Followed, None] = {}  # have used up their credit
        self._wake = asyncio.Event()
        self._reading = asyncio.Semaphore(READ_AT_ONCE)

    def __len__(self) -> int:
        return len(self._followed)

    # -- what is followed

    def follow(self, replica: FollowerReplica) -> None:
        followed = self._followed[replica] = Followed(replica)
        replica.on_ackable_end = partial(self._on_ackable_end, followed)
        replica.on_start_saved = partial(self._on_start_saved, followed)
        replica.on_joined = partial(self._on_joined, followed)
        self._follow_again(followed)

    def unfollow(self, replica: FollowerReplica) -> None:
        """Idempotent."""
        followed = self._followed.pop(replica, None)
        if followed is not None:
            self._end_slot(followed, notify=True)
            followed.close()
            self._to_follow.pop(followed, None)

    def _follow_again(self, followed: Followed) -> None:
        """The batches for the leader to compare are read first, while a stream is open."""
        followed.state, followed.timer = FollowState.WAITING, None
        if self._is_open:
            followed.state = FollowState.REPAIRING
            start_unless_ending(self._tasks, self._read_held(followed))

    async def _read_held(self, followed: Followed) -> None:
        try:
            async with self._reading:
                await followed.replica.restore_producers()
                followed.held = await followed.replica.held(followed.held_count)
        except CorruptMessageError as error:
            if followed.state is FollowState.REPAIRING:
                self._log_failure(followed, "follower_repair_failed", error)
                self._follow_later(followed)
            return
        except StreamlogError:
            if followed.state is FollowState.REPAIRING:
                followed.close()  # its disk has failed
            return
        if followed.state is FollowState.REPAIRING:
            followed.state = FollowState.WAITING
            if self._is_open:
                self._to_follow[followed] = None
                self._wake.set()

    def _follow_later(self, followed: Followed) -> None:
        """After a pause that grows until batches are received."""
        followed.state = FollowState.REPAIRING
        delay_s = followed.pause_s * self._random.uniform(0.5, 1.0)
        followed.pause_s = min(2 * followed.pause_s, RETRY_S[1])
        followed.timer = asyncio.get_running_loop().call_later(delay_s, self._follow_again, followed)

    def _end_slot(self, followed: Followed, *, notify: bool) -> None:
        """Later messages for the slot are ignored. `notify`: the leader does not know it yet."""
        if followed.state is FollowState.FOLLOWED:
            if self._slots.pop(followed.slot, None) is not None and notify:
                self._to_unfollow.append(followed.slot)
                self._wake.set()
            self._to_report.pop(followed, None)
            self._to_grant.pop(followed, None)
            if followed.traces is not None:
                followed.traces.failed("", "the leader's slot has ended")
                followed.traces = None
            followed.state = FollowState.WAITING

    # -- one stream

    async def exchange(self, stream: Stream, hello: FollowerHello) -> None:
        """Until the leader closes the stream (returns), or it breaks (RpcError, CorruptMessageError)."""
        self._is_open, self.has_worked, self._next_slot = True, False, 0
        for followed in list(self._followed.values()):
            if followed.state is FollowState.WAITING:
                self._follow_again(followed)
        try:
            await stream.send(wire.encode_request(Request(hello=hello)))
            sender = self._tasks.create_task(self._send(stream))
            try:
                while (data := await stream.recv()) is not None:
                    self.has_worked = True
                    for update in wire.decode_response(data):
                        self._on_update(update)
            finally:
                sender.cancel()
        finally:
            self._on_closed()

    def _on_closed(self) -> None:
        self._is_open = False
        for followed in list(self._slots.values()):
            self._end_slot(followed, notify=False)
        self._to_follow.clear()
        self._to_unfollow.clear()
        self._throttle.forget(self._grant)

    async def _send(self, stream: Stream) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._to_follow or self._to_report or self._to_unfollow:
                    await stream.send(wire.encode_request(self._pending()))
        except RpcError:
            pass  # `recv` raises it as well

    def _pending(self) -> Request:
        """All that is pending, with current values."""
        unfollow, self._to_unfollow = self._to_unfollow, []
        reported, self._to_report = self._to_report, {}
        positions = [self._position(followed) for followed in reported]
        follows: list[Follow] = []
        named = 0
        for followed in list(self._to_follow)[:FOLLOWS_PER_MESSAGE]:
            unproven = followed.replica.unproven_epochs(wire.EPOCHS_MAX)
            named += len(followed.held) + (0 if unproven is None else len(unproven.epochs))
            if follows and named > NAMED_PER_MESSAGE:
                break
            del self._to_follow[followed]
            follows.append(self._new_slot(followed, unproven))
        return Request(follows=follows, positions=positions, unfollow=unfollow)

    def _position(self, followed: Followed) -> Position:
        followed.reported_end = max(followed.reported_end, followed.replica.follower.ackable_end)
        saved_log_start, followed.saved_log_start = followed.saved_log_start, None
        return Position(followed.slot, followed.reported_end, followed.credit_bytes, saved_log_start)

    def _new_slot(self, followed: Followed, unproven: UnprovenEpochs | None) -> Follow:
        replica, at = followed.replica, followed.replica.position()
        followed.state, followed.slot = FollowState.FOLLOWED, self._next_slot
        self._next_slot += 1
        self._slots[followed.slot] = followed
        followed.reported_end, followed.received_bytes = at.ackable_end, 0
        followed.saved_log_start = None
        followed.credit_bytes = 0 if self._is_throttled(followed) else None
        if followed.credit_bytes is not None:
            self._request_credit(followed)
        return Follow(
            slot=followed.slot,
            topic_id=replica.topic_id,
            partition=replica.partition.partition,
            leader_epoch=replica.leader_epoch,
            fetch_offset=at.fetch_offset,
            last_epoch=at.last_epoch,
            ackable_end=at.ackable_end,
            log_start=at.log_start,
            credit_bytes=followed.credit_bytes,
            held=followed.held,
            saved_log_start=replica.saved_log_start,
            unproven=unproven,
            incomplete=replica.is_incomplete,
        )

    def _on_ackable_end(self, followed: Followed) -> None:
        if followed.state is FollowState.FOLLOWED and followed.replica.follower.ackable_end > followed.reported_end:
            if followed.traces is not None:
                self._on_traced_end(followed, followed.traces)
            self._to_report[followed] = None
            self._wake.set()

    def _on_start_saved(self, followed: Followed) -> None:
        if followed.state is FollowState.FOLLOWED:
            followed.saved_log_start = followed.replica.saved_log_start
            self._to_report[followed] = None
            self._wake.set()

    def _on_joined(self, followed: Followed) -> None:
        if followed.state is FollowState.FOLLOWED and followed.credit_bytes is not None:
            self._request_credit(followed)

    def _on_traced_end(self, followed: Followed, traces: FollowerTraces) -> None:
        traces.on_ackable_end(followed.replica.follower.ackable_end)
        if not len(traces):
            followed.traces = None

    # -- from the leader

    def _on_update(self, update: SlotUpdate) -> None:
        followed = self._slots.get(update.slot)
        if followed is None:
            return  # sent before the leader knew that the slot had ended
        if update.error is not None:
            self._end_slot(followed, notify=False)
            self._on_error(followed, update.error)
        elif update.divergence is not None:
            self._end_slot(followed, notify=False)
            self._probe(
                "log_diverged",
                partition=str(followed.replica.partition),
                leader_epoch=followed.replica.leader_epoch,
                log_end=followed.replica.log.log_end_offset,
                leaders_epoch=update.divergence.leader_epoch,
                leaders_end=update.divergence.end_offset,
            )
            self._repair(followed, partial(followed.replica.on_diverging, *update.divergence))
        elif update.differs_from is not None:
            self._end_slot(followed, notify=False)
            self._on_differing(followed, update.differs_from)
        else:
            self._on_batches(followed, update)

    def _on_differing(self, followed: Followed, offset: Offset) -> None:
        replica = followed.replica
        if offset >= replica.log.log_end_offset:
            self._follow_later(followed)
            return
        self._probe(
            "log_differs",
            partition=str(replica.partition),
            leader=replica.leader,
            offset=offset,
            log_end=replica.log.log_end_offset,
        )
        followed.held_count = min(4 * followed.held_count, wire.HELD_MAX)
        self._repair(followed, partial(replica.on_differing, offset))

    def _on_error(self, followed: Followed, error: StreamlogError) -> None:
        """The leader has ended the slot."""
        if isinstance(error, OffsetOutOfRangeError):
            start, end = error.details.get("log_start"), error.details.get("log_end")
            if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= INT64_MAX:
                self._repair(followed, partial(followed.replica.on_out_of_range, Offset(start), Offset(end)))
                return
        self._follow_later(followed)

    def _on_batches(self, followed: Followed, update: SlotUpdate) -> None:
        replica = followed.replica
        batches = update.batches[0] if update.batches else b""
        facts = (update.high_watermark, update.log_start)
        if update.traces and self._tracing is not None:
            if followed.traces is None:
                followed.traces = FollowerTraces(self._tracing, replica.partition)
            followed.traces.begin(update.traces, len(batches))
        try:
            if update.has_gaps:
                replica.log.leader_has_gaps = True
            replica.log.unproven_from = None
            replica.on_batches(batches, *facts)
        except StreamlogError as error:
            if followed.traces is not None:
                followed.traces.failed(error.code, error.message)
            self._end_slot(followed, notify=True)
            self._on_unfit(followed, error, bytes(batches), *facts)
            return
        if followed.traces is not None:
            followed.traces.appended(replica.follower.ackable_end)
            self._on_traced_end(followed, followed.traces)
        if len(batches):
            followed.pause_s = RETRY_S[0]
            followed.failure_logged_s = None
            followed.received_bytes += len(batches)
            if followed.credit_bytes is not None and followed.received_bytes >= followed.credit_bytes:
                self._request_credit(followed)

    def _on_unfit(
        self, followed: Followed, error: StreamlogError, batches: bytes, high_watermark: Offset, log_start: Offset
    ) -> None:
        """The batches could not be appended."""
        replica = followed.replica
        match error:
            case ThrottledError():
                end = replica.log.log_end_offset
                self._repair(followed, partial(replica.log.durability.wait_until_synced, end))
            case CorruptMessageError() if replica.follower.straddles(batches):
                self._repair(followed, partial(replica.on_straddling, batches, high_watermark, log_start))
            case StorageError() | FencedLeaderEpochError():
                followed.close()  # its directory is offline, or its leader epoch has ended
            case _:
                self._log_failure(followed, "batches_refused", error)
                self._follow_later(followed)

    def _repair(self, followed: Followed, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, then follow again."""
        followed.state = FollowState.REPAIRING
        start_unless_ending(self._tasks, self._run_repair(followed, work))

    async def _run_repair(self, followed: Followed, work: Callable[[], Awaitable[None]]) -> None:
        """Runs to its end also after `unfollow`: a log must not be left half truncated."""
        failed: StreamlogError | None = None
        try:
            await work()
        except StreamlogError as error:
            failed = error
        if followed.state is not FollowState.REPAIRING:
            return
        if failed is None:
            self._follow_again(followed)
        elif isinstance(failed, StorageError | FencedLeaderEpochError):
            followed.close()
        else:
            self._log_failure(followed, "follower_repair_failed", failed)
            self._follow_later(followed)

    def _log_failure(self, followed: Followed, event: str, error: StreamlogError) -> None:
        """Once a partition and interval: each attempt may fail alike."""
        now = asyncio.get_running_loop().time()
        last = followed.failure_logged_s
        if last is None or now - last >= LOG_AGAIN_S:
            followed.failure_logged_s = now
            self._probe(event, partition=str(followed.replica.partition), reason=error.message)

    # -- credit

    def _is_throttled(self, followed: Followed) -> bool:
        return self._throttle.limited and not self._in_sync(followed.replica)

    def limit(self) -> None:
        """The throttle's rate has changed: slots that were opened without a limit keep to it too."""
        for followed in list(self._slots.values()):
            if followed.credit_bytes in (None, CREDIT_MAX) and self._is_throttled(followed):
                self._set_credit(followed, followed.received_bytes)
                self._request_credit(followed)

    def _request_credit(self, followed: Followed) -> None:
        """A partition that is not throttled does not wait for those that are."""
        if not self._is_throttled(followed):
            self._set_credit(followed, CREDIT_MAX)
            return
        self._to_grant[followed] = None
        self._grant()

    def _grant(self) -> None:
        """Grant more to those that have used up their credit, in turn, as the throttle allows."""
        while self._to_grant:
            followed = next(iter(self._to_grant))
            credit = CREDIT_MAX
            if self._is_throttled(followed):
                if self._throttle.wait_s() > 0:
                    self._throttle.wake_later(self._grant)
                    return
                self._throttle.charge(GRANT_BYTES)
                credit = max(followed.credit_bytes or 0, followed.received_bytes) + GRANT_BYTES
            self._set_credit(followed, credit)

    def _set_credit(self, followed: Followed, credit_bytes: int) -> None:
        followed.credit_bytes = credit_bytes
        self._to_grant.pop(followed, None)
        self._to_report[followed] = None
        self._wake.set()
