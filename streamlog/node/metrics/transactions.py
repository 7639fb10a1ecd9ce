"""Transactions that this node coordinates."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.metrics.families import Family, gauge, single
from streamlog.transactions.records import NO_TIME, TransactionStatus

IDS_AT_ONCE: Final = 1_000


async def transaction_families(transactions: TransactionCoordinator, now_ms: int) -> list[Family]:
    """`now_ms`: the time by which transactions start: the quorum's where this node's clock is wrong."""
    states, oldest_ms, start = Counter[TransactionStatus](), now_ms, ""
    while some := transactions.own_transactions(start, IDS_AT_ONCE):
        states.update(value.state for _, value in some)
        begun = (value.started_ms for _, value in some if value.partitions and value.started_ms != NO_TIME)
        oldest_ms, start = min((oldest_ms, *begun)), some[-1][0]
        await asyncio.sleep(0)
    oldest_s = (now_ms - oldest_ms) / 1000
    return [
        gauge(
            "streamlog_transactional_ids",
            "Transactional ids that this node coordinates, by the state of their last transaction.",
            [((state.name.lower(),), states.get(state, 0)) for state in TransactionStatus],
            ("state",),
        ),
        gauge(
            "streamlog_oldest_transaction_age_seconds",
            "Age of the oldest transaction that has not ended; 0: there is none.",
            single(oldest_s),
        ),
    ]
