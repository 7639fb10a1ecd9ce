"""Flush: everything that was sent before is sent at once, and settled; an error that was raised nowhere else is raised.

A record that fails raises its error from its future. Programs that drop the futures learn of it from `flush`: one
error, the first since the last flush.

Owned by the producer's loop. Failures are noted as they happen, on the loop too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from streamlog.aio.timeouts import timeout
from streamlog.client.producer.batches.pending_records import PendingRecords
from streamlog.client.producer.batches.producer_batch import PendingRecord, ProducerBatch, as_streamlog_error
from streamlog.client.producer.delivery import Delivery
from streamlog.client.transactions.transaction_manager import TransactionManager
from streamlog.errors import RequestTimedOutError


class Flushing:
    def __init__(
        self,
        delivery: Delivery,
        pending: PendingRecords,
        transactions: TransactionManager | None,
        guard: AbstractContextManager[object],
    ) -> None:
        self._delivery = delivery
        self._pending = pending
        self._transactions = transactions
        self._guard = guard
        self._failed: list[ProducerBatch | PendingRecord] = []  # the first, until its error was raised

    def note_failure(self, failed: ProducerBatch | PendingRecord) -> None:
        """`flush` raises an error that was raised nowhere else. One is enough."""
        if failed.error is not None:
            if self._transactions is not None:
                self._transactions.on_failure(as_streamlog_error(failed.error))
            self._failed = [one for one in self._failed if not one.error_taken]
            if not self._failed:
                self._failed.append(failed)

    def forget_failures(self) -> None:
        """The end of a transaction raises its error."""
        self._failed = []

    async def flush(self, timeout_s: float | None) -> None:
        """RequestTimedOutError, or the error of a record."""
        try:
            async with timeout(timeout_s):
                await self.settle()
        except TimeoutError:
            assert timeout_s is not None
            raise self.late(self.unsettled, timeout_s) from None
        self.raise_failure()

    def raise_failure(self) -> None:
        """The error of a record, where none was raised for it yet."""
        for failed in self._failed:
            if not failed.error_taken:
                self._failed = []
                failed.take_error()

    @property
    def unsettled(self) -> int:
        """Records without an outcome."""
        count = sum(len(batch) for queue in self._delivery.active() for batch in queue.unsettled())
        return count + self._pending.count

    def late(self, unsettled: int, after_s: float) -> RequestTimedOutError:
        return RequestTimedOutError(
            f"{unsettled} records were not acknowledged within {after_s:g} s of the flush; they may still be written"
        )

    async def settle(self) -> None:
        """Until each record that was sent before has an outcome."""
        await self._pending.wait_until_sent()
        queues = self._delivery.active()
        with self._guard:
            waiters = [batch.waiter() for queue in queues for batch in queue.unsettled()]
            for queue in queues:
                queue.flushing += 1
        try:
            for queue in queues:
                self._delivery.due(queue)
            for waiter in waiters:
                await waiter
        finally:
            for queue in queues:
                queue.flushing -= 1
