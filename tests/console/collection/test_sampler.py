"""The sampler and its history: a clock that jumps, a database that fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from msgspec.structs import replace
from sqlalchemy import text

from streamlog.console.collection.history import SampleHistory
from streamlog.console.collection.sampler import CLEANED_EACH_S, CLOCK_JUMP_S, ClusterSampler
from tests.console.alarms.samples import sample
from tests.support.health_samples import node

DAY_S = 86_400.0
BEGIN_S = 1_800_000_000.0


class NoCluster:
    async def close(self) -> None: ...


class Rig:
    def __init__(self, directory: Path) -> None:
        self.history = SampleHistory.open(f"sqlite:///{directory}/history.db")
        self.sampler = ClusterSampler(cast(Any, NoCluster()), self.history)
        self.start_s = self.sampler._cleaned_s

    async def store(self, passed_s: float, ahead_s: float = 0.0) -> None:
        one = sample(BEGIN_S, nodes=(node(1),))
        await self.sampler._store(replace(one, at_s=BEGIN_S + passed_s + ahead_s, monotonic_s=self.start_s + passed_s))

    def points(self) -> int:
        with self.history.database.engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM points WHERE tier = 0")).scalar_one())


def test_a_clock_set_forward_by_days_deletes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        rig = Rig(tmp_path)
        for step in range(20):
            await rig.store(step * 10)
        before = rig.points()
        await rig.store(CLEANED_EACH_S + 10, ahead_s=365 * DAY_S)
        assert "was set forward by 365 days" in rig.sampler.history_problem
        assert rig.points() >= before
        await rig.store(CLEANED_EACH_S + 20)
        assert rig.sampler.history_problem == ""
        assert rig.points() >= before
        await rig.sampler.close()

    asyncio.run(story())


@pytest.mark.parametrize("ahead_s", [0.0, CLOCK_JUMP_S / 2])
def test_what_is_old_is_deleted(tmp_path: Path, ahead_s: float) -> None:
    async def story() -> None:
        rig = Rig(tmp_path)
        for step in range(20):
            await rig.store(step * 10)
        await rig.store(2 * DAY_S, ahead_s)
        assert rig.sampler.history_problem == ""
        first = await asyncio.to_thread(rig.points)
        assert first < 20
        await rig.sampler.close()

    asyncio.run(story())


def test_a_history_that_cannot_be_read_is_a_warning_and_no_error_of_the_page(tmp_path: Path) -> None:
    async def story() -> None:
        rig = Rig(tmp_path)
        await rig.store(0)
        with rig.history.database.engine.begin() as connection:
            connection.execute(text("DROP TABLE points"))
        assert await rig.sampler.history(("cluster.nodes", ""), 60) == []
        assert "cannot be read" in rig.sampler.history_problem
        await rig.store(10)
        assert "cannot be written" in rig.sampler.history_problem
        await rig.sampler.close()

    asyncio.run(story())


def test_a_file_that_is_replaced_while_the_console_runs_is_reported(tmp_path: Path) -> None:
    async def story() -> None:
        rig = Rig(tmp_path)
        await rig.store(0)
        (tmp_path / "history.db").write_bytes(b"no database")
        await rig.store(10)
        assert "history.db was overwritten while the console ran" in rig.sampler.history_problem
        await rig.store(20)
        assert "was overwritten" in rig.sampler.history_problem  # until the console is restarted
        assert rig.points() > 0
        await rig.sampler.close()

    asyncio.run(story())
