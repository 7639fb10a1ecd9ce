"""Proposed ISRs on their way to the active controller (AlterPartition, SEMANTICS 3, KIP-497, KIP-903).

    proposed --one call for all that are due--> accepted        the leader gets the partition's new state
                    ^                       |--> refused        the leader is notified, and reviewed a while later
                    |                       |--> other errors   the outcome is unknown
                    +---------after a pause---------+

While a proposal is pending its leader counts the larger set. So "refused" must be certain: a set that the leader takes
for refused while the controller has accepted it would let the high watermark pass a member of the ISR. Only
IneligibleReplicaError is certain, and only when no earlier attempt can still be carried out (LINGER_S). After
INVALID_UPDATE_VERSION it is unknown: an earlier attempt may have raised the epoch. Then the metadata settle the
proposal; until they do it is sent again, because the controller may also have refused by state that it never committed.

A proposal names the broker epoch of each member. For a member that joins it is the registration under which its
position was reported: a follower that has re-registered since may have lost its log, so its old position is dropped,
and if the controller knows of the registration first, it refuses. Each attempt names that one, even when the follower
has a newer one by then. For a member that stays it is the metadata's: if it had restarted, it would have left the ISR,
with a higher partition epoch.

A follower that has caught up is proposed when its position arrives (`LeaderReplica.on_position`), one that lags when
the partition table reviews the leaders. Here all leaders are reviewed when the metadata show that a node may be in sync
again, because a follower that is at the log end already reports nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import IneligibleReplicaError, StreamlogError
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import PARTITIONS_PER_REQUEST_MAX, IsrMember, IsrProposal, IsrResult
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, PartitionEpoch
from streamlog.ports import Clock, Probe, Random
from streamlog.replication.isr import ProposedIsr

RETRY_S: Final = (0.05, 1.0)
"""First and longest pause."""
REFUSED_S: Final = 0.5
"""For so long a refused set is not proposed again."""
LINGER_S: Final = 5.0
"""For so long a request without a response may still be carried out: keep-alive closes its connection earlier."""
NO_REGISTRATION: Final = BrokerEpoch(0)
NEVER_SEEN: Final = BrokerEpoch(-1)
"""Of a follower that has reported no position in this leadership."""
REVIEWED_AT_ONCE: Final = 256
"""Leaders reviewed before other tasks get their turn on the event loop."""


class AlterPartitionLink(Protocol):
    """The connection to the active controller."""

    async def alter_partition(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        """One result for each, in order. StreamlogError: the outcome is unknown."""
        ...


class _Pending(Struct):
    """A proposal until it is settled."""

    replica: LeaderReplica
    proposal: ProposedIsr
    joining: dict[BrokerId, BrokerEpoch]  # those who would join, under the registrations of their positions
    due_s: float  # not sent before; monotonic
    pause_s: float = RETRY_S[0]  # before the next attempt
    unknown_until_s: float = 0.0  # until then an earlier attempt may still be carried out

    @property
    def key(self) -> PartitionKey:
        return (self.replica.topic_id, self.replica.partition.partition)

    @property
    def is_current(self) -> bool:
        """Not settled by the metadata, or by the leadership's end."""
        return self.replica.ended is None and self.replica.state.isr.pending is self.proposal


