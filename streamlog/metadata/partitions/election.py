"""The state a partition should be in: leader, ISR, ELR. SEMANTICS 3 and 4, KIP-966.

`revise` is the only place where leader, ISR and ELR of an existing partition are decided, whatever the occasion: a node
was fenced, returned or shuts down, a leader proposes an ISR, a reassignment progresses, an operator requests an
election. Its steps:

    1   ISR:     the current (or proposed) members that are active, with a working disk, and did not stop uncleanly
    2   leader:  the current one, if valid
                 else the first in-sync replica, in the order of the replicas
                 else the first eligible replica (ELR) that is active; the ISR is this replica only
                 else, if ISR, ELR and last known ELR are empty, the last leader, if it is active (KIP-966) and reports
                 that its log was not cut when it was opened
                 else the replica that is proven to have everything acknowledged, among those that answered; else the
                 longest log, if the topic's strategy or an operator accepts the loss
                 (streamlog.metadata.partitions.replica_states)
                 else none
    3   a reassignment whose new replicas are all in sync is completed
    4   ELR:     empty while enough replicas are in sync; else those formerly in sync or eligible that did not stop
                 uncleanly
    5   last known ELR: empty likewise; else those formerly in sync or eligible that stopped uncleanly and kept their
                 disks

Why the last leader is safe: acknowledged records are on stable storage (SEMANTICS 5), so a killed node has everything
it acknowledged; that it leaves ISR and ELR is for nodes with Kafka's flush policy. If every replica was killed, the
last leader was the last eligible one, and without this rule no partition would get a leader after a power cut of the
whole cluster. If its log was cut, by a power cut or by damage, its end proves nothing: replicas that left the ISR
before may have more, and the strategy decides. A node that lost a log directory is removed as last leader and from
the last known ELR (streamlog.metadata.brokers.registration).
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
    """What has happened to a partition, in addition to the image."""

    isr: Replicas | None = None  # the leader's proposal, already validated
    unclean_stops: Collection[BrokerId] = ()  # returned without the clean-shutdown mark
    lost_disks: Collection[BrokerId] = ()  # returned without an earlier log directory: cannot be last leader
    repaired: Collection[BrokerId] = ()  # whose log directories are intact again
    prefer_first: bool = False  # elect the first replica, if it is in sync
    allow_unclean: bool = False  # an operator accepts the loss
    states: tuple[ReplicaState, ...] = ()  # as reported by the nodes


NOTHING_SPECIAL = Occasion()


def revise(
    key: PartitionKey, partition: Partition, rules: TopicRules, occasion: Occasion = NOTHING_SPECIAL
) -> PartitionChangeRecord | None:
    """The change that brings the partition to the state it should be in; None if it is in that state."""
    return difference(key, partition, revised(partition, partition, rules, occasion))


def revised(old: Partition, wanted: Partition, rules: TopicRules, occasion: Occasion = NOTHING_SPECIAL) -> Partition:
    """`wanted` (the old state, or that with other replicas) with ISR, leader and ELR as they should be. Replay raises
    the epochs.
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
    """The partition without its old replicas, if the new ones are all in sync (KIP-455). Never if that would leave
    fewer in sync than committing needs, and than there are.
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
    """The record that changes one state to the other (except the epochs, which replay raises); None: equal.

    Removed replicas cause a new leader epoch even under the same leader, so that they cannot fetch any more.
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
    """`replace`, but the same object if nothing differs, as for most partitions."""
    if all(getattr(partition, name) == value for name, value in fields.items()):
        return partition
    return replace(partition, **fields)


def _with_leader(
    target: Partition, fit: Replicas, eligible: Replicas, rules: TopicRules, occasion: Occasion
) -> Partition:
    """The partition with the leader it should have; `fit` and `eligible` are in the order of the replicas."""
    if occasion.prefer_first and target.replicas[0] in target.isr:
        return replace(target, leader=target.replicas[0])
    if target.leader in target.isr:
        return target
    if target.isr:
        return replace(target, leader=target.isr[0])
    for candidate in fit:
        if candidate in eligible:
            return replace(target, leader=candidate, isr=(candidate,))
    alone = not eligible and not without(target.last_known_elr, (target.last_leader,))
    if alone and target.last_leader in fit and _may_lead_again(target, rules, occasion):
        return replace(target, leader=target.last_leader, isr=(target.last_leader,))
    choice = chosen(target, fit, eligible, occasion.states, rules.recovery, by_hand=occasion.allow_unclean)
    if choice is None:
        return _with(target, leader=NO_BROKER)
    # After a loss the new leader's log is authoritative, and no other replica is known to have all of it.
    known = target.last_known_elr if choice.proven else ()
    return replace(target, leader=choice.leader, isr=(choice.leader,), last_known_elr=known)


def _may_lead_again(partition: Partition, rules: TopicRules, occasion: Occasion) -> bool:
    """Whether the last leader, the only replica known to have everything acknowledged, has it still. Where there is no
    other replica, nothing else can have more. Nodes of an older metadata.version do not report it.
    """
    if len(partition.replicas) == 1 or not rules.remembers:
        return True
    leader = partition.last_leader
    return any(one.broker_id == leader and not (one.damaged or one.incomplete) for one in occasion.states)
