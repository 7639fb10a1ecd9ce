"""Defects of transactions that are planted into the real classes, one at a time: the simulation must find them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from streamlog.broker.append.verification import Verifications
from streamlog.coordinator.marker_writer import MarkerWriter, _Job
from streamlog.coordinator.shard_log import ShardLog
from streamlog.coordinator.transaction_shard import TransactionShard
from streamlog.errors import InvalidTransactionStateError
from streamlog.model import ProducerEpoch, ProducerId
from streamlog.services.batches.transaction_verification import Verifier
from streamlog.transactions import lifecycle
from streamlog.transactions.lifecycle import Ended, EndTransaction, TransactionDecision
from streamlog.transactions.records import NO_TIME, PREPARED, TransactionRecord, TransactionStatus, TransactionValue

from ..mutants import Mutant


def marker_before_the_decision_is_durable() -> AbstractContextManager[Any]:
    begin = MarkerWriter._begin

    async def at_once(self: MarkerWriter, job: _Job) -> None:
        async def safe(_: ShardLog) -> None:
            return

        with patch.object(ShardLog, "wait_until_safe", safe):
            await begin(self, job)  # waits for nothing, so no other call meets the patch

    return patch.object(MarkerWriter, "_begin", at_once)


def epoch_not_bumped() -> AbstractContextManager[Any]:
    """By the end of a transaction; its marker has the epoch above nonetheless."""

    def same(before: TransactionValue, fresh_producer_id: ProducerId) -> tuple[ProducerId, ProducerEpoch]:
        return before.producer_id, before.producer_epoch

    return patch.object(lifecycle, "_next_epoch", same)


def verification_skipped() -> AbstractContextManager[Any]:
    async def yes(self: Verifier, command: object) -> None:
        return

    return patch.object(Verifier, "add", yes)


def retry_of_the_end_decided_again() -> AbstractContextManager[Any]:
    """Whatever was decided: the last one who asks is right, as long as not all markers are written."""
    end = lifecycle.end

    def decided_again(
        command: EndTransaction, before: TransactionValue | None, now_ms: int
    ) -> TransactionDecision[Ended]:
        if before is not None and before.state in PREPARED and command.producer_epoch == before.producer_epoch - 1:
            state = TransactionStatus.PREPARE_COMMIT if command.commit else TransactionStatus.PREPARE_ABORT
            value = replace(before, state=state, updated_ms=now_ms)
            response = Ended(producer=lifecycle._producer(value), was_open=True)
            return TransactionDecision(response=response, record=TransactionRecord(command.transactional_id, value))
        if before is None:
            raise InvalidTransactionStateError("nothing is open")
        return end(command, before, now_ms)

    return patch.object(lifecycle, "end", decided_again)


def grant_not_taken_back() -> AbstractContextManager[Any]:
    """What was opened ahead is closed, and a leader goes on believing that it may open it."""
    return patch.object(Verifications, "revoke", lambda self, producer_id, epoch: False)


def ahead_closed_by_who_took_over() -> AbstractContextManager[Any]:
    """A client may have a response that says it is open."""
    begin = TransactionShard.begin

    def closing(self: TransactionShard) -> None:
        for name, value in self.values.items():
            if value.has_next:
                self.values[name] = replace(value, next_partitions=frozenset(), next_started_ms=NO_TIME)
        begin(self)

    return patch.object(TransactionShard, "begin", closing)


MUTANTS: Final[Mapping[str, Mutant]] = {
    "marker_before_the_decision_is_durable": Mutant(plant=marker_before_the_decision_is_durable, seeds=10),
    "epoch_not_bumped": Mutant(plant=epoch_not_bumped, seeds=10),
    "verification_skipped": Mutant(plant=verification_skipped, seeds=10),
    "retry_of_the_end_decided_again": Mutant(plant=retry_of_the_end_decided_again, seeds=10),
    "grant_not_taken_back": Mutant(plant=grant_not_taken_back, seeds=20, first=54),
    "ahead_closed_by_who_took_over": Mutant(plant=ahead_closed_by_who_took_over, seeds=10, first=10),
}
