"""`--database`: history, alarms, users and audit log in a real PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog.console.access.roles import UserRole

pytest.importorskip("sqlalchemy", reason="streamlog[console] is not installed")

from click.testing import CliRunner
from sqlalchemy import text

from streamlog.cli.main import main
from streamlog.console.access import database
from streamlog.console.access.audit import AuditFilter, AuditLog, Kind
from streamlog.console.access.database import AccessError
from streamlog.console.access.users import Users
from streamlog.console.alarms.store import AlarmStore
from streamlog.console.collection.history import TIERS, Point, SampleHistory
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.database_waits import STATEMENT_S
from tests.console.access.running import RunningConsole
from tests.console.postgresql import PASSWORD, PostgreSql, missing, server

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(missing()), reason=missing())]

STOP_S = 30.0
LAG = ("group.lag", "billing\norders")


@pytest.fixture(scope="module")
def running() -> Iterator[PostgreSql]:
    with server() as found:
        yield found


@pytest.fixture
def postgresql(running: PostgreSql) -> PostgreSql:
    """Empty."""
    history = SampleHistory.open(running.url)
    with history.database.engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    history.close()
    return running


def test_history_is_written_read_thinned_and_there_after_a_restart(postgresql: PostgreSql) -> None:
    history = SampleHistory.open(postgresql.url)
    begin_s = 1_800_000_000
    for step in range(120):
        history.write(begin_s + step * 10, {LAG: step})
    assert history.read(LAG, begin_s, begin_s + 30) == [Point(begin_s + 10 * n, n) for n in range(4)]
    minutes = history.read(LAG, begin_s - TIERS[0].kept_s, begin_s + 1_200)
    assert [point.at_s - begin_s for point in minutes] == list(range(0, 1140, 60))
    history.clean(begin_s + TIERS[0].kept_s + 600)
    assert history.read(LAG, begin_s, begin_s + 590) == []
    history.close()
    history = SampleHistory.open(postgresql.url)
    assert history.read(LAG, begin_s + 1_190, begin_s + 1_195)[-1] == Point(begin_s + 1_190, 119)
    history.write(begin_s + 1_190, {LAG: 7})
    assert history.read(LAG, begin_s + 1_190, begin_s + 1_195) == [Point(begin_s + 1_190, 7)]
    assert history.database.size_bytes() == 0
    history.close()


@pytest.mark.parametrize(
    "name", ["g" * 249 + "\n" + "t" * 249, "g" * 5000 + "\nt", "a\0b", "<script>\n\x1b[31m", "\u2028é\n日本"]
)
def test_any_name_is_kept(postgresql: PostgreSql, name: str) -> None:
    history = SampleHistory.open(postgresql.url)
    other = ("group.lag", f"{name}2")
    for at_s, value in ((1000, 5), (1010, 6)):
        history.write(at_s, {("group.lag", name): value, other: 2 * value})
    assert history.read(("group.lag", name), 1000, 1010) == [Point(1000, 5), Point(1010, 6)]
    assert history.read(other, 1000, 1010) == [Point(1000, 10), Point(1010, 12)]
    history.close()


def test_a_database_that_stops_is_reported_and_used_again(postgresql: PostgreSql) -> None:
    history = SampleHistory.open(postgresql.url)
    history.write(1000, {LAG: 5})
    postgresql.stop()
    for use in (lambda: history.write(1010, {LAG: 6}), lambda: history.read(LAG, 0, 2000), lambda: history.clean(1)):
        with pytest.raises(HistoryError) as caught:
            use()
        assert PASSWORD not in str(caught.value)
    with pytest.raises(HistoryError, match="cannot be opened") as refused:
        SampleHistory.open(postgresql.url)
    assert PASSWORD not in str(refused.value)
    postgresql.start()
    history.write(1020, {LAG: 7})
    assert history.read(LAG, 1000, 2000)[-1] == Point(1020, 7)
    history.close()


def test_users_audit_log_and_alarms_share_it(postgresql: PostgreSql, tmp_path: Path) -> None:
    history = SampleHistory.open(postgresql.url)
    engine = database.opened(tmp_path, postgresql.url)
    users, audit, alarms = Users(engine), AuditLog(engine), AlarmStore(history.database)
    users.add("alice", "a long password", UserRole.ADMIN)
    with pytest.raises(AccessError, match="alice"):
        users.add("alice", "a long password", UserRole.VIEWER)
    number = audit.add(Kind.CHANGE, "alice", "127.0.0.1", "delete topic", "orders", "under way")
    audit.set_result(number, "done")
    assert [line.result for line in audit.lines(AuditFilter(text="ORDERS"))] == ["done"]
    stored = alarms.load()
    assert (stored.alarms, stored.queued) == ([], [])
    assert list(tmp_path.iterdir()) == []
    history.close()


def test_a_wrong_url_is_a_message(postgresql: PostgreSql, tmp_path: Path) -> None:
    wrong = postgresql.url.replace(PASSWORD, "wrong-secret")
    for url, reason in (
        (wrong, "password authentication failed"),
        ("postgresql+nodriver://a:wrong-secret@127.0.0.1/x", "nodriver"),
        ("no url", "--database"),
    ):
        done = CliRunner().invoke(main, ["console", "user", "list", "--data", str(tmp_path), "--database", url])
        assert (done.exit_code, "Traceback" in done.output) == (1, False)
        assert reason in done.output
        assert "wrong-secret" not in done.output
    done = CliRunner().invoke(main, ["console", "user", "list", "--data", str(tmp_path), "--database", postgresql.url])
    assert done.exit_code == 0, done.output


def test_statements_are_limited(postgresql: PostgreSql, tmp_path: Path) -> None:
    history = SampleHistory.open(postgresql.url)
    for engine in (history.database.engine, database.opened(tmp_path, postgresql.url)):
        with engine.connect() as connection:
            assert connection.execute(text("SHOW statement_timeout")).scalar() == f"{STATEMENT_S // 60}min"
        engine.dispose()


def test_the_console_stops_while_the_database_does_not_answer(postgresql: PostgreSql, tmp_path: Path) -> None:
    history = SampleHistory.open(postgresql.url)
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with history.database.engine.connect() as lock, history.database.engine.connect() as look:
        with RunningConsole(tmp_path, "--database", postgresql.url):
            lock.execute(text("LOCK TABLE users, points IN ACCESS EXCLUSIVE MODE"))
            while look.execute(waiting).scalar() == 0:
                look.rollback()
            begin_s = time.monotonic()
        assert time.monotonic() - begin_s < STOP_S
    history.close()
