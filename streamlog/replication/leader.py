"""A partition on its leader (SEMANTICS 1, 3, 5). One object a leadership; `resign` ends it.

What it counts:

    own end          the log's ackable end
    a follower's     the ackable end that it reported last in this leadership; 0 before its first report
    high watermark   min over the maximal ISR; unchanged while |ISR| < min.insync.replicas; never falls

The states of a follower:

    out of the ISR --its end >= high watermark and >= the start of this leader epoch, its log start is saved,
                     and it may join---------------------------------------------------------------------> proposed in
    in the ISR     --behind, and not caught up for replica.lag.time.max.ms, or fenced------------------> proposed out
    in the ISR     --behind, and without a stream for GONE_MAX_MS--------------------------------------> proposed out

Its log start is saved: after a crash its log starts where this one does, or later. Otherwise deleted records would be
back if it became the leader then (I23). A follower in the ISR is not removed for it: a deletion is acknowledged
once each of them has confirmed it.

Caught up means that its end reached what the leader's end was at its previous report: a follower that keeps pace with
a busy leader is never quite at the end, and need not be. One that is at the end is caught up until the next append,
however long ago it reported: its lag time starts there (`on_appended`).

A follower whose stream broke gets less time than a slow one: it cannot make progress. GONE_MAX_MS is several times the
longest reconnect, and a stream that is back within that time changes nothing. A follower that has not followed in this
leadership yet counts as a slow one: it has to learn of the new leader first.

`next_due_ms` is when the ISR must be reviewed next, so that the review's interval does not prolong a membership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import (
    FencedLeaderEpochError,
    InvalidRequestError,
    InvariantError,
    NotEnoughReplicasError,
    OutcomeUnknownError,
    UnknownLeaderEpochError,
)
from streamlog.model import INT64_MAX, Appended, BrokerId, EpochEnd, LeaderEpoch, Offset, TopicPartition
from streamlog.ports import Buffer
from streamlog.records import BatchHeader
from streamlog.replication.acks import AckWaiters
from streamlog.replication.isr import Isr, ProposedIsr
from streamlog.replication.replica_log import ReplicaLog

GONE_MAX_MS: Final = 3_000
"""For a follower whose stream broke; it reconnects each second or sooner."""


class LeaderTerm(Struct, frozen=True, kw_only=True):
    """A partition's metadata when this node becomes its leader."""

    partition: TopicPartition
    me: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]  # in assignment order
    isr: tuple[BrokerId, ...]
    min_insync_replicas: int  # the topic's setting; the effective one is bounded by the number of replicas
    others_eligible: bool  # the controller may elect replicas outside of the ISR as complete (ELR, last known ELR)
    lag_max_ms: int  # replica.lag.time.max.ms


class _Follower(Struct):
    """One follower, in this leadership."""

    ackable_end: Offset | None  # None: it has not reported yet
    caught_up_ms: int  # when its end last equalled the leader's
    reported_ms: int
    leader_end_then: Offset  # the leader's end at its last report
    gone_ms: int | None = None  # since when it has no stream; None: it has one, or has not had one yet
    saved_log_start: Offset | None = None  # in its checkpoint; None: it does not report that (an earlier release)
    differs: bool = False  # it truncates its log: it must leave the ISR, also if it has caught up before


_NOT_A_REPLICA: Final = _Follower(None, 0, 0, Offset(0))
"""In the ISR, but not among the replicas: it never reports, so the high watermark stays."""


