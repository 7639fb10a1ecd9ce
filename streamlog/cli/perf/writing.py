"""Writes records at a rate, and measures the time from handing each over to its acknowledgement.

Records are handed over some at a time, at a hundredth of a second's rate, all with one start: so a record's latency
includes the waiting for its batch, as an application's does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.cli.perf.latencies import Latencies
from streamlog.client.producer.async_producer import AsyncProducer

_AT_ONCE_MAX: Final = 200
_ROUNDS_PER_S: Final = 100


class Writing:
    """What was measured: after the first `warmup` records, in all and since the last `interval`."""

    def __init__(self, warmup: int = 0) -> None:
        self.total = Latencies()
        self.interval = Latencies()
        self.begin = self.end = time.monotonic()
        self.byte_count = 0
        self.errors = 0
        self.first_error: Exception | None = None
        self._warmup = warmup

    def acknowledged(self, number: int, started: float, sizes: Sequence[int], error: Exception | None) -> None:
        """`number`: of the first of these records, from 0."""
        self.end = time.monotonic()
        if error is not None:
            self.errors += len(sizes)
            self.first_error = self.first_error or error
        elif number < self._warmup:
            self.begin = self.end
        else:
            milliseconds = (self.end - started) * 1_000
            self.total.add(milliseconds, len(sizes))
            self.interval.add(milliseconds, len(sizes))
            self.byte_count += sum(sizes)

    @property
    def seconds(self) -> float:
        return max(self.end - self.begin, 1e-9)


async def write(
    producer: AsyncProducer, topic: str, payloads: Sequence[bytes], count: int, rate: float, writing: Writing
) -> None:
    """`payloads`: values, repeated in turn. `rate`: records a second; 0: as many as the producer takes."""
    begin = time.monotonic()
    at_once = _AT_ONCE_MAX if rate <= 0 else max(1, int(min(_AT_ONCE_MAX, rate / _ROUNDS_PER_S)))
    sent = 0
    while sent < count:
        if rate > 0 and (early_s := begin + sent / rate - time.monotonic()) > 0:
            await asyncio.sleep(early_s)
        values = [payloads[number % len(payloads)] for number in range(sent, min(sent + at_once, count))]
        started = time.monotonic()
        future = await producer.send_many(topic, values)
        future.add_done_callback(_noted(writing, sent, started, [len(value) for value in values]))
        sent += len(values)
        await asyncio.sleep(0)  # the producer's tasks have their turn after each round
    await producer.flush()


def _noted(writing: Writing, number: int, started: float, sizes: list[int]) -> Callable[[Exception | None], None]:
    return lambda error: writing.acknowledged(number, started, sizes, error)
