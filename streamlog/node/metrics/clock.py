"""The node's wall clock against the quorum's."""

from __future__ import annotations

from streamlog.metrics.families import Family, gauge, single
from streamlog.node.quorum_clock import QuorumClock


def clock_families(clock: QuorumClock) -> list[Family]:
    skew_ms = clock.skew_ms
    return [
        gauge(
            "streamlog_clock_skew_seconds",
            "How far the node's wall clock is ahead of what most nodes agree on; missing while that is unknown.",
            [] if skew_ms is None else single(skew_ms / 1000),
        ),
        gauge(
            "streamlog_clock_skew_limit_seconds",
            "Limit of the skew; beyond it nothing is deleted by time and the quorum's time is used: clock.skew.max.ms.",
            single(clock.skew_max_ms / 1000),
        ),
        gauge(
            "streamlog_clock_agrees",
            "1 while the wall clock is within the limit: retention by time works.",
            single(int(clock.may_delete_by_time)),
        ),
    ]
