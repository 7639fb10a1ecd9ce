"""The transactions of the admin client: list, describe, abort, end prepared ones, find hanging ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamlog.api.calls import unary
from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.pb import common_pb2, transactions_pb2
from streamlog.client.admin import transaction_values as values
from streamlog.client.admin.paging import next_token
from streamlog.client.connection.any_node import AnyNode
from streamlog.client.connection.backoff import Backoff
from streamlog.client.transactions.transaction_manager import PreparedTransaction
from streamlog.errors import StreamlogError
from streamlog.model import BrokerId, TopicPartition
from streamlog.ports import Clock

_ADMIN: Final = "streamlog.v1.Admin"
_LIST: Final = unary(f"{_ADMIN}/ListTransactions", pb.ListTransactionsResponse)
_DESCRIBE: Final = unary(f"{_ADMIN}/DescribeTransactions", pb.DescribeTransactionsResponse)
_ABORT: Final = unary(f"{_ADMIN}/AbortTransaction", pb.AbortTransactionResponse)
_FIND_HANGING: Final = unary(f"{_ADMIN}/FindHangingTransactions", pb.FindHangingTransactionsResponse)
_END: Final = unary("streamlog.v1.Transactions/EndTransaction", transactions_pb2.EndTransactionResponse)
# Each description may have thousands of partitions.
_DESCRIBED_AT_ONCE: Final = 20


class TransactionAdmin:
    """The transactions of AsyncAdmin, whose `start` sets the attributes."""

    _nodes: AnyNode
    _clock: Clock
    _backoff: Backoff
    _total_s: float

    async def list_transactions(
        self, *, states: Iterable[values.TransactionState] = (), producer_ids: Iterable[int] = ()
    ) -> values.TransactionList:
        """All transactional ids; without states and producer ids: in any state, of any producer."""
        wanted = [values.STATE_NUMBERS[state] for state in states]
        producers = list(producer_ids)
        rows: dict[str, values.TransactionListing] = {}
        errors: dict[BrokerId, StreamlogError] = {}
        token = ""
        while True:
            request = pb.ListTransactionsRequest(states=wanted, producer_ids=producers, page_token=token)
            page = await self._nodes.ask(_LIST, request)
            rows |= {row.transactional_id: values.listing(row) for row in page.transactions}
            errors |= {BrokerId(one.node_id): from_message(one.error) for one in page.errors}
            token = next_token(page, token)
            if not token:
                return values.TransactionList(transactions=tuple(rows[name] for name in sorted(rows)), errors=errors)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> tuple[values.TransactionDescription, ...]:
        """In the order of `transactional_ids`. An unknown one has the error UNKNOWN_PRODUCER_ID."""
        names = list(dict.fromkeys(transactional_ids))
        found: list[values.TransactionDescription] = []
        for at in range(0, len(names), _DESCRIBED_AT_ONCE):
            request = pb.DescribeTransactionsRequest(transactional_ids=names[at : at + _DESCRIBED_AT_ONCE])
            response = await self._nodes.ask(_DESCRIBE, request)
            found += [values.description(one) for one in response.transactions]
        return tuple(found)

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort the open transaction, and fence its producer. InvalidTransactionStateError, UnknownProducerIdError."""
        await self._nodes.ask(_ABORT, pb.AbortTransactionRequest(transactional_id=transactional_id))

    async def end_prepared_transaction(
        self, transactional_id: str, prepared: PreparedTransaction, *, commit: bool
    ) -> None:
        """For an external coordinator, instead of the producer that prepared the transaction. May be repeated until the
        transactional id is used for another transaction. Retries for default.api.timeout.ms.

        ProducerFencedError: the id has been used again, or its transaction was ended by another call.
        UnknownProducerIdError: it has expired. InvalidTransactionStateError: it has ended the other way.
        """
        request = transactions_pb2.EndTransactionRequest(
            transactional_id=transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            commit=commit,
        )
        deadline = self._clock.monotonic() + self._total_s
        attempt = 0
        while True:
            try:
                await self._nodes.ask(_END, request)
                return
            except StreamlogError as error:
                left_s = deadline - self._clock.monotonic()
                if not error.retriable or left_s <= 0:
                    raise
            attempt += 1
            await self._backoff.wait(attempt, left_s=left_s)

    async def abort_hanging_transaction(self, partition: TopicPartition, producer_id: int) -> None:
        """Abort a transaction in a partition that no coordinator knows. Only for those that `find_hanging_transactions`
        reports as hanging. InvalidTransactionStateError where none is open.
        """
        at = common_pb2.TopicPartition(topic=partition.topic, partition=partition.partition)
        await self._nodes.ask(_ABORT, pb.AbortTransactionRequest(partition=at, producer_id=producer_id))

    async def find_hanging_transactions(
        self, topics: Iterable[str] = (), *, open_for_ms: int | None = None, all_open: bool = False
    ) -> values.OpenTransactions:
        """Transactions that have been open in partitions for so long (None: beyond the longest timeout) and that no
        coordinator will end; `all_open`: all that are open. Without topics: in all.
        """
        request = pb.FindHangingTransactionsRequest(topics=topics, open_for_ms=open_for_ms, all_open=all_open)
        response = await self._nodes.ask(_FIND_HANGING, request)
        return values.OpenTransactions(
            transactions=tuple(values.open_transaction(row) for row in response.transactions),
            errors={BrokerId(one.node_id): from_message(one.error) for one in response.errors},
        )
