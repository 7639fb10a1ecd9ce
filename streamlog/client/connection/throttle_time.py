"""How long nodes held a client up because of quotas: throttle_time_ms of responses, as Kafka's metrics of clients."""

from __future__ import annotations


class ThrottleTime:
    """Of one client, since its start."""

    __slots__ = ("count", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0  # responses that were held up
        self.total_ms = 0
        self.max_ms = 0

    def add(self, throttle_time_ms: int) -> None:
        self.count += 1
        self.total_ms += throttle_time_ms
        self.max_ms = max(self.max_ms, throttle_time_ms)

    def metrics(self, what: str) -> dict[str, float]:
        """`what`: produce or fetch."""
        return {
            f"{what}-throttle-count": self.count,
            f"{what}-throttle-time-avg": self.total_ms / self.count if self.count else 0.0,
            f"{what}-throttle-time-max": self.max_ms,
            f"{what}-throttle-time-total": self.total_ms,
        }
