from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.cli.perf.writing import Writing, write


class CountingProducer:
    def __init__(self) -> None:
        self.count = 0

    async def send_many(self, _topic: str, values: list[bytes]) -> Any:
        self.count += len(values)
        return SimpleNamespace(add_done_callback=lambda _: None)

    async def flush(self) -> None:
        pass


@pytest.mark.parametrize("rate", [-1.0, float("inf"), float("nan")])
async def test_a_rate_that_limits_nothing(rate: float) -> None:
    producer: Any = CountingProducer()
    await write(producer, "t", [b"x"], 1_500, rate, Writing())
    assert producer.count == 1_500
