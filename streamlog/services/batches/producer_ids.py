"""InitProducerId: ids of idempotent producers, from any node; of transactional producers, from their coordinator."""

from __future__ import annotations

from typing import Final

from streamlog.api.convert.records.produce import init_producer_id_request
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.requests import InitProducerIdRequest
from streamlog.api.service import Call
from streamlog.coordinator.transaction_shard import ProducerIdSequence
from streamlog.coordinator.transactions import TRANSACTIONS_TOPIC, TransactionCoordinator
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_PRODUCER_ID, PRODUCER_EPOCH_MAX, BrokerId, ProducerEpoch
from streamlog.services.batches.partition_leader import within
from streamlog.services.common.collaborators import InternalTopics
from streamlog.services.common.forwarding import Peers, is_forwarded, timeout_of
from streamlog.services.records.producer_token import ProducerToken
from streamlog.transactions.lifecycle import InitProducer, TransactionalProducer
from streamlog.transactions.records import TWO_PHASE

WAIT_MS: Final = 10_000
"""For the end of an open transaction, which is aborted first."""


class InitProducerId:
    def __init__(
        self,
        node_id: BrokerId,
        producer_ids: ProducerIdSequence,
        coordinator: TransactionCoordinator,
        view: MetadataView,
        internal_topics: InternalTopics,
        peers: Peers,
    ) -> None:
        self._me = node_id
        self._producer_ids = producer_ids
        self._coordinator = coordinator
        self._view = view
        self._internal_topics = internal_topics
        self._peers = peers

    async def init_producer_id(self, request: pb.InitProducerIdRequest, call: Call) -> pb.InitProducerIdResponse:
        wanted = init_producer_id_request(request)
        if wanted.transactional_id:
            return await self._init_transactional(wanted, request, call)
        producer_id, epoch = wanted.producer_id, wanted.producer_epoch
        if producer_id == NO_PRODUCER_ID or epoch == PRODUCER_EPOCH_MAX:
            producer_id, epoch = await self._producer_ids.next(), ProducerEpoch(0)
        else:
            epoch = ProducerEpoch(epoch + 1)  # sequences restart at 0 in it, on every partition
        return _response(TransactionalProducer(producer_id=producer_id, producer_epoch=epoch))

    async def _init_transactional(
        self, wanted: InitProducerIdRequest, request: pb.InitProducerIdRequest, call: Call
    ) -> pb.InitProducerIdResponse:
        """The first call creates `__transaction_state`."""
        if self._view.image.topic_named(TRANSACTIONS_TOPIC) is None:
            await self._internal_topics.create_internal_topic(TRANSACTIONS_TOPIC)
        coordinator = self._coordinator.coordinator_of(wanted.transactional_id)
        if coordinator != self._me and not is_forwarded(call):
            method = "/streamlog.v1.Batches/InitProducerId"
            return await self._peers.call(coordinator, method, request, pb.InitProducerIdResponse, timeout_of(call))
        command = InitProducer(
            transactional_id=wanted.transactional_id,
            timeout_ms=TWO_PHASE if wanted.two_phase else wanted.transaction_timeout_ms,
            fresh_producer_id=NO_PRODUCER_ID,
            producer_id=wanted.producer_id,
            producer_epoch=wanted.producer_epoch,
            keep_prepared=wanted.keep_prepared,
        )
        return _response(await self._coordinator.init(command, within(WAIT_MS, call)))


def _response(producer: TransactionalProducer) -> pb.InitProducerIdResponse:
    token = ProducerToken(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
    response = pb.InitProducerIdResponse(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, producer_token=token.encode()
    )
    if producer.open_producer_id != NO_PRODUCER_ID:
        response.ongoing_producer_id = producer.open_producer_id
        response.ongoing_producer_epoch = producer.open_producer_epoch
    return response
