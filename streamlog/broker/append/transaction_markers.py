"""Markers that end transactions, appended for their coordinator through the pipeline's last stages.

A marker may open the producer's next transaction in this partition (`opens_next`): then its first batch is appended
without another call to the coordinator (`verification`). Such a marker may wait a moment for that batch
(`held_markers`).
"""

from __future__ import annotations

from functools import partial

from streamlog.broker.append.held_markers import HeldMarkers
from streamlog.broker.append.pipeline import AppendPipeline
from streamlog.broker.append.verification import Verifications
from streamlog.model import Acks, Appended, ProducerEpoch, ProducerId
from streamlog.ports import Clock
from streamlog.records import EndTransactionMarker, encode_end_transaction, read_header
from streamlog.storage.log.log import Log


class TransactionMarkers:
    """Of one leadership."""

    __slots__ = ("_appends", "_clock", "_held", "_log", "_verifications")

    def __init__(
        self, log: Log, appends: AppendPipeline, verifications: Verifications, held: HeldMarkers, clock: Clock
    ) -> None:
        self._log = log
        self._appends = appends
        self._verifications = verifications
        self._held = held
        self._clock = clock

    def append(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        *,
        commit: bool,
        opens_next: bool = False,
    ) -> Appended:
        """End the producer's transaction. `producer_epoch` is the transaction's plus one. The marker counts once
        `LeaderReplica.wait_for` is done, also where it is a duplicate. `opens_next`: the transaction of the marker's
        epoch is open in this partition, for the coordinator; a duplicate opens nothing.

        Raises ProducerFencedError, TransactionCoordinatorFencedError, NotEnoughReplicasError, and what
        `AppendPipeline.append` raises.
        """
        self._appends.check()
        self._held.release(producer_id)
        now_ms = self._clock.wall_ms()
        marker = EndTransactionMarker(commit=commit, coordinator_epoch=coordinator_epoch)
        batch = encode_end_transaction(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms
        )
        appended = self._appends.write(batch, [(0, read_header(batch, 0))], now_ms, Acks.ALL)
        if appended.duplicate:
            self._verifications.on_repeated_marker(producer_id, producer_epoch)
        else:
            self._verifications.on_marker(producer_id, producer_epoch, opens_next=opens_next)
        return appended

    async def append_with_next(
        self, producer_id: ProducerId, producer_epoch: ProducerEpoch, coordinator_epoch: int, *, commit: bool
    ) -> Appended:
        """As `append` with `opens_next`, together with the first batch of that transaction if it arrives soon."""
        self._appends.check()
        append = partial(self.append, producer_id, producer_epoch, coordinator_epoch, commit=commit, opens_next=True)
        if not self.has_older_open(producer_id, producer_epoch) or self._verifications.is_awaited(producer_id):
            return append()
        return await self._held.hold(producer_id, append)

    def has_older_open(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """Whether a transaction of a lower epoch is open in this partition."""
        return self._verifications.has_older_open(producer_id, producer_epoch)

    def revoke_grant(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
        """Withdraw what a marker has granted: from now on the coordinator is called. Whether the grant has been used,
        or is about to be.
        """
        self._appends.check()
        self._held.release(producer_id)
        is_used = self._verifications.revoke(producer_id, producer_epoch)
        return is_used or self._log.producers.has_open(producer_id, producer_epoch)
