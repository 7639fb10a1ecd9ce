"""The methods of a producer for its transactions; their rules are in `transaction_manager`."""

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
    """The transactions of AsyncProducer. InvalidTransactionStateError without transactional.id."""

    _transactions: TransactionManager | None

    def _check_open(self) -> None:
        """ClientClosedError."""
        raise NotImplementedError

    def _required(self) -> TransactionManager:
        self._check_open()
        if self._transactions is None:
            raise InvalidTransactionStateError("the producer has no transactional.id: set it to use transactions")
        return self._transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction: the end of the block commits, an exception aborts and is raised again.

        One that was prepared in the block stays prepared. Raises what `begin_transaction` and `commit_transaction`
        raise; after TransactionAbortableError the transaction has been aborted, and the next one can begin.
        """
        transactions = self._required()
        await transactions.begin()
        try:
            yield
            if transactions.state is not TransactionPhase.PREPARED:
                await transactions.commit()
        except BaseException as error:
            if transactions.state in (TransactionPhase.OPEN, TransactionPhase.SETTLING, TransactionPhase.FAILED):
                try:
                    await transactions.abort()
                except StreamlogError as abort_error:
                    if isinstance(error, TransactionAbortableError):
                        raise abort_error from error
                    error.add_note(f"the transaction could not be aborted: {abort_error}")
            raise

    async def init_transactions(self) -> None:
        """Get a producer id, fence the former producer of the transactional id, and abort its open transaction. The
        first transaction does so otherwise. RequestTimedOutError, InvalidRequestError.
        """
        await self._required().init()

    async def begin_transaction(self) -> None:
        """The first one does `init_transactions`. RequestTimedOutError, InvalidTransactionStateError,
        ProducerFencedError.
        """
        await self._required().begin()

    async def commit_transaction(self) -> None:
        """All records whose `send` has returned before are in it; a `send` from now on is refused.
        TransactionAbortableError: abort it. RequestTimedOutError: the outcome is unknown, commit again.
        """
        await self._required().commit()

    async def abort_transaction(self) -> None:
        """Its records are not written, or not returned to read_committed consumers."""
        await self._required().abort()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | GroupMetadata
    ) -> None:
        """Commit these offsets of the group, the next ones to read, together with the open transaction.
        TransactionAbortableError: abort it.
        """
        await self._required().send_offsets(offsets, group)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait until all records are written; then only a commit or an abort is possible, here or after a crash. Needs
        transaction.two.phase.commit.enable. TransactionAbortableError: abort it.
        """
        return await self._required().prepare()

    async def hand_over_transaction(self) -> PreparedTransaction:
        """As `prepare_transaction`, but also without two-phase commit. The transaction is ended by the admin client,
        with what is returned (`end_prepared_transaction`), before transaction.timeout.ms.
        """
        return await self._required().hand_over()

    async def resume_transaction(self) -> PreparedTransaction | None:
        """Instead of `init_transactions`, after a crash: the prepared transaction, to be committed or aborted; None:
        there is none.
        """
        return await self._required().resume()
