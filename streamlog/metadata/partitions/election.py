"""The state that a partition should be in: who is in sync, who is eligible, who leads. SEMANTICS 3 and 4, KIP-966.

`revise` is the one place where leader, ISR and ELR of an existing partition are decided, whatever the occasion: a node
was fenced, came back, stops, asks for another ISR, a reassignment moves on, an operator wants an election. It takes
these steps:

    1   in sync is who was (or who the leader says), if it may be: active, its disk not failed, not stopped uncleanly
    2   leader:  the valid one stays
                 else the first one in sync, in the order of the replicas
                 else the first eligible replica (ELR) that is active; it alone is in sync then
                 else, nobody being in sync or eligible any more, or known to have been so last, the last leader, if it
                 is active (KIP-966)
                 else the longest log of those that have answered, where that is proven to lose nothing, or the topic's
                 strategy or an operator takes the loss (streamlog.metadata.partitions.replica_states)
                 else none
    3   a reassignment whose new replicas are all in sync is over
    4   ELR:     empty while enough are in sync; else who was in sync or eligible and did not stop uncleanly
    5   last known ELR: empty likewise; else who was in sync or eligible, stopped uncleanly and has kept its disk

Why the last leader is safe: acknowledged records are on stable storage (SEMANTICS 5), so a node that was killed has
what it acknowledged; the rule that it leaves ISR and ELR covers those that run with Kafka's flush policy. When every
replica was killed, the last leader is the one that was eligible last, and without this rule no partition would ever
lead again after a power cut of the whole cluster. A node that lost a log directory is no last leader any more, and not
in the last known ELR (streamlog.metadata.brokers.registration).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from streamlog.metadata.configs.rules import TopicRules, effective_min_isr
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.replica_states import ReplicaState, chosen
from streamlog.metadata.records import Partition, PartitionChangeRecord, Replicas
from streamlog.model import NO_BROKER, BrokerId


class Occasion(Struct, frozen=True, kw_only=True):
    """What has happened to a partition, beside what the image says."""

    isr: Replicas | None = None  # the leader's proposal, already found fit
    unclean_stops: Collection[BrokerId] = ()  # came back without the mark of a clean shutdown
    lost_disks: Collection[BrokerId] = ()  # came back without a log directory of before: no last leaders any more
    repaired: Collection[BrokerId] = ()  # whose log directories are sound again
    prefer_first: bool = False  # give the leadership to the first replica, if it is in sync
    allow_unclean: bool = False  # an operator takes the loss
    states: tuple[ReplicaState, ...] = ()  # what the nodes say of their replicas


NOTHING_SPECIAL = Occasion()


def revise(
    key: PartitionKey, partition: Partition, rules: TopicRules, occasion: Occasion = NOTHING_SPECIAL
) -> PartitionChangeRecord | None:
    """The change that brings the partition to where it should be; None where it is there."""
    return difference(key, partition, revised(partition, partition, rules, occasion))


def revised(old: Partition, wanted: Partition, rules: TopicRules, occasion: Occasion = NOTHING_SPECIAL) -> Partition:
    """`wanted` (the old state, or that with other replicas) with ISR, leader and ELR as they should be. The epochs
    are left to replay.
    """
    offline = without(wanted.offline, occasion.repaired)
    lost = frozenset((*offline, *occasion.unclean_stops))
    fit = tuple(b for b in wanted.replicas if b in rules.active and b not in lost)
    members = wanted.isr if occasion.isr is None else occasion.isr
    eligible = tuple(b for b in wanted.replicas if (b in old.isr or b in old.elr) and b not in lost)
    last_leader = NO_BROKER if wanted.last_leader in occasion.lost_disks else wanted.last_leader
    isr = tuple(b for b in fit if b in members)
    known = _last_known(old, wanted, offline, rules, occasion)
    target = _with(wanted, isr=isr, offline=offline, last_leader=last_leader, last_known_elr=known)
    target = _with_leader(target, fit, eligible, rules, occasion)
    completed = reassignment_completed(target, rules)
    if completed is not target:
        target = _with_leader(completed, completed.isr, (), rules, occasion)
    enough = len(target.isr) >= effective_min_isr(rules.min_insync_replicas, target)
    elr = () if enough else tuple(b for b in target.replicas if b in eligible and b not in target.isr)
    known = () if enough else tuple(b for b in target.replicas if b in target.last_known_elr)
    known = without(known, (*target.isr, *elr))
    return _with(target, elr=elr, last_known_elr=known)


def _last_known(
    old: Partition, wanted: Partition, offline: Replicas, rules: TopicRules, occasion: Occasion
) -> Replicas:
    if not rules.remembers:
        return ()
    stopped = [b for b in (*old.isr, *old.elr) if b in occasion.unclean_stops]
    known = without((*old.last_known_elr, *stopped), (*occasion.lost_disks, *offline))
    return tuple(b for b in wanted.replicas if b in known)


def reassignment_completed(partition: Partition, rules: TopicRules) -> Partition:
    """The partition without its old replicas, where the new ones are all in sync (KIP-455). Never when that would
    leave fewer in sync than committing needs, and than there are.
    """
    if not (partition.adding or partition.removing):
        return partition
    isr = without(partition.isr, partition.removing)
    completed = replace(
        partition,
        replicas=without(partition.replicas, partition.removing),
        isr=isr,
        adding=(),
        removing=(),
        offline=without(partition.offline, partition.removing),
    )
    needed = min(effective_min_isr(rules.min_insync_replicas, completed), len(partition.isr))
    if not isr or len(isr) < needed or any(b not in isr for b in partition.adding):
        return partition
    return completed


def difference(key: PartitionKey, old: Partition, new: Partition) -> PartitionChangeRecord | None:
    """The record that leads from one state to the other (but for the epochs, which are replay's); None: equal.

    Replicas that were taken away make a new leader epoch even under the same leader: they must not be able to fetch
    as if they belonged to it.
    """
    if new == old:
        return None
    shrunk = any(b not in new.replicas for b in old.replicas)
    forgotten = new.leader == new.last_leader == NO_BROKER != old.last_leader
    return PartitionChangeRecord(
        topic_id=key[0],
        partition_id=key[1],
        replicas=None if new.replicas == old.replicas else new.replicas,
        isr=None if new.isr == old.isr else new.isr,
        elr=None if new.elr == old.elr else new.elr,
        last_known_elr=None if new.last_known_elr == old.last_known_elr else new.last_known_elr,
        adding=None if new.adding == old.adding else new.adding,
        removing=None if new.removing == old.removing else new.removing,
        offline=None if new.offline == old.offline else new.offline,
        leader=None if new.leader == old.leader and not shrunk else new.leader,
        last_leader=NO_BROKER if forgotten else None,
    )


def without(replicas: Iterable[BrokerId], taken: Collection[BrokerId]) -> Replicas:
    return tuple(b for b in replicas if b not in taken)


def _with(partition: Partition, **fields: Any) -> Partition:
    """`replace`, but the same object where nothing differs: most partitions are looked at in vain."""
    if all(getattr(partition, name) == value for name, value in fields.items()):
        return partition
    return replace(partition, **fields)


def _with_leader(
    target: Partition, fit: Replicas, eligible: Replicas, rules: TopicRules, occasion: Occasion
) -> Partition:
    """With the leader that it should have; `fit` and `eligible` are in the order of the replicas."""
    if occasion.prefer_first and target.replicas[0] in target.isr:
        return replace(target, leader=target.replicas[0])
    if target.leader in target.isr:
        return target
    if target.isr:
        return replace(target, leader=target.isr[0])
    for candidate in fit:
        if candidate in eligible:
            return replace(target, leader=candidate, isr=(candidate,))
    if not eligible and target.last_leader in fit and not without(target.last_known_elr, (target.last_leader,)):
        return replace(target, leader=target.last_leader, isr=(target.last_leader,))
    choice = chosen(target, fit, eligible, occasion.states, rules.recovery, by_hand=occasion.allow_unclean)
    if choice is None:
        return _with(target, leader=NO_BROKER)
    # After a loss the new leader's log is the truth, and nobody else is known to have all of it.
    known = target.last_known_elr if choice.proven else ()
    return replace(target, leader=choice.leader, isr=(choice.leader,), last_known_elr=known)
