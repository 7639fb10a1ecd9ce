"""Before the first batch of a transaction is appended: its coordinator is asked (KIP-890).

The question makes the partition part of the transaction, in the coordinator's log, before any record of it is in the
partition's. So whoever ends the transaction knows all partitions that need a marker; and a batch of a transaction that
is over is refused. The partitions of one request that need it are asked about together.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from streamlog.api.convert import transactions as convert
from streamlog.api.pb import coordination_pb2 as pb
from streamlog.api.requests import ProduceRequest
from streamlog.broker.append.verification import transactional_header
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.errors import InvalidTransactionStateError, StreamlogError
from streamlog.model import Acks, Appended, BrokerId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.common.admission import QueuedBytes
from streamlog.services.common.forwarding import Peers
from streamlog.transactions.lifecycle import AddPartitions

_ADD: Final = "/streamlog.internal.v1.Coordination/AddPartitions"
WAIT_S: Final = 5.0
"""For the marker of the transaction before, at most."""
_ANSWER_S: Final = 6.0
"""For the coordinator's record to be replicated, and its answer to arrive."""


class Verifier:
    def __init__(self, node_id: BrokerId, coordinator: TransactionCoordinator, peers: Peers) -> None:
        self._me = node_id
        self._coordinator = coordinator
        self._peers = peers

    async def add(self, command: AddPartitions) -> None:
        """What `TransactionCoordinator.add_partitions` raises; BrokerNotAvailableError."""
        coordinator = self._coordinator.coordinator_of(command.transactional_id)
        if coordinator == self._me:
            await self._coordinator.add_partitions(command)
            return
        await self._peers.call(coordinator, _ADD, convert.adding(command), pb.AddPartitionsResponse, _ANSWER_S)


_Producer = tuple[ProducerId, ProducerEpoch]


class Opening:
    """Of one request: what it begins is asked about when the first of its batches needs it; once, but for a partition
    that could not be written to yet when the others were asked about.
    """

    def __init__(self, verifier: Verifier, leaders: PartitionLeaders, request: ProduceRequest, wait_s: float) -> None:
        self._verifier = verifier
        self._leaders = leaders
        self._request = request
        self._wait_s = max(0.0, min(wait_s, WAIT_S))
        self._answers: dict[tuple[_Producer, TopicPartition], StreamlogError | None] = {}  # None: it may be written to

    async def append(self, replica: LeaderReplica, batches: bytes, acks: Acks, queued: QueuedBytes) -> Appended:
        """Of batches of which `LeaderReplica.needs_verification` says so. What its `append_verified` raises, what the
        coordinator says, ThrottledError.
        """
        header = transactional_header(batches)
        if header is None:
            raise InvalidTransactionStateError("a batch that is not transactional opens no transaction")
        verify = partial(self._verify, (header.producer_id, header.producer_epoch), replica.partition)
        with queued.holding(len(batches)):
            return await replica.append_verified(batches, acks=acks, verify=verify, wait_s=self._wait_s)

    async def _verify(self, producer: _Producer, partition: TopicPartition) -> None:
        """An answer for several partitions may come before the guards of the later ones are got. Should the transaction
        end in between, their markers are in their logs, and refuse its epoch.
        """
        if (producer, partition) not in self._answers:
            asked = [partition, *self._partitions_of(producer)]
            error = await self._ask(producer, frozenset(asked))
            self._answers |= {(producer, one): error for one in asked}
        error = self._answers[producer, partition]
        if error is not None:
            raise error

    async def _ask(self, producer: _Producer, partitions: frozenset[TopicPartition]) -> StreamlogError | None:
        producer_id, producer_epoch = producer
        command = AddPartitions(
            transactional_id=self._request.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions,
        )
        try:
            await self._verifier.add(command)
        except StreamlogError as error:
            return error
        return None

    def _partitions_of(self, producer: _Producer) -> list[TopicPartition]:
        """Those of the request that this producer's transaction is not in yet, as far as this node leads them."""
        found = []
        for asked in self._request.appends:
            header = transactional_header(asked.batches)
            if header is None or (header.producer_id, header.producer_epoch) != producer:
                continue
            try:
                replica = self._leaders.writable(asked.ref)
            except StreamlogError:
                continue  # it is told when its turn comes
            if replica.needs_verification(asked.batches):
                found.append(replica.partition)
        return found


class Openings:
    """What Produce and ProduceStream need of it."""

    def __init__(self, verifier: Verifier, leaders: PartitionLeaders) -> None:
        self._verifier = verifier
        self._leaders = leaders

    def of(self, request: ProduceRequest, wait_s: float) -> Opening | None:
        """None: the request is of no transaction."""
        if not request.transactional_id:
            return None
        return Opening(self._verifier, self._leaders, request, wait_s)
