"""The Transactions service: any node serves it, forwarding to the coordinator.

Transactions are ended by the transaction coordinator. Offsets are committed by the group coordinator, which first adds
the group's partition of `__consumer_offsets` to the transaction, as the leader of any other partition does.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from streamlog.api.convert import transactions as convert
from streamlog.api.convert.view import localize, node
from streamlog.api.pb import transactions_pb2 as pb
from streamlog.api.service import Call, Method, unary
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, TopicPartition
from streamlog.services.batches.partition_leader import within
from streamlog.services.batches.transaction_verification import Verifier
from streamlog.services.common.collaborators import ControllerAccess, InternalTopics
from streamlog.services.common.forwarding import Peers, is_forwarded, timeout_of
from streamlog.services.common.latest_metadata import apply_if_unknown

WAIT_MS: Final = 10_000
"""For the end of the previous transaction, at most."""
_METHOD: Final = "/streamlog.v1.Transactions/"


class TransactionsService:
    def __init__(
        self,
        node_id: BrokerId,
        coordinator: TransactionCoordinator,
        groups: GroupCoordinator,
        verifier: Verifier,
        view: MetadataView,
        link: ControllerAccess,
        internal_topics: InternalTopics,
        peers: Peers,
    ) -> None:
        self._me = node_id
        self._coordinator = coordinator
        self._groups = groups
        self._verifier = verifier
        self._view = view
        self._link = link
        self._internal_topics = internal_topics
        self._peers = peers

    async def end_transaction(self, request: pb.EndTransactionRequest, call: Call) -> pb.EndTransactionResponse:
        command = convert.end_request(request)
        coordinator = self._coordinator.coordinator_of(command.transactional_id)
        if coordinator == self._me or is_forwarded(call):
            answer = await self._coordinator.end(command, within(WAIT_MS, call))
            me = self._view.image.brokers.get(self._me)
            return convert.ended(answer, None if me is None else node(me, call.info.listener))
        method = _METHOD + "EndTransaction"
        response = await self._peers.call(coordinator, method, request, pb.EndTransactionResponse, timeout_of(call))
        if response.HasField("coordinator"):
            localize(response.coordinator, self._view.image, call.info.listener)
        return response

    async def commit_offsets(
        self, request: pb.CommitTransactionOffsetsRequest, call: Call
    ) -> pb.CommitTransactionOffsetsResponse:
        transaction, command = convert.offsets_request(request)
        if self._view.image.topic_named(OFFSETS_TOPIC) is None:
            await self._internal_topics.create_internal_topic(OFFSETS_TOPIC)
        coordinator = self._groups.coordinator_of(command.group)
        if coordinator != self._me and not is_forwarded(call):
            method = _METHOD + "CommitTransactionOffsets"
            return await self._peers.call(
                coordinator, method, request, pb.CommitTransactionOffsetsResponse, timeout_of(call)
            )

        await apply_if_unknown((one.partition for one in command.offsets), self._view, self._link, call)

        async def verify(partition: TopicPartition) -> None:
            await self._verifier.add(replace(transaction, partitions=frozenset({partition})))

        errors = await self._groups.commit_in_transaction(
            command, transaction.producer_id, transaction.producer_epoch, verify, within(WAIT_MS, call)
        )
        return convert.offsets_committed(command, errors)

    def methods(self) -> list[Method]:
        return [
            unary("EndTransaction", pb.EndTransactionRequest, pb.EndTransactionResponse, self.end_transaction),
            unary(
                "CommitTransactionOffsets",
                pb.CommitTransactionOffsetsRequest,
                pb.CommitTransactionOffsetsResponse,
                self.commit_offsets,
            ),
        ]
