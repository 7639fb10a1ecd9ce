"""What a program does with the transactions of its producer; what they are: `transactions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.client.transactions.transaction_manager import (
    GroupMetadata,
    PreparedTransaction,
    TransactionManager,
    TransactionPhase,
)
from streamlog.errors import InvalidTransactionStateError, StreamlogError, TransactionAbortableError
from streamlog.model import TopicPartition


class TransactionCommands:
    """The part of AsyncProducer for those with transactional.id; the others get InvalidTransactionStateError."""

    _transactions: TransactionManager | None

    def _check_open(self) -> None:
        """ClientClosedError."""
        raise NotImplementedError

    def _required(self) -> TransactionManager:
        self._check_open()
        if self._transactions is None:
            raise InvalidTransactionStateError("a producer without transactional.id has no transactions")
        return self._transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """What is sent in the block is written as one: its end commits, an exception aborts and goes on.

        One prepared in the block stays so. Raises what `begin_transaction` and `commit_transaction` raise;
        after TransactionAbortableError the transaction has been aborted, and the next one can begin.
        """
        transactions = self._required()
        await transactions.begin()
        try:
            yield
            if transactions.state is not TransactionPhase.PREPARED:
                await transactions.commit()
        except BaseException as error:
            if transactions.state in (TransactionPhase.OPEN, TransactionPhase.FAILED):
                try:
                    await transactions.abort()
                except StreamlogError as trouble:
                    if isinstance(error, TransactionAbortableError):
                        raise trouble from error
                    error.add_note(f"and it could not be aborted: {trouble}")
            raise

    async def init_transactions(self) -> None:
        """As `TransactionManager.init`, which the first transaction does otherwise."""
        await self._required().init()

    async def begin_transaction(self) -> None:
        """As `TransactionManager.begin`. The first one fences whoever had the transactional id before."""
        await self._required().begin()

    async def commit_transaction(self) -> None:
        """As `TransactionManager.commit`."""
        await self._required().commit()

    async def abort_transaction(self) -> None:
        """As `TransactionManager.abort`."""
        await self._required().abort()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | GroupMetadata
    ) -> None:
        """As part of the open transaction: where the group reads next. As `TransactionManager.send_offsets`."""
        await self._required().send_offsets(offsets, group)

    async def prepare_transaction(self) -> PreparedTransaction:
        """As `TransactionManager.prepare`."""
        return await self._required().prepare()

    async def hand_over_transaction(self) -> PreparedTransaction:
        """As `TransactionManager.hand_over`."""
        return await self._required().hand_over()

    async def resume_transaction(self) -> PreparedTransaction | None:
        """As `TransactionManager.resume`."""
        return await self._required().resume()
