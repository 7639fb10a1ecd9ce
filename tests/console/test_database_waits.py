"""A database that does not answer: what the console says, what it goes on with, and its stop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from msgspec.structs import replace

from streamlog.client.admin.values import NodeState
from streamlog.console import database_waits
from streamlog.console.access.audit import AuditLog
from streamlog.console.access.control import Access
from streamlog.console.access.database import AccessError, opened
from streamlog.console.access.users import Users
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.evaluation import AlarmStatus
from streamlog.console.alarms.store import AlarmStore
from streamlog.console.collection.history import SampleHistory
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.collection.sample import Sample
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.database_waits import DatabaseThread, bounded_engine
from tests.console.alarms.samples import sample
from tests.support.health_samples import node

SILENT = "has not answered for 0.2 s"
SOON_S = 5.0


class SilentDatabase:
    """Calls do not return while it is silent."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.calls = 0

    def call(self, *_: object, **__: object) -> None:
        self.calls += 1
        self.answers.wait()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentDatabase]:
    monkeypatch.setattr(database_waits, "ANSWER_S", 0.2)
    found = SilentDatabase()
    yield found
    found.answers.set()


class NoCluster:
    async def close(self) -> None: ...


class NoSampler:
    def remove_listener(self, _: object) -> None: ...

    def clock_problem(self, _: Sample) -> str:
        return ""


def test_calls_after_one_without_an_answer_are_refused_until_it_ends(silent: SilentDatabase) -> None:
    async def story() -> None:
        thread = DatabaseThread("history", "The history", HistoryError)
        for _ in range(3):
            with pytest.raises(HistoryError, match=f"The history cannot be used: the database {SILENT}"):
                await thread.run(silent.call)
        assert silent.calls == 1
        silent.answers.set()
        thread.close()
        thread._thread.join(SOON_S)
        assert not thread._is_overdue
        with pytest.raises(HistoryError, match="The history cannot be used: the console ends"):
            await thread.run(silent.call)

    asyncio.run(story())


def test_calls_that_wait_for_others_are_not_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes less than the limit; the last one has waited for longer."""
    monkeypatch.setattr(database_waits, "ANSWER_S", 0.5)

    async def story() -> None:
        thread, never = DatabaseThread("history", "The history", HistoryError), threading.Event()
        answers = await asyncio.gather(*(thread.run(lambda: never.wait(0.3)) for _ in range(4)))
        assert answers == [False] * 4
        thread.close()

    asyncio.run(story())


def test_the_last_call_ends_before_the_stop() -> None:
    async def story() -> None:
        thread, written = DatabaseThread("access", "The audit log", AccessError), []
        begun, answered = threading.Event(), threading.Event()

        def write() -> None:
            begun.set()
            answered.wait()
            written.append("line")

        last = asyncio.ensure_future(thread.run(write))
        await asyncio.to_thread(begun.wait)
        closing = asyncio.ensure_future(asyncio.to_thread(thread.close))
        answered.set()
        await closing
        assert written == ["line"]
        await last

    asyncio.run(story())


def test_samples_go_on_and_the_stop_does_not_wait(
    silent: SilentDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        history = SampleHistory.open(f"sqlite:///{tmp_path}/history.db")
        sampler = ClusterSampler(cast(Any, NoCluster()), history)
        monkeypatch.setattr(history, "write", silent.call)
        await sampler._store(sample(1000.0, nodes=(node(1),)))
        assert SILENT in sampler.history_problem
        assert await sampler.history(("cluster.nodes", ""), 60) == []
        await sampler.close()

    _soon(story())


def test_alarms_fire_and_the_stop_does_not_wait(
    silent: SilentDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        history = SampleHistory.open(f"sqlite:///{tmp_path}/history.db")
        store = AlarmStore(history.database)
        engine = AlarmEngine(cast(Any, NoSampler()), store, tmp_path / "alarms.toml", {})
        engine.path.write_text('[rules.node-down]\nkind = "node_down"\nfor = "0s"\n')
        await engine.load()
        monkeypatch.setattr(store, "write", silent.call)
        down = sample(1000.0, nodes=(node(1), node(2, NodeState.FENCED)))
        for step in range(3):
            await engine.step(replace(down, at_s=1000.0 + step, monotonic_s=1000.0 + step))
        assert [one.rule for one in engine.alarms(AlarmStatus.FIRING)] == ["node-down"]
        assert SILENT in engine.problem
        await engine.close()
        history.close()

    _soon(story())


def test_users_are_refused_with_a_reason_and_the_stop_does_not_wait(
    silent: SilentDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        engine = opened(tmp_path, "")
        users = Users(engine)
        access = Access(users, AuditLog(engine), required=True)
        monkeypatch.setattr(users, "list", silent.call)
        monkeypatch.setattr(users, "check", silent.call)
        with pytest.raises(AccessError, match=SILENT):
            await access.refresh()
        with pytest.raises(AccessError, match=SILENT):
            await access.log_in("alice", "a long password", "127.0.0.1")
        access.close()

    _soon(story())


def _soon(story: Any) -> None:
    begin_s = time.monotonic()
    asyncio.run(story)
    assert time.monotonic() - begin_s < SOON_S


def test_a_server_that_takes_connections_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setitem(database_waits.LIBPQ_LIMITS, "connect_timeout", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"postgresql+psycopg://a:b@127.0.0.1:{server.getsockname()[1]}/x"
        with pytest.raises(HistoryError, match="cannot be opened: connection timeout"):
            SampleHistory.open(url)


def test_limits_of_the_url_hold() -> None:
    pytest.importorskip("psycopg")
    engine = bounded_engine("postgresql+psycopg://a:b@127.0.0.1/x?connect_timeout=60")
    _, given = engine.dialect.create_connect_args(engine.url)
    assert given["connect_timeout"] == "60"
