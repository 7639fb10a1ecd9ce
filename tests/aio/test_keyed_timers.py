"""Timers by key, in virtual time."""

from __future__ import annotations

import asyncio

from streamlog.aio.keyed_timers import KeyedTimers
from streamlog.sim import run


def test_setting_a_timer_again_replaces_it_and_each_fires_once() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        due: list[tuple[str, float]] = []
        timers = KeyedTimers[str](lambda key: due.append((key, round(loop.time() - begin, 3))))
        begin = loop.time()
        timers.set("a", 1_000)
        timers.set("b", 2_000)
        timers.set("c", 3_000)
        timers.set("a", 4_000)
        timers.set("c", None)
        assert (len(timers), sorted(timers), "c" in timers) == (2, ["a", "b"], False)
        await asyncio.sleep(10)
        assert due == [("b", 2.0), ("a", 4.0)]
        assert len(timers) == 0
        timers.set("a", 1_000)
        timers.stop()
        await asyncio.sleep(10)
        assert len(due) == 2

    run(main, seed="timers", until_s=60)
