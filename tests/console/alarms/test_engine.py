"""The engine with a database, a file and a webhook: restarts, edits, a database that fails, sync latency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")

from sqlalchemy import text

from streamlog.client.admin.values import NodeState
from streamlog.console.alarms.deliveries import DeliveryStatus
from streamlog.console.alarms.engine import AlarmEngine
from streamlog.console.alarms.evaluation import AlarmStatus
from streamlog.console.alarms.rules import AlarmRule, RuleKind
from streamlog.console.alarms.store import AlarmEvent, AlarmStore
from streamlog.console.alarms.syncs import Scrape, SyncLatencies, parse, quantile
from streamlog.console.collection.history import SampleHistory
from streamlog.console.collection.history_database import HistoryDatabase, HistoryError
from streamlog.console.collection.sample import Sample
from streamlog.tls.authority import Authority
from streamlog.tls.settings_files import client_settings
from tests.console.alarms.receivers import WebhookReceiver, webhook_receiver
from tests.console.alarms.samples import sample, unreachable
from tests.daemon.http.served_https import ServedHttps
from tests.support.health_samples import node

RULES = """
[rules.node-down]
kind = "node_down"
for = "10s"
keep_firing_for = "5s"
[channels.hook]
type = "webhook"
url = "%s"
"""


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookReceiver]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with webhook_receiver() as found:
        yield found


class Console:
    """Engines, one after another, on one directory."""

    database: HistoryDatabase  # of the last one

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.rules = directory / "alarms.toml"
        self.rules.write_text(RULES % url)
        self.second = 1000.0

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[AlarmEngine]:
        history = SampleHistory.open(f"sqlite:///{self.directory}/history.db")
        self.database = history.database
        found = AlarmEngine(cast(Any, NoSampler()), AlarmStore(history.database), self.rules, {})
        await found.load()
        yield found
        await found.close()
        history.close()

    async def step(self, engine: AlarmEngine, *, down: bool, passed_s: float = 10) -> None:
        self.second += passed_s
        nodes = (node(1), node(2, NodeState.FENCED if down else NodeState.ACTIVE), node(3))
        await engine.step(sample(self.second, nodes=nodes))


class NoSampler:
    clock = ""

    def clock_problem(self, _: Sample) -> str:
        return self.clock

    def add_listener(self, key: object, listener: Callable[[], None]) -> None: ...
    def remove_listener(self, key: object) -> None: ...


@pytest.fixture
def console(tmp_path: Path, hook: WebhookReceiver) -> Console:
    return Console(tmp_path, hook.url)


async def delivered(engine: AlarmEngine) -> None:
    await engine._notifier.wait_until_empty()


async def test_a_restart_continues_and_does_not_fire_again(console: Console, hook: WebhookReceiver) -> None:
    async with console.engine() as engine:
        await console.step(engine, down=True)
        await console.step(engine, down=True)
        await engine.book.silence("disk*", "*", 3600, "a planned test", "ann")
        await delivered(engine)
        assert [one.json["status"] for one in hook.taken] == ["firing"]
    async with console.engine() as engine:
        alarm = engine.alarms(AlarmStatus.FIRING)[0]
        assert [one.comment for one in engine.book.silences] == ["a planned test"]
        await engine.step(unreachable(console.second))
        await console.step(engine, down=True)
        assert await engine.book.acknowledge(alarm.key, "ann")
    async with console.engine() as engine:
        assert engine.alarms(AlarmStatus.FIRING)[0].acknowledged_by == "ann"
        await console.step(engine, down=False)
        await console.step(engine, down=False)
        await delivered(engine)
        assert not await engine.book.acknowledge(alarm.key, "ann")
        changes = [one.change for one in await engine.book.events(10)]
    assert changes == ["resolved", "acknowledged", "fired"]
    assert [one.json["status"] for one in hook.taken] == ["firing", "resolved"]
    assert {one.json["alarms"][0]["id"] for one in hook.taken} == {alarm.alarm_id}
    async with console.engine() as engine:
        assert engine.alarms(AlarmStatus.FIRING) == []


async def test_a_notice_that_was_under_way_is_sent_after_a_restart(console: Console, hook: WebhookReceiver) -> None:
    hook.answers = [(503, b""), (200, b"ok")]
    async with console.engine() as engine:
        await console.step(engine, down=True)
        await console.step(engine, down=True)
        while not [one for one in await engine.book.deliveries(10) if one.tries == 1]:
            pass
        assert engine.queued == 1
    async with console.engine() as engine:
        await delivered(engine)
        ended = (await engine.book.deliveries(10))[0]
    assert (ended.status, ended.tries) == (DeliveryStatus.DELIVERED, 2)
    first, second = hook.taken
    assert first.json["id"] == second.json["id"]


async def test_an_alarm_is_stored_before_it_is_sent(
    console: Console, hook: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console.engine() as engine:
        monkeypatch.setattr(engine._notifier, "put", never)  # the process ends here
        await console.step(engine, down=True)
        await console.step(engine, down=True)
    async with console.engine() as engine:
        await delivered(engine)
        await console.step(engine, down=True)
        await delivered(engine)
    assert len(hook.taken) == 1


async def never(_: object) -> None: ...


async def test_an_external_change_is_picked_up_and_a_wrong_one_is_not(console: Console, hook: WebhookReceiver) -> None:
    async with console.engine() as engine:
        await console.step(engine, down=True)
        await console.step(engine, down=True)
        valid = console.rules.read_text()
        console.rules.write_text("[rules.node-down]\nkind = 'x'\n")
        await console.step(engine, down=True)
        assert "kind: 'x' must be one of" in engine.rule_problems[0]
        assert len(engine.alarms(AlarmStatus.FIRING)) == 1
    async with console.engine() as engine:
        await console.step(engine, down=True)
        assert engine.rule_problems, "it starts nevertheless, with the defaults"
        console.rules.write_text(valid + "\n[rules.quiet]\nkind = 'no_quorum'\nenabled = false\n")
        await console.step(engine, down=True)
        assert not engine.rule_problems
        console.rules.write_text(valid.replace('kind = "node_down"', 'kind = "node_down"\nenabled = false'))
        await console.step(engine, down=True)
        assert engine.alarms(AlarmStatus.FIRING) == []
        assert (await engine.book.events(1))[0].change == "removed"


async def test_a_rule_is_edited_and_reset(console: Console) -> None:
    async with console.engine() as engine:
        await engine.set_rule(AlarmRule(name="disk-used", kind=RuleKind.DISK_USED, above=0.5))
        assert engine.settings.rules["disk-used"].above == 0.5
        await engine.remove_rule("disk-used")
        assert engine.settings.rules["disk-used"].above == 0.9


async def test_a_clock_that_jumps_does_no_harm(console: Console, hook: WebhookReceiver) -> None:
    async with console.engine() as engine:
        await console.step(engine, down=False)
        await engine.book.silence("*", "*", 1e9, "", "ann")
        until_s = engine.book.silences[0].until_s
        for jumped_s in (-500_000, 500_000):
            jumped = sample(console.second + 10, nodes=(node(1), node(2, NodeState.FENCED)))
            console.second += 10
            await engine.step(msgspec.structs.replace(jumped, at_s=jumped.at_s + jumped_s))
        assert engine.book.silences[0].until_s == pytest.approx(until_s + 500_000)
        assert engine.alarms(AlarmStatus.FIRING)
    assert hook.taken == []


async def test_a_clock_set_forward_by_days_deletes_no_alarms(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoSampler, "clock", "This machine's clock was set forward by 100 days")
    async with console.engine() as engine:
        await console.step(engine, down=True)
        await console.step(engine, down=True)
        console.second = engine._cleaned_s
        await console.step(engine, down=True, passed_s=100 * 86_400)
        assert len(await engine.book.events(10)) == 1
        monkeypatch.undo()
        await console.step(engine, down=True)
        assert await engine.book.events(10) == []


async def test_a_database_that_fails_does_not_stop_the_alarms(
    console: Console, hook: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console.engine() as engine:
        write = AlarmStore.write

        def fail(*_: object, **__: object) -> None:
            raise HistoryError("The alarms cannot be written: disk full")

        monkeypatch.setattr(AlarmStore, "write", fail)
        await console.step(engine, down=True)
        await console.step(engine, down=True)
        await delivered(engine)
        assert engine.problem == "The alarms cannot be written: disk full"
        assert len(hook.taken) == 1
        monkeypatch.setattr(AlarmStore, "write", write)
        await engine.book.silence("x", "*", 60, "", "ann")
        assert not engine.problem
    async with console.engine() as engine:
        assert len(engine.alarms(AlarmStatus.FIRING)) == 1, "written with the next change"


async def test_a_test_is_sent_at_once_and_kept(console: Console, hook: WebhookReceiver) -> None:
    async with console.engine() as engine:
        assert await engine.test("hook") == ""
        hook.answers = [(403, b"")]
        assert "403" in await engine.test("hook")
        assert await engine.test("other") == "there is no channel other any more"
        assert {one.status for one in await engine.book.deliveries(5)} == {
            DeliveryStatus.DELIVERED,
            DeliveryStatus.FAILED,
        }


def test_the_history_is_bounded_and_a_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlog.console.alarms import store as module

    monkeypatch.setattr(module, "ROWS_MAX", 10)
    database = HistoryDatabase(f"sqlite:///{tmp_path}/a.db")
    store = AlarmStore(database)
    events = [
        AlarmEvent(at_s=second, change="fired", rule="r", subject=(), severity="warning", summary="")
        for second in range(100)
    ]
    store.write(events=events)
    store.clean(100)
    assert [one.at_s for one in store.events(100)] == list(range(99, 89, -1))
    store.clean(98 + module.KEPT_S)
    assert [one.at_s for one in store.events(100)] == [99]
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alarm_schema SET version = 99"))
    with pytest.raises(HistoryError, match="newer release"):
        AlarmStore(database)
    database.close()


PAGE = b"""# HELP streamlog_log_sync_duration_seconds x
# TYPE streamlog_log_sync_duration_seconds histogram
streamlog_build_info{version="1",node_id="2"} 1.0
streamlog_log_sync_duration_seconds_bucket{log_dir="/a",le="0.1"} 90.0
streamlog_log_sync_duration_seconds_bucket{log_dir="/a",le="1.0"} 100.0
streamlog_log_sync_duration_seconds_bucket{log_dir="/a",le="+Inf"} 100.0
streamlog_other 1
"""


def test_sync_latency_is_the_quantile_of_what_came_between() -> None:
    assert parse(PAGE) == Scrape(2, {"/a": {0.1: 90, 1.0: 100, float("inf"): 100}})
    for wrong in (b"", b"\xff", b"streamlog_build_info{} 1", PAGE.replace(b"90.0", b"x")):
        with pytest.raises(ValueError):  # noqa: PT011  from several libraries
            parse(wrong)
    assert quantile(0.99, {}, {0.1: 90, 1.0: 100, float("inf"): 100}) == pytest.approx(0.91)
    assert quantile(0.99, {0.1: 90, 1.0: 100}, {0.1: 190, 1.0: 200}) == pytest.approx(0.099)
    assert quantile(0.5, {1.0: 5}, {1.0: 5}) is None
    assert quantile(0.99, {}, {1.0: 0, float("inf"): 5}) == 1.0
    syncs = SyncLatencies({})
    counts = parse(PAGE).buckets["/a"]
    syncs.add("u", 0, Scrape(2, {"/a": counts}))
    assert syncs.p99_s(1) == ({}, frozenset()), "one scrape has no time span"
    syncs.add("u", 15, Scrape(2, {"/a": {bound: count + 100 for bound, count in counts.items()}}))
    found, known = syncs.p99_s(20)
    assert found[2, "/a"] <= 0.1
    assert known == {2}
    assert syncs.p99_s(1000)[1] == frozenset(), "stale"
    syncs.add("u", 30, Scrape(2, {"/a": counts}))
    assert syncs.p99_s(31)[1] == frozenset(), "the node restarted"


async def test_a_sync_latency_alarm_ends_when_no_metrics_are_scraped_any_more(console: Console) -> None:
    url, inf = "http://127.0.0.1:1/metrics", float("inf")
    console.rules.write_text(f'metrics = ["{url}"]\n[rules.sync-latency]\nkind = "sync_latency"\nfor = "0s"\n')
    async with console.engine() as engine:
        for count in (0.0, 100.0):
            engine._syncs.add(url, console.second + count / 10, Scrape(2, {"/a": {0.1: 0.0, 10.0: count, inf: count}}))
        await console.step(engine, down=False)
        assert [one.subject for one in engine.alarms(AlarmStatus.FIRING)] == [("node", "2", "log_dir", "/a")]
        console.rules.write_text("'")
        for _ in range(3):
            await console.step(engine, down=False, passed_s=60)
        assert engine.alarms(AlarmStatus.FIRING), "the node is not scraped at the moment"
        console.rules.unlink()
        for _ in range(3):
            await console.step(engine, down=False, passed_s=60)
        assert not engine.alarms(AlarmStatus.FIRING)


def test_sync_latency_of_a_node_that_serves_https_to_holders_of_a_certificate(tmp_path: Path) -> None:
    rig = ServedHttps(tmp_path)
    rig.own = {"listener.name.https.ssl.client.auth": "required"}
    admin = client_settings(rig.authority.directory, "scraper")
    trusting = {**admin, "ssl.truststore.location": str(Authority.create(tmp_path / "other").directory / "ca.crt")}

    def test() -> None:
        assert asyncio.run(problem(f"https://localhost:{rig.port}/metrics", admin)).startswith("not a page of metrics")
        refused = asyncio.run(problem(f"https://localhost:{rig.port}/metrics", trusting))
        assert refused.startswith("its certificate is not accepted: ")

    rig.run(test)


async def problem(url: str, settings: Mapping[str, object]) -> str:
    """Of the first scrape."""
    scraped = asyncio.Event()

    class Scraping(SyncLatencies):
        async def _scrape(self, client: httpx.AsyncClient, url: str) -> None:
            await super()._scrape(client, url)
            scraped.set()

    syncs = Scraping(settings)
    running = asyncio.create_task(syncs.run([url]))
    async with asyncio.timeout(60):
        await scraped.wait()
    running.cancel()
    return syncs.problems[url]


async def test_alarms_are_kept_in_a_file_that_replaces_the_history(console: Console, hook: WebhookReceiver) -> None:
    async with console.engine() as engine:
        for _ in range(3):
            await console.step(engine, down=True)
        await engine.book.silence("*", "*", 1e9, "", "me")
        (console.directory / "history.db").unlink()
        console.database.check()
        await console.step(engine, down=True)
    async with console.engine() as engine:
        assert [one.rule for one in engine.alarms(AlarmStatus.FIRING)] == ["node-down"]
        assert len(engine.book.silences) == 1
