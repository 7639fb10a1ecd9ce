"""Transactions for operators: coordinators serve their ids, leaders the open transactions of their partitions.

The node that serves the client sends the same call to the others, and they respond for themselves. A transaction is
hanging if it is open in a partition, and no coordinator has it open there, so its marker will never be written. That is
only certain if the ids of all partitions of `__transaction_state` are known: each node says which it has loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from streamlog.api.convert.admin import transaction_admin as convert
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.broker.table.open_transactions import open_transactions
from streamlog.config.settings.group_settings import TRANSACTION_MAX_TIMEOUT_MS
from streamlog.coordinator.shards import Leaderships
from streamlog.coordinator.transactions import TRANSACTIONS_TOPIC, TransactionCoordinator
from streamlog.errors import (
    CoordinatorNotAvailableError,
    InvalidTransactionStateError,
    LeaderNotAvailableError,
    StreamlogError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.image.image import Topic
from streamlog.metadata.view import MetadataView
from streamlog.model import NO_BROKER, BrokerId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.ports import CallGuard, Clock
from streamlog.records import EndTransactionMarker
from streamlog.services.admin.visible_pages import Round, following_token, round_size, visible_rows
from streamlog.services.batches.partition_leader import within
from streamlog.services.common.collaborators import Partitions
from streamlog.services.common.forwarding import Peers, is_forwarded, only, timeout_of
from streamlog.services.common.gather import call_each
from streamlog.services.common.paging import page_size
from streamlog.services.transactions.markers import LocalMarkers
from streamlog.transactions.lifecycle import known
from streamlog.transactions.markers import PartitionMarker
from streamlog.transactions.records import PREPARED, TransactionStatus

_METHOD: Final = "/streamlog.v1.Admin/"
_AT_ONCE: Final = 64
IDS_PER_PAGE: Final = 1_000
WAIT_MS: Final = 10_000
MARGIN_MS: Final = 60_000
"""Beyond the longest timeout, before a transaction counts as hanging."""


class OpenPartitions(Partitions, Leaderships, Protocol):
    """streamlog.broker.Replicas."""


class TransactionQueries:
    def __init__(
        self,
        node_id: BrokerId,
        coordinator: TransactionCoordinator,
        partitions: OpenPartitions,
        markers: LocalMarkers,
        view: MetadataView,
        configs: NodeConfigs,
        clock: Clock,
        peers: Peers,
    ) -> None:
        self._me = node_id
        self._coordinator = coordinator
        self._partitions = partitions
        self._markers = markers
        self._view = view
        self._configs = configs
        self._clock = clock
        self._peers = peers

    # -- lists

    async def list_transactions(self, request: pb.ListTransactionsRequest, call: Call) -> pb.ListTransactionsResponse:
        """The page token is the last id of the previous page, which its caller has seen (`visible_pages`)."""
        convert.states(request)  # whether they are valid
        size = page_size(request.page_size, default=IDS_PER_PAGE)
        guard, errors, coordinated = call.info.guard, dict[int, pb.NodeError](), set[int]()
        visible = None if guard is None else partial(_may_list, guard)

        async def list_behind(start: str) -> Round[pb.TransactionListing]:
            sent = pb.ListTransactionsRequest(
                states=request.states,
                producer_ids=request.producer_ids,
                page_token=start,
                page_size=round_size(size, guard),
            )
            own = await self._own_list(sent, sent.page_size, visible)
            others = await self._lists_of_others(sent, call)
            answers = [own, *others]
            errors.update({error.node_id: error for answer in answers for error in answer.errors})
            coordinated.update(index for answer in answers for index in answer.coordinated_partitions)
            theirs = (row for answer in others for row in answer.transactions)
            listings = [*own.transactions, *(row for row in theirs if visible is None or visible(row))]
            # Beyond the end of a node's page, its ids are unknown.
            known_end = min((answer.next_page_token for answer in answers if answer.next_page_token), default=None)
            rows = [
                row
                for row in sorted(listings, key=lambda row: row.transactional_id)
                if row.transactional_id > start and (known_end is None or row.transactional_id <= known_end)
            ]
            return Round(rows=rows, known_end=known_end)

        found = await visible_rows(list_behind, request.page_token, size, is_guarded=guard is not None)
        response = pb.ListTransactionsResponse(
            transactions=found.rows[:size], errors=errors.values(), coordinated_partitions=sorted(coordinated)
        )
        response.next_page_token = following_token(
            found, len(response.transactions), lambda row: row.transactional_id, is_guarded=guard is not None
        )
        return response

    async def _lists_of_others(
        self, request: pb.ListTransactionsRequest, call: Call
    ) -> list[pb.ListTransactionsResponse]:
        """Whatever the client may see. None if the call is not a client's."""
        if is_forwarded(call):
            return []

        async def ask(other: BrokerId) -> pb.ListTransactionsResponse:
            try:
                return await self._peers.call(
                    other, _METHOD + "ListTransactions", request, pb.ListTransactionsResponse, timeout_of(call)
                )
            except StreamlogError as error:
                return pb.ListTransactionsResponse(errors=[pb.NodeError(node_id=other, error=to_message(error))])

        return await call_each(self._others(), ask, at_once=_AT_ONCE)

    async def _own_list(
        self,
        request: pb.ListTransactionsRequest,
        count: int | None = None,
        visible: Callable[[pb.TransactionListing], bool] | None = None,
    ) -> pb.ListTransactionsResponse:
        """More than `count` of those behind the page token, and the id up to which they are all; or all, and no id."""
        states, producer_ids = frozenset(request.states), frozenset(request.producer_ids)
        coordinated = self._coordinator.coordinated()
        rows: list[pb.TransactionListing] = []
        start, at_once = request.page_token, IDS_PER_PAGE
        if count is not None and not states and not producer_ids and visible is None:
            at_once = min(count + 1, IDS_PER_PAGE)
        while some := self._coordinator.own_transactions(start, at_once):
            rows += [
                row
                for row in (convert.listing(name, value, self._me) for name, value in some)
                if (not states or row.state in states)
                and (not producer_ids or not producer_ids.isdisjoint(convert.producer_ids(row)))
                and (visible is None or visible(row))
            ]
            start = some[-1][0]
            if count is not None and len(rows) > count:
                break
            await asyncio.sleep(0)
        return pb.ListTransactionsResponse(
            transactions=rows, next_page_token=start if some else "", coordinated_partitions=coordinated()
        )

    def _others(self) -> list[BrokerId]:
        brokers = self._view.image.brokers.values()
        return [broker.broker_id for broker in brokers if not broker.fenced and broker.broker_id != self._me]

    # -- of single ids

    async def describe_transactions(
        self, request: pb.DescribeTransactionsRequest, call: Call
    ) -> pb.DescribeTransactionsResponse:
        return pb.DescribeTransactionsResponse(transactions=await self._described(convert.ids(request), call))

    async def _described(self, names: Sequence[str], call: Call) -> list[pb.TransactionDescription]:
        async def one(name: str) -> pb.TransactionDescription:
            try:
                coordinator = self._coordinator_of(name)
                if coordinator == self._me or is_forwarded(call):
                    value = known(name, await self._coordinator.describe(name))
                    return convert.description(name, value, self._me)
                asked = pb.DescribeTransactionsRequest(transactional_ids=[name])
                method = _METHOD + "DescribeTransactions"
                response = await self._peers.call(
                    coordinator, method, asked, pb.DescribeTransactionsResponse, timeout_of(call)
                )
                return only(response.transactions, coordinator)
            except StreamlogError as error:
                return convert.not_described(name, error)

        return await call_each(names, one, at_once=_AT_ONCE)

    async def abort_transaction(self, request: pb.AbortTransactionRequest, call: Call) -> pb.AbortTransactionResponse:
        wanted = convert.abort_request(request)
        node = self._coordinator_of(wanted) if isinstance(wanted, str) else self._leader_of(wanted[0])
        if node == self._me or is_forwarded(call):
            if isinstance(wanted, str):
                await self._coordinator.abort(wanted, within(WAIT_MS, call))
            else:
                await self._end_hanging(*wanted)
            return pb.AbortTransactionResponse()
        method = _METHOD + "AbortTransaction"
        return await self._peers.call(node, method, request, pb.AbortTransactionResponse, timeout_of(call))

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        """UnknownProducerIdError: without their topic there are no ids; CoordinatorNotAvailableError."""
        if self._view.image.topic_named(TRANSACTIONS_TOPIC) is None:
            raise UnknownProducerIdError(
                f"unknown transactional id {transactional_id!r}: none has been used in this cluster yet",
                field="transactional_id",
            )
        return self._coordinator.coordinator_of(transactional_id)

    def _leader_of(self, partition: TopicPartition) -> BrokerId:
        """UnknownTopicOrPartitionError, LeaderNotAvailableError."""
        partitions = self._view.image.require_topic(partition.topic).partitions
        if partition.partition >= len(partitions):
            raise UnknownTopicOrPartitionError(
                f"partition {partition} does not exist: topic {partition.topic!r} has {len(partitions)} partitions",
                field="partition",
            )
        leader = partitions[partition.partition].leader
        if leader == NO_BROKER:
            raise LeaderNotAvailableError(f"{partition} has no leader at present: retry later")
        return leader

    async def _end_hanging(self, partition: TopicPartition, producer_id: ProducerId) -> None:
        """InvalidTransactionStateError if the producer has no transaction open there."""
        replica = self._partitions.leader(partition.topic, None, partition.partition)
        found = next((one for one in open_transactions(replica.log) if one.producer_id == producer_id), None)
        if found is None:
            raise InvalidTransactionStateError(
                f"producer {producer_id} has no transaction open in {partition}: it may have ended meanwhile"
            )
        marker = EndTransactionMarker(commit=False, coordinator_epoch=max(0, found.coordinator_epoch))
        one = PartitionMarker(
            partition=partition,
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(found.producer_epoch + 1),
            marker=marker,
        )
        (outcome,) = await self._markers.write([one])
        if outcome.error is not None:
            raise outcome.error

    # -- open transactions in partitions

    async def find_hanging(
        self, request: pb.FindHangingTransactionsRequest, call: Call
    ) -> pb.FindHangingTransactionsResponse:
        own = self._own_open(request)
        if is_forwarded(call):
            return pb.FindHangingTransactionsResponse(transactions=own)

        async def ask(other: BrokerId) -> pb.FindHangingTransactionsResponse:
            method = _METHOD + "FindHangingTransactions"
            try:
                return await self._peers.call(
                    other, method, request, pb.FindHangingTransactionsResponse, timeout_of(call)
                )
            except StreamlogError as error:
                row = pb.NodeError(node_id=other, error=to_message(error))
                return pb.FindHangingTransactionsResponse(errors=[row])

        answers = await call_each(self._others(), ask, at_once=_AT_ONCE)
        rows = [*own, *(row for answer in answers for row in answer.transactions)]
        response = pb.FindHangingTransactionsResponse(errors=[e for answer in answers for e in answer.errors])
        await self._judge(rows, response, call)
        chosen = [row for row in rows if row.hanging or request.all_open]
        response.transactions.extend(sorted(chosen, key=lambda row: (row.topic, row.partition, row.first_offset)))
        return response

    def _own_open(self, request: pb.FindHangingTransactionsRequest) -> list[pb.OpenTransaction]:
        topics = convert.topics(request)
        open_for_ms = self._configs.node[TRANSACTION_MAX_TIMEOUT_MS] + MARGIN_MS
        if request.HasField("open_for_ms"):
            open_for_ms = request.open_for_ms
        before_ms = self._clock.wall_ms() - open_for_ms + 1
        return [
            pb.OpenTransaction(
                topic=replica.partition.topic,
                partition=replica.partition.partition,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                first_offset=one.first_offset,
                since_ms=one.since_ms,
            )
            for replica in self._partitions.leaders()
            if not topics or replica.partition.topic in topics
            for one in open_transactions(replica.log, begun_before_ms=before_ms)
        ]

    async def _judge(
        self, rows: list[pb.OpenTransaction], response: pb.FindHangingTransactionsResponse, call: Call
    ) -> None:
        """Set the transactional id of each, and whether its coordinator will end it."""
        topic = self._view.image.topic_named(TRANSACTIONS_TOPIC)
        if not rows or topic is None:
            for row in rows:
                row.hanging = not response.errors
            return
        producer_ids = sorted({row.producer_id for row in rows})
        wanted = pb.ListTransactionsRequest(producer_ids=producer_ids, page_size=10_000)
        answers = [await self._own_list(wanted), *await self._lists_of_others(wanted, call)]
        response.errors.extend(error for answer in answers for error in answer.errors)
        if not response.errors:
            response.errors.extend(_uncoordinated(topic, answers))
        complete = not response.errors and not any(answer.next_page_token for answer in answers)
        listed = [row for answer in answers for row in answer.transactions]
        names = {producer_id: row.transactional_id for row in listed for producer_id in convert.producer_ids(row)}
        described = {row.transactional_id: row for row in await self._described(sorted(set(names.values())), call)}
        for row in rows:
            name = names.get(row.producer_id, "")
            found = described.get(name)
            if call.info.guard is None or call.info.guard.may_list("TRANSACTIONAL_ID", name):
                row.transactional_id = name
            row.hanging = complete and not (found is not None and (found.HasField("error") or _will_end(found, row)))


