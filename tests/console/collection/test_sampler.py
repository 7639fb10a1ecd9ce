"""The sampler and its history: a clock that jumps, a database that fails, a login that the cluster refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from msgspec.structs import replace
from sqlalchemy import text

from streamlog.access.throttle import FORGOTTEN_AFTER_S
from streamlog.console.collection.history import SampleHistory
from streamlog.console.collection.sample import Sample
from streamlog.console.collection.sampler import CLEANED_EACH_S, CLOCK_JUMP_S, PASSWORD_PAUSE_MAX_S, ClusterSampler
from streamlog.errors import BrokerNotAvailableError, SaslAuthenticationError
from tests.console.alarms.samples import sample, unreachable
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


class RefusingCluster(NoCluster):
    """Each description of it fails with the next error."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def describe_cluster(self) -> None:
        raise self.errors.pop(0)


def test_a_login_that_fails_is_repeated_less_and_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until something else comes: then the next sample is due as usual."""
    wrong, away = SaslAuthenticationError("wrong user name or password"), BrokerNotAvailableError("no node answers")
    cluster = RefusingCluster(*[wrong] * 6, away, wrong)
    pauses: list[float] = []

    async def story() -> None:
        history = SampleHistory.open(f"sqlite:///{tmp_path}/history.db")
        sampler = ClusterSampler(cast(Any, cluster), history, login_pause_max_s=100.0)

        async def no_sleep(seconds: float) -> None:
            assert seconds <= sampler.pause_s, "from the begin of the sample"
            pauses.append(sampler.pause_s)
            if not cluster.errors:
                raise asyncio.CancelledError

        monkeypatch.setattr("streamlog.console.collection.sampler.asyncio.sleep", no_sleep)
        with pytest.raises(asyncio.CancelledError):
            await sampler.run()
        monkeypatch.undo()
        await sampler.close()

    asyncio.run(story())
    assert pauses == [10.0, 20.0, 40.0, 80.0, 100.0, 100.0, 5.0, 100.0]


def test_a_defect_does_not_end_the_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = BrokerNotAvailableError("no node answers")
    cluster = RefusingCluster(ZeroDivisionError(), away)
    problems: list[str] = []

    async def story() -> None:
        sampler = ClusterSampler(cast(Any, cluster), SampleHistory.open(f"sqlite:///{tmp_path}/history.db"))

        async def no_sleep(_: float) -> None:
            problems.append(sampler.history_problem)
            if not cluster.errors:
                raise asyncio.CancelledError

        monkeypatch.setattr("streamlog.console.collection.sampler.asyncio.sleep", no_sleep)
        with pytest.raises(asyncio.CancelledError):
            await sampler.run()
        monkeypatch.undo()
        await sampler.close()

    asyncio.run(story())
    assert problems == ["The cluster was not sampled: ZeroDivisionError; the console's log has details.", ""]


def test_samples_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one ends later, and keeps nothing from before the change that the earlier one followed."""
    began: list[Sample | None] = []

    async def story() -> None:
        sampler, released = Rig(tmp_path).sampler, asyncio.Event()

        async def slow_first(_admin: object, _at_s: float, _monotonic_s: float, earlier: Sample | None) -> Sample:
            began.append(earlier)
            number = len(began)
            if number == 1:
                await released.wait()
            return unreachable(float(number))

        monkeypatch.setattr("streamlog.console.collection.sampler.sample", slow_first)
        changed = asyncio.create_task(sampler.refresh())
        await asyncio.sleep(0)
        running = asyncio.create_task(sampler.run())
        await asyncio.sleep(0)
        released.set()
        await changed
        for _ in range(10):
            await asyncio.sleep(0)
        running.cancel()
        assert [one.at_s for one in sampler._samples] == [1.0, 2.0]
        assert began == [None, sampler._samples[0]]
        await sampler.close()

    asyncio.run(story())


def test_failed_logins_with_a_password_do_not_add_up_at_the_nodes() -> None:
    assert PASSWORD_PAUSE_MAX_S > FORGOTTEN_AFTER_S
