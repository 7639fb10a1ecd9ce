"""Files scheduled for deletion, in simulated time."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from streamlog.sim.machine import Machine
from streamlog.storage.files import reaper as reaping
from streamlog.storage.files.reaper import Reaper


async def removed(machine: Machine, scheduled: dict[str, int], after_s: float) -> list[str]:
    """Those of `scheduled` (delays in ms) that are removed this long after the last was scheduled, by time."""
    reaper, gone = Reaper(machine.clock), list[str]()
    running = asyncio.create_task(reaper.run())
    for name, delay_ms in scheduled.items():
        await asyncio.sleep(0.001)  # virtual: the reaper waits for the one before
        reaper.schedule(partial(gone.append, name), delay_ms)
    await asyncio.sleep(after_s)
    running.cancel()
    return gone


@pytest.mark.parametrize(
    ("after_s", "gone"), [(0.01, ["now"]), (1.01, ["now", "soon"]), (601, ["now", "soon", "late", "later"])]
)
def test_each_goes_at_its_own_time(after_s: float, gone: list[str]) -> None:
    """One with a short delay does not wait for one with a long delay that was scheduled before."""
    machine = Machine(1)
    scheduled = {"late": 600_000, "later": 600_000, "soon": 1_000, "now": 0}
    assert machine.run(removed(machine, scheduled, after_s)) == gone


def test_more_than_may_wait_go_early_those_that_are_due_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "SCHEDULED_MAX", 2)
    machine = Machine(1)
    assert machine.run(removed(machine, {"late": 600_000, "soon": 60_000, "later": 600_000}, 0.01)) == ["soon"]
