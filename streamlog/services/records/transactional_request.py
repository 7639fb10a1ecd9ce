"""One request of a transactional stream: what is being written of it, and its response once all of that is decided."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from streamlog.api.errors import to_message
from streamlog.api.pb import records_pb2 as pb
from streamlog.client.producer.batches.wire_batch import ProducerIdAndEpoch
from streamlog.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    StreamlogError,
    TransactionAbortableError,
)
from streamlog.services.records.gathering.batch_write import WriteResult
from streamlog.services.records.publish import PreparedPublish, results_of

_DROPPED = "the transaction was aborted before this was written"


class TransactionalRequest:
    def __init__(self, answer: pb.PublishStreamResponse) -> None:
        self.answer = answer
        self.identity = ProducerIdAndEpoch()  # under which it is written
        self.prepared: PreparedPublish | None = None  # None: no records, or all are refused
        self.writes: Sequence[asyncio.Task[WriteResult | StreamlogError]] = ()
        self.commits: Sequence[asyncio.Task[StreamlogError | None]] = ()

    async def wait(self) -> bool:
        """Until everything is written, refused or dropped. Whether anything was refused with PRODUCER_FENCED."""
        going = [*self.writes, *self.commits]
        if not going:
            return False
        await asyncio.wait(going)
        return any(not one.cancelled() and _is_fenced(one.result()) for one in going)

    def response(self) -> pb.PublishStreamResponse:
        """After `wait`, of a stream that is not fenced."""
        answer = self.answer
        if self.prepared is not None:
            answer.results.extend(results_of(self.prepared, [_outcome(write) for write in self.writes]))
        is_aborted = answer.outcome == pb.TRANSACTION_OUTCOME_ABORTED
        errors = [None if one.cancelled() and is_aborted else _refusal(one) for one in self.commits]
        error = next((one for one in errors if one is not None), None)
        if error is not None and not answer.HasField("error"):
            answer.error.CopyFrom(to_message(error))
        return answer


def _outcome(write: asyncio.Task[WriteResult | StreamlogError]) -> WriteResult | StreamlogError:
    if write.cancelled():
        return InvalidTransactionStateError(_DROPPED)
    outcome = write.result()
    if isinstance(outcome, ProducerFencedError):
        return TransactionAbortableError(f"not written; abort the transaction, and begin another one: {outcome}")
    return outcome


def _refusal(commit: asyncio.Task[StreamlogError | None]) -> StreamlogError | None:
    return InvalidTransactionStateError(_DROPPED) if commit.cancelled() else commit.result()


def _is_fenced(outcome: WriteResult | StreamlogError | None) -> bool:
    if not isinstance(outcome, StreamlogError):
        return False
    return isinstance(outcome, ProducerFencedError) or isinstance(outcome.__cause__, ProducerFencedError)