def _may_list(guard: CallGuard, row: pb.TransactionListing) -> bool:
    return guard.may_list("TRANSACTIONAL_ID", row.transactional_id)


def _uncoordinated(topic: Topic, answers: list[pb.ListTransactionsResponse]) -> list[pb.NodeError]:
    """The leaders of the partitions of `__transaction_state` whose ids no node has listed."""
    loaded = {index for answer in answers for index in answer.coordinated_partitions}
    missing: dict[BrokerId, list[str]] = {}
    for index, partition in enumerate(topic.partitions):
        if index not in loaded:
            missing.setdefault(partition.leader, []).append(str(index))
    return [
        pb.NodeError(
            node_id=leader,
            error=to_message(
                CoordinatorNotAvailableError(
                    f"no node has loaded these partitions of {TRANSACTIONS_TOPIC}: {', '.join(indexes)}. Which "
                    "transactions hang is unknown until a leader has: retry later"
                )
            ),
        )
        for leader, indexes in missing.items()
    ]


_PREPARED: Final = frozenset(convert.number_of(state) for state in PREPARED)
_ENDING: Final = frozenset({convert.number_of(TransactionStatus.ONGOING), *_PREPARED})


def _will_end(found: pb.TransactionDescription, row: pb.OpenTransaction) -> bool:
    """Its coordinator has it open in this partition."""
    there = any((p.topic, p.partition) == (row.topic, row.partition) for p in found.partitions)
    return there and found.state in (_ENDING if found.producer_id == row.producer_id else _PREPARED)
