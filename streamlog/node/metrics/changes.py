"""Counts what happens to partitions by the metadata log: ISRs that shrink and grow, leaders that change.

ISR changes are counted by the partition's leader, elections by the active controller, so that the sum over all nodes
counts each one once.
"""

from __future__ import annotations

from collections.abc import Callable

from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.records import Partition
from streamlog.metadata.view import MetadataView
from streamlog.metrics.families import Family, counter, single
from streamlog.model import NO_BROKER, BrokerId, LeaderEpoch

WasProven = Callable[[PartitionKey, LeaderEpoch], bool]


class MetadataChanges:
    """A listener of the node's view, as long as the node runs."""

    def __init__(self, me: BrokerId, view: MetadataView, was_proven: WasProven = lambda _key, _epoch: False) -> None:
        """`was_proven`: whether the controller's answers proved an election in this leader epoch (UncleanRecovery)."""
        self._me = me
        self._view = view
        self._was_proven = was_proven
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        self.proven_elections = 0
        self.unclean_elections = 0
        view.listen(self._on_metadata)

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        if delta is None:  # a snapshot: the changes in between are unknown
            return
        is_controller = self._view.controller == self._me
        for topic_id, differences in delta.changed_topics():
            for partition_id, old, new in differences:
                if old is None or new is None:
                    continue
                if new.leader == self._me:
                    self._count_isr(old, new)
                if is_controller and new.leader not in (old.leader, NO_BROKER):
                    self._count_election((topic_id, partition_id), old, new)

    def _count_isr(self, old: Partition, new: Partition) -> None:
        self.isr_shrinks += any(broker not in new.isr for broker in old.isr)
        self.isr_expands += any(broker not in old.isr for broker in new.isr)

    def _count_election(self, key: PartitionKey, old: Partition, new: Partition) -> None:
        self.elections += 1
        was_complete = new.leader in old.isr or new.leader in old.elr
        if was_complete or (new.leader == old.last_leader and not old.isr and not old.elr):
            return
        if self._was_proven(key, old.leader_epoch):
            self.proven_elections += 1
        else:
            self.unclean_elections += 1

    def families(self) -> list[Family]:
        return [
            counter(
                "streamlog_isr_shrinks_total",
                "Changes by which a partition led by this node lost an in-sync replica.",
                single(self.isr_shrinks),
            ),
            counter(
                "streamlog_isr_expands_total",
                "Changes by which a partition led by this node gained an in-sync replica.",
                single(self.isr_expands),
            ),
            counter(
                "streamlog_controller_leader_elections_total",
                "Partitions that were given another leader while this node was the active controller.",
                single(self.elections),
            ),
            counter(
                "streamlog_controller_proven_leader_elections_total",
                "Elections without an in-sync or eligible replica that provably lost nothing acknowledged.",
                single(self.proven_elections),
            ),
            counter(
                "streamlog_controller_unclean_leader_elections_total",
                "Elections of a replica that may lack committed records. Records may be lost each time.",
                single(self.unclean_elections),
            ),
        ]
