"""Metrics of the transactions that a node coordinates."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from streamlog.metrics.families import Family
from streamlog.model import PartitionId, ProducerEpoch, ProducerId, TopicPartition
from streamlog.node.metrics import transactions as transaction_metrics
from streamlog.transactions.records import TransactionStatus, TransactionValue

T_0 = TopicPartition("t", PartitionId(0))


class FakeCoordinator:
    def __init__(self, *values: TransactionValue) -> None:
        self._own = [(f"x{n}", value) for n, value in enumerate(values)]

    def own_transactions(self, start: str, count: int) -> list[tuple[str, TransactionValue]]:
        return [pair for pair in self._own if pair[0] > start][:count]


def value(state: TransactionStatus, **fields: Any) -> TransactionValue:
    return TransactionValue(
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        timeout_ms=1_000,
        state=state,
        updated_ms=0,
        **fields,
    )


def families(*values: TransactionValue) -> dict[str, Family]:
    coordinator = cast("Any", FakeCoordinator(*values))
    found = asyncio.run(transaction_metrics.transaction_families(coordinator, 10_000))
    return {family.name: family for family in found}


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_states_and_age_of_all_ids(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_metrics, "IDS_AT_ONCE", at_once)
    ended = value(TransactionStatus.COMPLETE_COMMIT, started_ms=1)
    begun = [value(TransactionStatus.ONGOING, started_ms=ms, partitions=frozenset({T_0})) for ms in (7_000, 4_000)]
    later = value(TransactionStatus.ONGOING, started_ms=12_000, partitions=frozenset({T_0}))  # by another clock
    for values, age_s in (([], 0), ([ended], 0), ([later], 0), ([ended, *begun, later], 6)):
        found = families(*values)
        assert found["streamlog_oldest_transaction_age_seconds"].samples == [((), age_s)]
        counts = dict(found["streamlog_transactional_ids"].samples)
        ongoing = [one for one in values if one.state is TransactionStatus.ONGOING]
        assert counts["ongoing",] == len(ongoing)
        assert counts["complete_commit",] == len(values) - len(ongoing)
