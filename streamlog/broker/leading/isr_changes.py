"""Proposals of other ISRs on their way to the active controller (AlterPartition, SEMANTICS 3, KIP-497, KIP-903).

    proposed --one call for all that wait--> accepted         the leader is told the partition's new state
                    ^                    |--> refused         the leader is told, and asked again a while later
                    |                    |--> anything else   what became of it is not known here
                    +------after a pause------------+

While a proposal is pending its leader counts with the larger set. So "refused" must be certain: a set that was refused
here and accepted there would let the high watermark pass a member of the ISR. Certain is IneligibleReplicaError alone,
and that only when no earlier attempt can still be under way (LINGER_S). INVALID_UPDATE_VERSION is none: it may be an
earlier attempt that has raised the epoch. The metadata bring the truth then, and end the proposal; until they do it is
asked again, because a controller may also have looked ahead to what never came.

A proposal names the broker epoch of each member. For one that joins it is the registration under which its position
was told: a follower that has registered anew since may have lost its log, so its former position is forgotten, and if
the controller knows of it first, it refuses. For one that stays it is the metadata's: had it restarted, it would have
left the ISR, and the partition epoch risen.

Who has caught up is proposed when its position comes (`LeaderReplica.on_position`), who lags when the partition table
looks for it. Here all leaders are looked at when the metadata say of a node that it may be in sync again, because a
follower that is at the end already has no more to tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import IneligibleReplicaError, StreamlogError
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey
from streamlog.metadata.partitions.isr import PARTITIONS_PER_REQUEST_MAX, IsrMember, IsrProposal, IsrResult
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from streamlog.ports import Clock, Probe, Random
from streamlog.replication.isr import ProposedIsr

RETRY_S: Final = (0.05, 1.0)
"""The first pause and the longest."""
REFUSED_S: Final = 0.5
"""How long a refused set is not proposed again."""
LINGER_S: Final = 5.0
"""How long a request whose answer did not come may still be carried out: keep-alive ends its connection before."""
NO_REGISTRATION: Final = BrokerEpoch(0)
NEVER_SEEN: Final = BrokerEpoch(-1)
LOOK_AT_ONCE: Final = 256
"""Leaders looked at before others get their turn on the event loop."""


class AlterPartitionLink(Protocol):
    """The way to the active controller."""

    async def alter_partition(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        """One result for each, in their order. StreamlogError: what became of them is not known."""
        ...


class _Asked(Struct):
    """A proposal until it is settled."""

    replica: LeaderReplica
    proposal: ProposedIsr
    due_s: float  # not before; monotonic
    pause_s: float = RETRY_S[0]  # before the next attempt
    unknown_until_s: float = 0.0  # until then an earlier attempt may be carried out

    @property
    def key(self) -> PartitionKey:
        return (self.replica.topic_id, self.replica.partition.partition)

    @property
    def wanted(self) -> bool:
        """Neither overtaken by the metadata nor by the leadership's end."""
        return self.replica.ended is None and self.replica.state.isr.pending is self.proposal