class IsrChanges:
    """Owned by the node; `run` is a task of it."""

    def __init__(
        self,
        link: AlterPartitionLink,
        view: MetadataView,
        me: BrokerId,
        *,
        clock: Clock,
        random: Random,
        probe: Probe,
    ) -> None:
        self._link = link
        self._view = view
        self._me = me
        self._clock = clock
        self._random = random
        self._probe = probe
        self._pending: dict[PartitionKey, _Pending] = {}
        self._refused_s: dict[PartitionKey, float] = {}  # until when nothing is proposed, after a refusal
        self._wake = asyncio.Event()
        self._review_all = asyncio.Event()

    # -- from leaders and their streams

    def proposed(self, replica: LeaderReplica, proposal: ProposedIsr) -> None:
        """Send it to the controller. Synchronous; replaces an earlier one of the same partition."""
        seen, committed = replica.follower_epochs, replica.state.isr.committed
        joining = {b: seen.get(b, NEVER_SEEN) for b in proposal.isr if b not in committed and b != self._me}
        pending = _Pending(replica, proposal, joining, self._clock.monotonic())
        outdated = [broker for broker, epoch in joining.items() if epoch != self._registered(broker)]
        for broker in outdated:
            replica.state.forget_position(broker)
        if outdated or pending.due_s < self._refused_s.get(pending.key, 0.0):
            replica.on_refused(proposal)  # it was never sent, so it cannot be carried out
            if outdated:
                asyncio.get_running_loop().call_soon(self._review, replica)
            return
        self._pending[pending.key] = pending
        self._wake.set()

    def follows(self, replica: LeaderReplica, follower: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """From now on the follower's positions in this leadership belong to this registration."""
        replica.follower_epochs[follower] = broker_epoch

    # -- lifecycle

    async def run(self, leaders: Callable[[], Iterable[LeaderReplica]]) -> None:
        """Runs until cancelled. `leaders`: the current leaders of this node."""
        stop = self._view.listen(self._on_metadata)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_sending())
                tasks.create_task(self._keep_reviewing(leaders))
        finally:
            stop()

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        if delta is None or any(broker is not None and broker.active for _, broker in delta.changed_brokers()):
            self._refused_s.clear()
            now_s = self._clock.monotonic()
            for pending in self._pending.values():
                pending.due_s = min(pending.due_s, now_s)
            self._review_all.set()
            self._wake.set()

    async def _keep_reviewing(self, leaders: Callable[[], Iterable[LeaderReplica]]) -> None:
        while True:
            await self._review_all.wait()
            self._review_all.clear()
            for count, replica in enumerate(list(leaders()), 1):
                if replica.ended is None:
                    replica.review_isr()
                if count % REVIEWED_AT_ONCE == 0:
                    await asyncio.sleep(0)

    # -- sending

    async def _keep_sending(self) -> None:
        while True:
            self._wake.clear()
            batch = self._due()
            if batch:
                await self._send(batch)
                continue
            next_s = min((pending.due_s for pending in self._pending.values()), default=None)
            delay_s = None if next_s is None else max(0.0, next_s - self._clock.monotonic())
            try:
                async with timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _due(self) -> list[_Pending]:
        """The proposals that are due; those that are settled otherwise are dropped, and refusals that are over."""
        self._pending = {key: pending for key, pending in self._pending.items() if pending.is_current}
        now_s = self._clock.monotonic()
        self._refused_s = {key: until_s for key, until_s in self._refused_s.items() if until_s > now_s}
        due = [pending for pending in self._pending.values() if pending.due_s <= now_s]
        return due[:PARTITIONS_PER_REQUEST_MAX]

    async def _send(self, batch: list[_Pending]) -> None:
        messages = [self._message(pending) for pending in batch]
        try:
            results = await self._link.alter_partition(messages)
        except StreamlogError:
            now_s = self._clock.monotonic()
            for pending in batch:
                pending.unknown_until_s = now_s + LINGER_S
                self._retry_later(pending)
            return
        for pending, result in zip(batch, results, strict=True):
            if pending.is_current:
                self._settle(pending, result)

    def _message(self, pending: _Pending) -> IsrProposal:
        topic_id, partition_id = pending.key
        return IsrProposal(
            topic_id=topic_id,
            partition_id=partition_id,
            leader_epoch=pending.proposal.leader_epoch,
            partition_epoch=PartitionEpoch(pending.proposal.partition_epoch),
            isr=tuple(
                IsrMember(broker_id=b, broker_epoch=pending.joining.get(b, self._registered(b)))
                for b in pending.proposal.isr
            ),
        )

    def _registered(self, broker_id: BrokerId) -> BrokerEpoch:
        """0, which no broker has and the controller refuses, where it is not registered."""
        broker = self._view.image.brokers.get(broker_id)
        return NO_REGISTRATION if broker is None else broker.epoch

    def _settle(self, pending: _Pending, result: IsrResult) -> None:
        partition = result.partition
        if result.error is None and partition is not None and partition.leader_epoch == pending.proposal.leader_epoch:
            self._forget(pending)
            if partition.partition_epoch == pending.proposal.partition_epoch:
                pending.replica.on_refused(pending.proposal)  # the ISR was so already: nothing has changed
            else:
                others = bool(partition.elr)
                pending.replica.on_isr(partition.isr, partition.partition_epoch, others_eligible=others)
        elif isinstance(result.error, IneligibleReplicaError) and self._clock.monotonic() >= pending.unknown_until_s:
            self._forget(pending)
            self._probe(
                "isr_change_refused",
                partition=str(pending.replica.partition),
                leader_epoch=pending.proposal.leader_epoch,
                reason=result.error.message,
            )
            self._refused_s[pending.key] = self._clock.monotonic() + REFUSED_S
            pending.replica.on_refused(pending.proposal)
            asyncio.get_running_loop().call_later(REFUSED_S, self._review, pending.replica)
        else:
            self._retry_later(pending)

    def _forget(self, pending: _Pending) -> None:
        if self._pending.get(pending.key) is pending:
            del self._pending[pending.key]

    def _review(self, replica: LeaderReplica) -> None:
        if replica.ended is None:
            replica.review_isr()

    def _retry_later(self, pending: _Pending) -> None:
        pending.due_s = self._clock.monotonic() + pending.pause_s * self._random.uniform(0.5, 1.0)
        pending.pause_s = min(2 * pending.pause_s, RETRY_S[1])
