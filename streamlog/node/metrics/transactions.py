"""Transactions that this node coordinates."""

from __future__ import annotations

from collections import Counter

from streamlog.coordinator.transactions import TransactionCoordinator
from streamlog.metrics.families import Family, gauge, single
from streamlog.transactions.records import NO_TIME, TransactionStatus


def transaction_families(transactions: TransactionCoordinator, now_ms: int) -> list[Family]:
    """`now_ms`: the time by which transactions start: the quorum's where this node's clock is wrong."""
    own = transactions.own_transactions()
    states = Counter(value.state for _, value in own)
    begun = [value.started_ms for _, value in own if value.partitions and value.started_ms != NO_TIME]
    oldest_s = max(0.0, (now_ms - min(begun)) / 1000) if begun else 0.0
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