class _Seen(Struct, frozen=True):
    """Under which registrations the followers of one leadership have told their positions."""

    leader_epoch: LeaderEpoch
    epochs: dict[BrokerId, BrokerEpoch]


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
        self._asked: dict[PartitionKey, _Asked] = {}
        self._refused_s: dict[PartitionKey, float] = {}  # until when nothing is proposed, because that was refused
        self._seen: dict[PartitionKey, _Seen] = {}
        self._wake = asyncio.Event()
        self._look = asyncio.Event()

    # -- what leaders and their streams tell

    def proposed(self, replica: LeaderReplica, proposal: ProposedIsr) -> None:
        """Carry it to the controller. Synchronous; a former one of the same partition is over."""
        asked = _Asked(replica, proposal, self._clock.monotonic())
        outdated = [b for b in self._joining(asked) if self._seen_of(asked, b) != self._registered(b)]
        for broker in outdated:
            replica.state.forget_position(broker)
        if outdated or asked.due_s < self._refused_s.get(asked.key, 0.0):
            replica.on_refused(proposal)  # it has not been asked, so it cannot happen
            if outdated:
                asyncio.get_running_loop().call_soon(self._review, replica)
            return
        self._asked[asked.key] = asked
        self._wake.set()

    def follows(self, replica: LeaderReplica, follower: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """From now on the follower's positions in this leadership are those of this registration."""
        key = (replica.topic_id, replica.partition.partition)
        seen = self._seen.get(key)
        if seen is None or seen.leader_epoch != replica.leader_epoch:
            seen = self._seen[key] = _Seen(replica.leader_epoch, {})
        seen.epochs[follower] = broker_epoch

    # -- life

    async def run(self, leaders: Callable[[], Iterable[LeaderReplica]]) -> None:
        """For ever. `leaders`: of this node, as they are when it is called."""
        stop = self._view.listen(self._on_metadata)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_asking())
                tasks.create_task(self._keep_looking(leaders))
        finally:
            stop()

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        if delta is None or any(broker is not None and broker.active for _, broker in delta.changed_brokers()):
            self._refused_s.clear()
            now_s = self._clock.monotonic()
            for asked in self._asked.values():
                asked.due_s = min(asked.due_s, now_s)
            self._look.set()
            self._wake.set()

    async def _keep_looking(self, leaders: Callable[[], Iterable[LeaderReplica]]) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            led = list(leaders())
            for count, replica in enumerate(led, 1):
                if replica.ended is None:
                    replica.review_isr()
                if count % LOOK_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._forget_others(led)

    def _forget_others(self, led: list[LeaderReplica]) -> None:
        keys = {(replica.topic_id, replica.partition.partition): None for replica in led if replica.ended is None}
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
        now_s = self._clock.monotonic()
        self._refused_s = {key: until_s for key, until_s in self._refused_s.items() if until_s > now_s}

    # -- asking

    async def _keep_asking(self) -> None:
        while True:
            self._wake.clear()
            batch = self._due()
            if batch:
                await self._ask(batch)
                continue
            next_s = min((asked.due_s for asked in self._asked.values()), default=None)
            delay_s = None if next_s is None else max(0.0, next_s - self._clock.monotonic())
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _due(self) -> list[_Asked]:
        """What may be asked now; what nobody wants any more is dropped."""
        self._asked = {key: asked for key, asked in self._asked.items() if asked.wanted}
        now_s = self._clock.monotonic()
        due = [asked for asked in self._asked.values() if asked.due_s <= now_s]
        return due[:PARTITIONS_PER_REQUEST_MAX]

    async def _ask(self, batch: list[_Asked]) -> None:
        messages = [self._message(asked) for asked in batch]
        try:
            results = await self._link.alter_partition(messages)
        except StreamlogError:
            now_s = self._clock.monotonic()
            for asked in batch:
                asked.unknown_until_s = now_s + LINGER_S
                self._ask_again(asked)
            return
        for asked, result in zip(batch, results, strict=True):
            if asked.wanted:
                self._settle(asked, result)

    def _message(self, asked: _Asked) -> IsrProposal:
        topic_id, partition_id = asked.key
        return IsrProposal(
            topic_id=topic_id,
            partition_id=partition_id,
            leader_epoch=asked.proposal.leader_epoch,
            partition_epoch=PartitionEpoch(asked.proposal.partition_epoch),
            isr=tuple(IsrMember(broker_id=b, broker_epoch=self._epoch_of(asked, b)) for b in asked.proposal.isr),
        )

    def _joining(self, asked: _Asked) -> list[BrokerId]:
        committed = asked.replica.state.isr.committed
        return [broker for broker in asked.proposal.isr if broker not in committed and broker != self._me]

    def _epoch_of(self, asked: _Asked, member: BrokerId) -> BrokerEpoch:
        if member in self._joining(asked):
            return max(NO_REGISTRATION, self._seen_of(asked, member))
        return self._registered(member)

    def _registered(self, broker_id: BrokerId) -> BrokerEpoch:
        """0, which is nobody's and refused, where it is not registered."""
        broker = self._view.image.brokers.get(broker_id)
        return NO_REGISTRATION if broker is None else broker.epoch

    def _seen_of(self, asked: _Asked, member: BrokerId) -> BrokerEpoch:
        """The registration that the member's position is of; -1: none in this leadership."""
        seen = self._seen.get(asked.key)
        if seen is None or seen.leader_epoch != asked.proposal.leader_epoch:
            return NEVER_SEEN
        return seen.epochs.get(member, NEVER_SEEN)

    def _settle(self, asked: _Asked, result: IsrResult) -> None:
        partition = result.partition
        if result.error is None and partition is not None and partition.leader_epoch == asked.proposal.leader_epoch:
            self._forget(asked)
            if partition.partition_epoch == asked.proposal.partition_epoch:
                asked.replica.on_refused(asked.proposal)  # it is so already: nothing has been changed
            else:
                asked.replica.on_isr(partition.isr, partition.partition_epoch)
        elif isinstance(result.error, IneligibleReplicaError) and self._clock.monotonic() >= asked.unknown_until_s:
            self._forget(asked)
            self._probe(
                "isr_change_refused",
                partition=str(asked.replica.partition),
                leader_epoch=asked.proposal.leader_epoch,
                reason=result.error.message,
            )
            self._refused_s[asked.key] = self._clock.monotonic() + REFUSED_S
            asked.replica.on_refused(asked.proposal)
            asyncio.get_running_loop().call_later(REFUSED_S, self._review, asked.replica)
        else:
            self._ask_again(asked)

    def _forget(self, asked: _Asked) -> None:
        if self._asked.get(asked.key) is asked:
            del self._asked[asked.key]

    def _review(self, replica: LeaderReplica) -> None:
        if replica.ended is None:
            replica.review_isr()

    def _ask_again(self, asked: _Asked) -> None:
        asked.due_s = self._clock.monotonic() + asked.pause_s * self._random.uniform(0.5, 1.0)
        asked.pause_s = min(2 * asked.pause_s, RETRY_S[1])
