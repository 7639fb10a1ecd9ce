"""Which replica may lead where nobody is in sync or eligible: what nodes say of their logs, and the choice (KIP-966).

A log that ends at (last leader epoch, log end) holds all that a log with a smaller pair holds and has committed, as in
Raft: the leader of an epoch had everything committed before it, and its followers hold a beginning of its log. So the
longest log among some replicas holds everything committed if any one of them does. Who does, the metadata know:

    known      the last leader, and `last_known_elr`: in sync or eligible once, they stopped uncleanly, kept their
               disks, and nothing has been committed without them since
    durable    the node syncs each append of the topic before it counts (SEMANTICS 5), so an unclean stop lost nothing
    proven     a known and durable replica is among those that answer: the longest log has all that was acknowledged

What `unclean.recovery.strategy` lets happen without an operator, when no replica in sync or eligible is alive:

    none        an election that is proven; nothing else
    balanced    that, and once all of the known ones have answered the longest log, which is the best that there is:
                without synced appends a power cut may have taken the end of each of them
    aggressive  the longest log of those that answer now; records may be lost

An operator's unclean election takes the longest log as well, but not while a live node has not answered.
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
    """What a node says of its replica of a partition that nobody leads. It stays so until somebody leads."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch  # of the registration that it speaks under
    log_start: Offset
    log_end: Offset  # >= log_start
    last_epoch: LeaderEpoch  # of its last record; -1: it has had none
    epochs: tuple[tuple[LeaderEpoch, Offset], ...] = ()  # epoch and start offset, rising; the latest of them
    durable: bool  # each append is synced before it counts
    damaged: bool = False  # the log lacks records that it had

    @property
    def length(self) -> tuple[LeaderEpoch, Offset]:
        return self.last_epoch, self.log_end


class LeaderChoice(Struct, frozen=True, kw_only=True):
    leader: BrokerId
    proven: bool  # nothing that was acknowledged is lost


def chosen(
    partition: Partition,
    fit: Replicas,
    eligible: Replicas,
    states: Iterable[ReplicaState],
    strategy: RecoveryStrategy,
    *,
    by_hand: bool = False,
) -> LeaderChoice | None:
    """Who may lead, as far as the answers go. `fit`: alive, with a sound disk; `eligible`: in sync or eligible, dead or
    alive.
    """
    able = {state.broker_id: state for state in states if state.broker_id in fit and not state.damaged}
    if not able:
        return None
    leader = max(able.values(), key=lambda state: _preference(partition, state)).broker_id
    known = known_complete(partition)
    if any(broker_id in able and able[broker_id].durable for broker_id in known):
        return LeaderChoice(leader=leader, proven=True)
    best_there_is = bool(known) and not eligible and all(broker_id in able for broker_id in known)
    if by_hand or strategy is RecoveryStrategy.AGGRESSIVE or (strategy is RecoveryStrategy.BALANCED and best_there_is):
        return LeaderChoice(leader=leader, proven=False)
    return None


def known_complete(partition: Partition) -> Replicas:
    """Those without a place in sync that have all that was committed, unless a stop took it from their disks."""
    known = (partition.last_leader, *partition.last_known_elr)
    return tuple(b for b in partition.replicas if b in known)


def longest(states: Sequence[ReplicaState]) -> ReplicaState | None:
    """Of all that answer, damaged ones too: what the others are measured by."""
    return max(states, key=lambda state: state.length, default=None)


def lost_records(state: ReplicaState, reference: ReplicaState) -> int:
    """How many offsets of the longest log this one does not have: all from where the two may part."""
    return max(0, reference.log_end - min(state.log_end, _end_of(reference, state.last_epoch)))


def _end_of(log: ReplicaState, epoch: LeaderEpoch) -> Offset:
    """Where the epochs up to this one end in a log (KIP-101)."""
    if epoch < 0:
        return log.log_start
    return next((start for later, start in log.epochs if later > epoch), log.log_end)


def _preference(partition: Partition, state: ReplicaState) -> tuple[LeaderEpoch, Offset, bool, int]:
    """The longest; of equal ones the first replica, those last that a reassignment is bringing."""
    adding = state.broker_id in partition.adding
    return state.last_epoch, state.log_end, not adding, -partition.replicas.index(state.broker_id)
