"""The in-sync replicas of a partition, as its leader knows and changes them (SEMANTICS 3, KIP-497).

    committed --propose(larger or smaller set)--> pending --accepted--> committed, under the next partition epoch
                                                     |---refused, certainly not carried out--> committed
                                                     |---outcome unknown--> still pending: proposed again
    any    --a newer partition epoch in the metadata--> committed, with the ISR of the metadata

At most one proposal is in flight. While it is pending, `maximal` (the committed ISR plus those who would join)
determines the high watermark, because the quorum may have accepted already: a smaller set would acknowledge too early.
`committed` counts against `min.insync.replicas`, because the larger set may never be accepted.
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.model import BrokerId, LeaderEpoch


class ProposedIsr(Struct, frozen=True, kw_only=True):
    """AlterPartition, as the leader proposes it to the quorum."""

    leader_epoch: LeaderEpoch
    partition_epoch: int  # that it is based on; if it has changed: INVALID_UPDATE_VERSION
    isr: tuple[BrokerId, ...]  # ascending


class Isr:
    """Owned by the partition's leader. Sets are tuples of ascending ids: nothing depends on a set's order."""

    def __init__(self, committed: tuple[BrokerId, ...], leader_epoch: LeaderEpoch, partition_epoch: int) -> None:
        self._committed = tuple(sorted(committed))
        self._leader_epoch = leader_epoch
        self._partition_epoch = partition_epoch
        self._pending: ProposedIsr | None = None

    @property
    def committed(self) -> tuple[BrokerId, ...]:
        return self._committed

    @property
    def partition_epoch(self) -> int:
        return self._partition_epoch

    @property
    def pending(self) -> ProposedIsr | None:
        return self._pending

    @property
    def maximal(self) -> tuple[BrokerId, ...]:
        if self._pending is None:
            return self._committed
        return tuple(sorted({*self._committed, *self._pending.isr}))

    def propose(self, isr: tuple[BrokerId, ...]) -> ProposedIsr | None:
        """Propose this set; None where a proposal is pending or nothing would change."""
        wanted = tuple(sorted(isr))
        if self._pending is not None or wanted == self._committed:
            return None
        self._pending = ProposedIsr(leader_epoch=self._leader_epoch, partition_epoch=self._partition_epoch, isr=wanted)
        return self._pending

    def accepted(self, isr: tuple[BrokerId, ...], partition_epoch: int) -> None:
        """By the quorum's response or the metadata, whichever comes first; the second changes nothing."""
        if partition_epoch > self._partition_epoch:
            self._committed = tuple(sorted(isr))
            self._partition_epoch = partition_epoch
            self._pending = None

    def refused(self, proposal: ProposedIsr) -> None:
        """By the quorum: it was not and will not be carried out."""
        if self._pending is proposal:
            self._pending = None