class PartitionLeader:
    """Owned by the node's partition table; one event loop. `may_join(broker)`: neither fenced nor shutting down."""

    # What is looked up for each record, recomputed by `_count` when ISR or replicas have changed.
    in_sync: tuple[BrokerId, ...]  # the committed ISR
    _enough_replicas: bool  # in sync, for min.insync.replicas
    _counts_own_end: bool  # this node is in the maximal ISR
    _counted: tuple[_Follower, ...]  # the others that are

    def __init__(
        self,
        log: ReplicaLog,
        term: LeaderTerm,
        *,
        high_watermark: Offset,
        now_ms: int,
        may_join: Callable[[BrokerId], bool],
    ) -> None:
        """`high_watermark`: as this replica last knew it. `now_ms` is monotonic, as everywhere here."""
        self._log = log
        self._term = term
        self._may_join = may_join
        self._isr = Isr(term.isr, term.leader_epoch, term.partition_epoch)
        self._others_eligible = term.others_eligible
        self.replicas = term.replicas  # in assignment order
        self._followers = {
            broker: _Follower(None, now_ms, now_ms, log.log_end_offset) for broker in term.replicas if broker != term.me
        }
        log.assign_epoch(term.leader_epoch)
        self._epoch_start = log.log_end_offset
        self.high_watermark = Offset(min(max(high_watermark, log.log_start_offset), log.log_end_offset))
        self._acks = AckWaiters()
        self._resigned = False
        self._count()
        self._advance()

    # -- facts

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._term.leader_epoch

    @property
    def isr(self) -> Isr:
        return self._isr

    @property
    def waiting(self) -> int:
        """Producers that wait for an acknowledgement."""
        return len(self._acks)

    def lags(self) -> list[tuple[BrokerId, int]]:
        """Records that each follower has not acknowledged; for one that has not reported, the whole log."""
        end, start = self._log.log_end_offset, self._log.log_start_offset
        return [
            (broker, end - (start if follower.ackable_end is None else follower.ackable_end))
            for broker, follower in self._followers.items()
        ]

    @property
    def min_isr(self) -> int:
        """More than are in sync while others are eligible: the controller has counted with a larger
        min.insync.replicas, so it may elect one that lacks what the ISR alone would acknowledge.
        """
        needed = min(self._term.min_insync_replicas, len(self._term.replicas))
        return max(needed, len(self._isr.committed) + 1) if self._others_eligible else needed

    # -- producing

    def append(
        self, buffer: Buffer, batches: Sequence[tuple[int, BatchHeader]], now_ms: int, *, acks_all: bool
    ) -> Appended:
        """Append validated batches. With acks=all and too few replicas in sync nothing is written.

        Raises NotEnoughReplicasError, and what `Log.append_as_leader` raises.
        """
        if acks_all and not self._enough_replicas:
            why = ", since replicas outside of the ISR may be elected as complete" if self._others_eligible else ""
            raise NotEnoughReplicasError(
                f"{self._term.partition}: {len(self._isr.committed)} replicas in sync, {self.min_isr} needed{why}",
                field="min.insync.replicas",
                limit=self.min_isr,
            )
        return self._log.append_as_leader(buffer, batches, self._term.leader_epoch, now_ms)

    def wait_for(self, end_offset: Offset) -> asyncio.Future[None]:
        """Done when the high watermark reaches `end_offset` (acks=all); see `acks` for its errors."""
        if self._resigned:
            raise InvariantError(f"{self._term.partition}: this leadership has ended")
        future = self._acks.add(end_offset)
        if end_offset <= self.high_watermark:
            self._settle()
        return future

    # -- what moves the high watermark

    def on_ackable_end(self) -> Offset:
        """The own log's ackable end has moved. Returns the current high watermark."""
        self._advance()
        return self.high_watermark

    def check_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """The epoch that a follower or client knows: FENCED_LEADER_EPOCH below ours, UNKNOWN_LEADER_EPOCH above."""
        ours = self._term.leader_epoch
        if leader_epoch < ours:
            raise FencedLeaderEpochError(
                f"{self._term.partition}: stale leader epoch {leader_epoch}; current is {ours}",
                field="leader_epoch",
                limit=ours,
            )
        if leader_epoch > ours:
            raise UnknownLeaderEpochError(
                f"{self._term.partition}: leader epoch {leader_epoch} is unknown here; current is {ours}",
                field="leader_epoch",
                limit=ours,
            )

    def divergence(self, last_epoch: LeaderEpoch, fetch_offset: Offset) -> EpochEnd | None:
        """Where the log of a follower that continues at `fetch_offset`, its last record being of `last_epoch`, diverges
        from this one; None where it is a prefix of it (KIP-595's check, SEMANTICS 2).

        A follower whose log is empty (last epoch -1) diverges nowhere.
        """
        if last_epoch < 0:
            return None
        end = self._log.end_offset_for(last_epoch)
        return end if end.epoch < last_epoch or end.end_offset < fetch_offset else None

    def on_position(self, broker: BrokerId, ackable_end: Offset, now_ms: int) -> Offset:
        """A follower reports its ackable end. Returns the current high watermark. InvalidRequestError.

        `divergence` was checked when the slot began, so the position refers to this log's records.
        """
        follower, log_end = self._followers.get(broker), self._log.log_end_offset
        if follower is None or not 0 <= ackable_end <= log_end:
            raise InvalidRequestError(
                f"{self._term.partition}: broker {broker} cannot hold records up to {ackable_end}, the log ends at"
                f" {log_end}",
                field="log_end_offset",
                limit=log_end,
            )
        if ackable_end >= log_end:
            follower.caught_up_ms = now_ms
        elif ackable_end >= follower.leader_end_then:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.reported_ms)
        follower.ackable_end = ackable_end
        follower.reported_ms, follower.leader_end_then = now_ms, log_end
        follower.gone_ms = None
        self._advance()
        return self.high_watermark

    def on_saved_log_start(self, broker: BrokerId, log_start: Offset | None) -> None:
        """A follower reports the log start in its checkpoint; None: it is of a release that does not."""
        follower = self._followers.get(broker)
        if follower is not None:
            follower.saved_log_start = log_start

    def on_appended(self, first_offset: Offset, now_ms: int) -> None:
        """The log has grown from `first_offset` on: followers that were at its end have been caught up until now."""
        for follower in self._followers.values():
            if follower.ackable_end == first_offset:
                follower.caught_up_ms = now_ms

    def on_gone(self, broker: BrokerId, now_ms: int) -> None:
        """The follower's stream has closed. Its next position shows that it is back."""
        follower = self._followers.get(broker)
        if follower is not None and follower.gone_ms is None:
            follower.gone_ms = now_ms

    def on_differing(self, broker: BrokerId) -> None:
        """The follower's log differs from this one: its position does not count, and it leaves the ISR at once. It
        truncates what differs, copies it again, and rejoins as a follower that has lagged.
        """
        follower = self._followers.get(broker)
        if follower is not None:
            follower.ackable_end = None
            follower.differs = broker in self._isr.maximal

    def forget_position(self, broker: BrokerId) -> None:
        """A follower outside of the ISR has re-registered since it reported its position: it may have lost its log."""
        follower = self._followers.get(broker)
        if follower is not None and broker not in self._isr.committed:
            follower.ackable_end = None

    def _count(self) -> None:
        """ISR, replicas or min.insync.replicas have changed."""
        maximal, me = self._isr.maximal, self._term.me
        self.in_sync = self._isr.committed
        self._enough_replicas = len(self.in_sync) >= self.min_isr
        self._counts_own_end = me in maximal
        for broker, follower in self._followers.items():
            follower.differs = follower.differs and broker in maximal
        self._counted = tuple(self._followers.get(broker, _NOT_A_REPLICA) for broker in maximal if broker != me)

    def _advance(self) -> None:
        """Recompute the high watermark (SEMANTICS 1): the lowest end of the maximal ISR. Runs several times for each
        record, so it makes no call without need.
        """
        if not self._enough_replicas:
            return
        current, lowest = self.high_watermark, INT64_MAX
        for follower in self._counted:
            end = follower.ackable_end
            if end is None or end <= current:
                return
            if end < lowest:
                lowest = end
        if self._counts_own_end:
            own = self._log.ackable_end
            if own <= current:
                return
            if own < lowest:
                lowest = own
        self.high_watermark = Offset(lowest)
        self._settle()

    def _settle(self) -> None:
        self._acks.passed(self.high_watermark, enough_replicas=self._enough_replicas)

    # -- the ISR

    def propose_isr(self, now_ms: int) -> ProposedIsr | None:
        """The ISR to propose now: without followers that lag, with those that have caught up. To be called when a
        follower has reported, and at `next_due_ms`. None: no change, or a proposal is in flight.
        """
        if self._resigned or self._isr.pending is not None:
            return None
        me = self._term.me
        kept = [b for b in self._isr.committed if b == me or not self._lags(b, now_ms)]
        joining = [b for b in self._followers if b not in self._isr.committed and self._has_caught_up(b)]
        proposal = self._isr.propose((*kept, *joining))
        if proposal is not None:
            self._count()  # who would join counts at once
        return proposal

    def next_due_ms(self) -> int | None:
        """When a member of the ISR will have been behind for too long, if nothing changes until then; None: none will,
        or a proposal is in flight, and its result is followed by a review.
        """
        if self._resigned or self._isr.pending is not None:
            return None
        due = [self._out_at_ms(broker) for broker in self._isr.committed if broker != self._term.me]
        return min((at_ms + 1 for at_ms in due if at_ms is not None), default=None)

    def _lags(self, broker: BrokerId, now_ms: int) -> bool:
        out_at_ms = self._out_at_ms(broker)
        return out_at_ms is not None and now_ms > out_at_ms

    def _out_at_ms(self, broker: BrokerId) -> int | None:
        """From when on it is behind for too long; None: it is at the end."""
        follower, term = self._followers.get(broker), self._term
        if follower is None or follower.differs:
            return 0  # not a replica any more, or not with this log
        if follower.ackable_end is not None and follower.ackable_end >= self._log.log_end_offset:
            return None
        out_at_ms = follower.caught_up_ms + term.lag_max_ms
        if follower.gone_ms is not None:
            out_at_ms = min(out_at_ms, max(follower.gone_ms, follower.caught_up_ms) + GONE_MAX_MS)
        return out_at_ms

    def _has_caught_up(self, broker: BrokerId) -> bool:
        follower = self._followers[broker]
        end, log_start = follower.ackable_end, follower.saved_log_start
        if end is None or end < self.high_watermark or end < self._epoch_start:
            return False
        return (log_start is None or log_start >= self._log.log_start_offset) and self._may_join(broker)

    def on_isr(
        self, isr: tuple[BrokerId, ...], partition_epoch: int, *, others_eligible: bool, by_metadata: bool
    ) -> None:
        """By the quorum's result of a proposal, which does not name the last known ELR, or by the metadata."""
        if partition_epoch >= self._isr.partition_epoch:
            self._others_eligible = others_eligible or (self._others_eligible and not by_metadata)
        self._isr.accepted(isr, partition_epoch)
        self._count()
        self._advance()

    def on_refused(self, proposal: ProposedIsr) -> None:
        """The quorum refused it (INELIGIBLE_REPLICA, INVALID_UPDATE_VERSION): the ISR is unchanged."""
        self._isr.refused(proposal)
        self._count()
        self._advance()

    def on_assignment(self, replicas: tuple[BrokerId, ...], min_insync_replicas: int, now_ms: int) -> None:
        """Other replicas (a reassignment), or another `min.insync.replicas`, within this leadership."""
        self._term = replace(self._term, replicas=replicas, min_insync_replicas=min_insync_replicas)
        self.replicas = replicas
        end = self._log.log_end_offset
        self._followers = {
            broker: self._followers.get(broker) or _Follower(None, now_ms, now_ms, end)
            for broker in replicas
            if broker != self._term.me
        }
        self._count()
        self._advance()

    # -- the end

    def resign(self) -> None:
        """Another leader, or none: for waiting producers the outcome is unknown."""
        self._resigned = True
        self._acks.fail_all(
            OutcomeUnknownError(f"{self._term.partition}: the leader changed before the records were acknowledged")
        )
