"""The coordinator's confirmation before the first batch of a transaction is appended (KIP-890).

The call adds the partition to the transaction, in the coordinator's log, before the partition's log has any record of
it. So the coordinator knows all partitions that need a marker, and a batch of a transaction that has ended is refused.
The partitions of one request that need it are added by one call.
"""

from __future__ import annotations

from typing import Final

from streamlog.api.convert import transactions as convert
from streamlog.api.pb import coordination_pb2 as pb
from streamlog.api.requests import ProduceRequest
from streamlog.broker.append.verification import transactional_header
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.services.batches.partition_leader import PartitionLeaders
from streamlog.services.common.forwarding import Peers
from streamlog.transactions.lifecycle import AddPartitions

_ADD: Final = "/streamlog.internal.v1.Coordination/AddPartitions"
WAIT_S: Final = 5.0
"""For the marker of the previous transaction, at most."""
_ANSWER_S: Final = 6.0
"""For the coordinator's record to be replicated, and its response to arrive."""


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
    """The transaction of one request (`append.pipeline.TransactionOpening`). The coordinator is called when the first
    of its batches needs it: once, unless a partition was not writable yet at that time.
    """

    def __init__(self, verifier: Verifier, leaders: PartitionLeaders, request: ProduceRequest, wait_s: float) -> None:
        self._verifier = verifier
        self._leaders = leaders
        self._request = request
        self.wait_s = max(0.0, min(wait_s, WAIT_S))
        self._answers: dict[tuple[_Producer, TopicPartition], StreamlogError | None] = {}  # None: confirmed

    async def confirm(self, producer_id: ProducerId, producer_epoch: ProducerEpoch, partition: TopicPartition) -> None:
        """The coordinator's answer for `partition`. An answer for several partitions may arrive before the guards of
        the later ones are taken: should the transaction end in between, their markers are in the logs and fence its
        epoch.
        """
        producer = (producer_id, producer_epoch)
        if (producer, partition) not in self._answers:
            added = [partition, *self._partitions_of(producer)]
            error = await self._add(producer, frozenset(added))
            self._answers |= {(producer, one): error for one in added}
        error = self._answers[producer, partition]
        if error is not None:
            raise error

    async def _add(self, producer: _Producer, partitions: frozenset[TopicPartition]) -> StreamlogError | None:
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
        """Those that the caller may write, this node leads, and are not in this producer's transaction yet."""
        found = []
        for one in self._request.appends:
            header = transactional_header(one.batches)
            if header is None or (header.producer_id, header.producer_epoch) != producer:
                continue
            try:
                replica = self._leaders.writable(one.ref)
            except StreamlogError:
                continue  # its own append returns this error
            if replica.appends.verifications.is_needed(header):
                found.append(replica.partition)
        return found


class Openings:
    """One a service."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def of(self, request: ProduceRequest, leaders: PartitionLeaders, wait_s: float) -> Opening | None:
        """None: the request is not transactional. `leaders`: of what the caller may write: every partition that is
        added gets a marker.
        """
        if not request.transactional_id:
            return None
        return Opening(self._verifier, leaders, request, wait_s)
