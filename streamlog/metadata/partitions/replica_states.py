"""Which replica may lead if no in-sync or eligible one is active: the reported states and the choice (KIP-966).

A log that ends at (last leader epoch, log end) has everything committed that a log with a smaller pair has, as in Raft:
the leader of an epoch had everything committed before it, and its followers have a prefix of its log. So the longest
log among some replicas has everything committed if any one of them does. The metadata say which do:

    known      the last leader, and `last_known_elr`: formerly in sync or eligible, stopped uncleanly, kept their
               disks, and nothing has been committed without them since
    durable    the node syncs each append of the topic before it counts (SEMANTICS 5), so an unclean stop lost nothing;
               and nothing was cut from the log when it was opened: a torn tail cannot be distinguished from damage
    proven     a known and durable replica is among those that answer: it has everything acknowledged, and leads

What `unclean.recovery.strategy` permits without an operator, if no in-sync or eligible replica is active:

    none        only a proven election
    balanced    that, and the longest log once all known replicas have answered: the best available, since without
                synced appends a power cut may have lost the end of each of them. Where the log of a known one was cut,
                all active replicas must have answered: one that fell out of the ISR before may have more
    aggressive  the longest log of those that answer now; records may be lost

An operator's unclean election elects the longest log too, but not while an active node has not answered.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from msgspec import Struct

from streamlog.metadata.records import Partition, Replicas
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset


class RecoveryStrategy(enum.Enum):
    """`unclean.recovery.strategy`."""

    NONE = "none"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


class ReplicaState(Struct, frozen=True, kw_only=True):
    """A node's report on its replica of a leaderless partition. It does not change until there is a leader."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # of its registration
    log_start: Offset
    log_end: Offset  # >= log_start
    last_epoch: LeaderEpoch  # of its last record; -1: none
    epochs: tuple[tuple[LeaderEpoch, Offset], ...] = ()  # epoch and start offset, rising; the latest of them
    durable: bool  # each append is synced before it counts, and nothing was cut from the log since it was in sync
    damaged: bool = False  # the log has lost records
    incomplete: bool = False  # its end was cut when it was opened, and it has not been in sync since; not durable

    @property
    def length(self) -> tuple[LeaderEpoch, Offset]:
        return self.last_epoch, self.log_end


class LeaderChoice(Struct, frozen=True, kw_only=True):
    leader: BrokerId
    proven: bool  # no acknowledged record is lost


def chosen(
    partition: Partition,
    fit: Replicas,
    eligible: Replicas,
    states: Sequence[ReplicaState],
    strategy: RecoveryStrategy,
    *,
    by_hand: bool = False,
) -> LeaderChoice | None:
    """The replica that may lead, by the answers so far. `fit`: active, with a working disk; `eligible`: in sync or
    eligible, active or not.
    """
    able = {state.broker_id: state for state in states if state.broker_id in fit and not state.damaged}
    if not able:
        return None
    known = known_complete(partition)
    complete = [able[b] for b in known if b in able and able[b].durable]
    if complete:
        # Of these alone: damage may have given another log an epoch that it never had (it is outside of a batch's CRC).
        return LeaderChoice(leader=_longest_of(partition, complete), proven=True)
    leader = _longest_of(partition, able.values())
    best_there_is = bool(known) and not eligible and all(broker_id in able for broker_id in known)
    if any(able[b].incomplete for b in known if b in able):
        answered = [state.broker_id for state in states]
        best_there_is = best_there_is and all(broker_id in answered for broker_id in fit)
    if by_hand or strategy is RecoveryStrategy.AGGRESSIVE or (strategy is RecoveryStrategy.BALANCED and best_there_is):
        return LeaderChoice(leader=leader, proven=False)
    return None


def _longest_of(partition: Partition, states: Iterable[ReplicaState]) -> BrokerId:
    return max(states, key=lambda state: _preference(partition, state)).broker_id


def is_proof(partition: Partition, able: Iterable[ReplicaState]) -> bool:
    """Whether one of these logs is known to have everything acknowledged. `able`: of replicas that may lead."""
    known = known_complete(partition)
    return any(state.durable and state.broker_id in known for state in able)


def known_complete(partition: Partition) -> Replicas:
    """Replicas outside the ISR that have everything committed, unless an unclean stop lost it."""
    known = (partition.last_leader, *partition.last_known_elr)
    return tuple(b for b in partition.replicas if b in known)


def longest(states: Sequence[ReplicaState]) -> ReplicaState | None:
    """The longest log of all that answer, including damaged ones: the reference for losses."""
    return max(states, key=lambda state: state.length, default=None)


def lost_records(state: ReplicaState, reference: ReplicaState) -> int:
    """How many offsets of the longest log this one lacks: all from where the two may diverge."""
    return max(0, reference.log_end - min(state.log_end, _end_of(reference, state.last_epoch)))


def _end_of(log: ReplicaState, epoch: LeaderEpoch) -> Offset:
    """The end offset of the epochs up to this one in a log (KIP-101)."""
    if epoch < 0:
        return log.log_start
    return next((start for later, start in log.epochs if later > epoch), log.log_end)


def _preference(partition: Partition, state: ReplicaState) -> tuple[LeaderEpoch, Offset, Offset, bool, int]:
    """The longest log; of equal ones that with the latest start, so that deleted records do not come back; then the
    first replica, with those that a reassignment adds last.
    """
    adding = state.broker_id in partition.adding
    return state.last_epoch, state.log_end, state.log_start, not adding, -partition.replicas.index(state.broker_id)
