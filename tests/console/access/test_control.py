"""Logins, sessions, users and the audit log without a server: virtual time, a real database."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from streamlog.console.access.roles import UserRole

pytest.importorskip("sqlalchemy", reason="streamlog[console] is not installed")
pytest.importorskip("argon2", reason="streamlog[console] is not installed")

from argon2 import PasswordHasher
from sqlalchemy import Engine, create_engine, text

from streamlog.access import throttle
from streamlog.access.throttle import LoginThrottle
from streamlog.console.access import audit as audit_module
from streamlog.console.access import database, sessions, users
from streamlog.console.access.audit import STOPPED, UNDER_WAY, AuditFilter, AuditLog, Kind
from streamlog.console.access.caller import User, acting_as, current_user, may, permitted
from streamlog.console.access.control import Access, LoginRefused
from streamlog.console.access.database import AccessError, opened
from streamlog.console.access.roles import Action
from streamlog.console.access.sessions import LIFETIME_S, UserSessions
from streamlog.console.access.users import Users
from streamlog.errors import InvalidRequestError, UnknownServerError

PASSWORD = "correct horse"
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)  # KiB; the tests are not about its cost


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    found = opened(tmp_path, "")
    yield found
    found.dispose()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(engine: Engine, clock: Clock) -> Iterator[Access]:
    known = Users(engine, CHEAP)
    for role in UserRole:
        known.add(role.label, PASSWORD, role)
    found = Access(known, AuditLog(engine), required=True, now_s=clock)
    yield found
    found.close()


# -- users


def test_users_are_kept_without_their_passwords(engine: Engine, tmp_path: Path) -> None:
    known = Users(engine)
    known.add("alice", PASSWORD, UserRole.ADMIN)
    found = known.check("alice", PASSWORD)
    assert found is not None
    assert (found.name, found.role) == ("alice", UserRole.ADMIN)
    assert known.check("alice", PASSWORD.upper()) is known.check("bob", PASSWORD) is known.check("", "") is None
    assert known.check("alice", "x" * 100_000) is known.check("alice", "\ud800") is None
    engine.dispose()
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert PASSWORD.encode() not in files
    assert b"$argon2id$" in files
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_each_change_changes_the_stamp(engine: Engine) -> None:
    known = Users(engine, CHEAP)
    known.add("alice", PASSWORD, UserRole.ADMIN)
    stamps = [known.list()[0].stamp]
    known.set_role("alice", UserRole.VIEWER)
    stamps.append(known.list()[0].stamp)
    known.set_password("alice", "another one")
    stamps.append(known.list()[0].stamp)
    known.delete("alice")
    known.add("alice", "another one", UserRole.VIEWER)
    stamps.append(known.list()[0].stamp)
    assert len(set(stamps)) == 4
    assert known.check("alice", PASSWORD) is None


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "a\n", "ünï", "oidc:x", "../x"])
def test_names(engine: Engine, name: str) -> None:
    with pytest.raises(AccessError, match="not a user name"):
        Users(engine, CHEAP).add(name, PASSWORD, UserRole.VIEWER)


def test_what_is_refused_of_users(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Users(engine, CHEAP)
    for password in ("short", "x" * 1_025, "\ud800" * 8):
        with pytest.raises(AccessError, match="password"):
            known.add("alice", password, UserRole.VIEWER)
    known.add("alice", PASSWORD, UserRole.VIEWER)
    with pytest.raises(AccessError, match="exists"):
        known.add("alice", PASSWORD, UserRole.ADMIN)
    for change in (known.delete, lambda name: known.set_role(name, UserRole.ADMIN)):
        with pytest.raises(AccessError, match="no user 'bob'"):
            change("bob")
    monkeypatch.setattr(users, "USERS_MAX", 1)
    with pytest.raises(AccessError, match="maximum"):
        known.add("bob", PASSWORD, UserRole.VIEWER)


# -- the database


def test_a_newer_schema_is_refused_and_an_older_one_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, "").begin() as connection:
        connection.execute(text("INSERT INTO users VALUES ('alice', 'x', 3, 1)"))
    added = (*database.MIGRATIONS, lambda connection: connection.execute(text("ALTER TABLE users ADD mail TEXT")))
    monkeypatch.setattr(database, "MIGRATIONS", added)
    for _ in range(2):
        with opened(tmp_path, "").connect() as connection:
            assert connection.execute(text("SELECT name, mail FROM users")).all() == [("alice", None)]
    monkeypatch.undo()
    with pytest.raises(AccessError, match="newer release"):
        opened(tmp_path, "")


def test_a_corrupt_database_is_neither_moved_nor_replaced(tmp_path: Path) -> None:
    """Without users, the console would be open to everyone."""
    path = tmp_path / database.ACCESS_FILE
    path.write_bytes(b"no database at all, but long enough to be read as a page" * 100)
    before = path.read_bytes()
    with pytest.raises(AccessError, match="cannot be opened"):
        opened(tmp_path, "")
    assert path.read_bytes() == before


def test_a_secret_in_the_url_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        opened(tmp_path, f"sqlite://me:hunter2@/{tmp_path}/no/such/file")
    assert "hunter2" not in str(caught.value)


# -- sessions


def test_a_session_ends_with_time_change_and_logout(clock: Clock) -> None:
    closed: list[str] = []
    kept = UserSessions(clock)
    tokens = {}
    for name in ("alice", "bob", "carol"):
        tokens[name], session = kept.open(User(name, UserRole.VIEWER), 7)
        session.add_closer(partial(closed.append, name))
    assert kept.find("x") is kept.find("") is None
    kept.end_stale({"alice": 7, "bob": 8})
    assert sorted(closed) == ["bob", "carol"]
    assert kept.find(tokens["bob"]) is None
    found = kept.find(tokens["alice"])
    assert found is not None
    clock.now_s += LIFETIME_S
    assert kept.find(tokens["alice"]) is None
    assert found.ended
    assert len(closed) == 3
    kept.end_stale({"alice": 7})
    assert len(kept) == 0


def test_sessions_are_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = UserSessions(clock)
    first = [kept.open(User("alice", UserRole.VIEWER), 1)[0] for _ in range(sessions.PER_USER_MAX + 1)]
    assert kept.find(first[0]) is None
    assert kept.find(first[1]) is not None
    assert len(kept) == sessions.PER_USER_MAX
    monkeypatch.setattr(sessions, "SESSIONS_MAX", sessions.PER_USER_MAX)
    kept.open(User("bob", UserRole.VIEWER), 1)
    assert kept.find(first[1]) is None
    assert len(kept) == sessions.PER_USER_MAX


# -- throttle


def test_pauses_grow_by_user_and_by_address(clock: Clock) -> None:
    slow = LoginThrottle(clock)
    waits = []
    for _ in range(12):
        slow.failed("alice", "10.0.0.1")
        waits.append(slow.wait_s("alice", "10.0.0.2"))
    assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert slow.wait_s("bob", "10.0.0.1") == 4
    assert slow.wait_s("bob", "10.0.0.2") == 0
    clock.now_s += 31
    assert slow.wait_s("alice", "10.0.0.1") == 0
    clock.now_s += throttle.FORGOTTEN_AFTER_S
    slow.failed("alice", "10.0.0.1")
    assert slow.wait_s("alice", "10.0.0.1") == 0


def test_a_known_password_does_not_pay_for_guesses(clock: Clock) -> None:
    slow = LoginThrottle(clock)
    for _ in range(12):
        slow.failed("victim", "10.0.0.1")
        clock.now_s += 60
        slow.failed("mine", "10.0.0.1")
        slow.succeeded("mine", "10.0.0.1")
    slow.failed("victim", "10.0.0.1")
    assert slow.wait_s("other", "10.0.0.1") > 0


def test_one_subscriber_has_a_network_of_ipv6(clock: Clock) -> None:
    slow = LoginThrottle(clock)
    for number in range(12):
        slow.failed(f"u{number}", f"2001:db8::{number}")
    assert slow.wait_s("x", "2001:db8::ffff") > 0
    assert slow.wait_s("x", "2001:db8:0:1::1") == 0


def test_the_throttles_memory_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "ENTRIES_MAX", 10)
    slow = LoginThrottle(clock)
    for number in range(100):
        slow.failed(f"u{number}", f"10.0.{number}.1")
    assert len(slow) == 10


# -- the audit log


def test_each_kind_is_bounded_on_its_own(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "KEPT", {Kind.CHANGE: 3, Kind.REFUSAL: 2, Kind.LOGIN: 2})
    log = AuditLog(engine)
    for number in range(5):
        log.add(Kind.CHANGE, "a", "", "create a topic", f"topic {number}", "done")
    for number in range(195):
        log.add(Kind.LOGIN, "a", "", "log in", str(number), "refused")
    assert [one.target for one in log.lines(AuditFilter(kind="change"))] == ["topic 4", "topic 3", "topic 2"]
    assert [one.target for one in log.lines(AuditFilter(kind="login"))] == ["194", "193"]


def test_lines_that_cannot_be_cleaned_are_an_error_of_the_audit_log(engine: Engine) -> None:
    log = AuditLog(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE audit"))
    with pytest.raises(AccessError, match="audit log cannot be read or written: no such table"):
        log.clean()


def test_filters_and_pages(engine: Engine) -> None:
    at_s = 0.0
    log = AuditLog(engine, lambda: at_s)
    for number in range(10):
        at_s = float(number)
        log.add(Kind.CHANGE, "ab"[number % 2], "", "create a topic", f"topic 1{number}%", "done")
    assert [one.target for one in log.lines(AuditFilter(who="b"), limit=2)] == ["topic 19%", "topic 17%"]
    third = log.lines(AuditFilter())[2]
    assert [one.target for one in log.lines(AuditFilter(), before=third.id, limit=1)] == ["topic 16%"]
    assert len(log.lines(AuditFilter(text="TOPIC 1"))) == 10
    assert len(log.lines(AuditFilter(text="3%"))) == 1
    assert len(log.lines(AuditFilter(text="_"))) == 0
    assert len(log.lines(AuditFilter(since_ms=8_000))) == 2


def test_a_change_that_the_console_did_not_see_end(engine: Engine) -> None:
    AuditLog(engine).add(Kind.CHANGE, "a", "", "create a topic", "topic x", UNDER_WAY)
    assert AuditLog(engine).lines(AuditFilter())[0].result == STOPPED


# -- together


def lines(access: Access) -> list[tuple[str, str, str, str, str]]:
    return [
        (one.kind, one.who, one.action, one.target, one.result) for one in reversed(access._audit.lines(AuditFilter()))
    ]


async def test_a_login_its_refusals_and_its_lines(access: Access) -> None:
    for name in ("viewer", "my-password"):
        with pytest.raises(LoginRefused, match="wrong") as caught:
            await access.log_in(name, "wrong one", "10.0.0.1")
        assert caught.value.status == 401
    token = await access.log_in("viewer", PASSWORD, "10.0.0.1")
    session = access.session(token)
    assert session is not None
    assert session.user == User("viewer", UserRole.VIEWER)
    await access.log_out(session, "10.0.0.1")
    assert access.session(token) is None
    assert lines(access) == [
        ("login", "viewer", "log in", "", "refused"),
        ("login", "(unknown)", "log in", "", "refused"),
        ("login", "viewer", "log in", "as viewer", "done"),
        ("login", "viewer", "log out", "", "done"),
    ]


@pytest.mark.parametrize("role", UserRole)
@pytest.mark.parametrize("action", Action)
async def test_each_action_with_each_role(access: Access, action: Action, role: UserRole) -> None:
    from streamlog.console.access.roles import LEAST_ROLE

    _, session = access._sessions.open(User(role.label, role), None)
    done = False
    with acting_as(access.caller(session, "10.0.0.1")):
        assert may(action) == (role >= LEAST_ROLE[action])
        if role >= LEAST_ROLE[action]:
            async with permitted(action, "x"):
                assert lines(access)[-1][-1] == UNDER_WAY
                done = True
        else:
            with pytest.raises(InvalidRequestError, match=f"{role.label} may not {action.value}"):
                async with permitted(action, "x"):
                    done = True
    result = ("change", role.label, action.value, "x", "done")
    refused = ("refusal", role.label, action.value, "x", f"refused: role {role.label}")
    assert lines(access) == [result if done else refused]


async def test_no_action_without_a_session(access: Access) -> None:
    token = await access.log_in("admin", PASSWORD, "")
    session = access.session(token)
    assert session is not None
    with acting_as(access.caller(session, "")):
        assert current_user().name == "admin"
        access._users.set_role("admin", UserRole.ADMIN)  # as another process does
        with pytest.raises(InvalidRequestError, match="log in again"):
            async with permitted(Action.TOPIC_DELETE, "topic x"):
                raise AssertionError
        with pytest.raises(InvalidRequestError, match="log in again"):
            current_user()
        assert not may(Action.VIEW)
    assert lines(access)[-1] == ("refusal", "admin", "delete a topic", "topic x", "refused: session ended")


async def test_a_failure_is_recorded_by_its_code_alone(access: Access) -> None:
    _, session = access._sessions.open(User("admin", UserRole.ADMIN), None)
    with acting_as(access.caller(session, "")):
        with pytest.raises(UnknownServerError):
            async with permitted(Action.TOPIC_CONFIG, "topic x"):
                raise UnknownServerError("secret value")
        with pytest.raises(ZeroDivisionError):
            async with permitted(Action.TOPIC_CONFIG, "topic x"):
                raise ZeroDivisionError("secret value")
    assert [one[-1] for one in lines(access)] == ["failed: UNKNOWN_SERVER_ERROR", "failed: ZeroDivisionError"]


async def test_what_cannot_be_recorded_is_not_done(access: Access, engine: Engine) -> None:
    _, session = access._sessions.open(User("admin", UserRole.ADMIN), None)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE audit"))
    with acting_as(access.caller(session, "")), pytest.raises(InvalidRequestError, match="Nothing was changed"):
        async with permitted(Action.TOPIC_DELETE, "topic x"):
            raise AssertionError


async def test_without_users_everyone_is_admin_until_there_is_one(engine: Engine) -> None:
    known = Users(engine, CHEAP)
    access = Access(known, AuditLog(engine), required=False)
    session = access.session("")
    assert session is not None
    with acting_as(access.caller(session, "127.0.0.1")):
        async with permitted(Action.TOPIC_DELETE, "topic x"):
            pass
        known.add("alice", PASSWORD, UserRole.ADMIN)
        with pytest.raises(InvalidRequestError, match="log in again"):
            async with permitted(Action.TOPIC_DELETE, "topic x"):
                raise AssertionError
    assert access.session("") is None
    assert lines(access)[0] == ("change", "local", "delete a topic", "topic x", "done")
    access.close()


def test_an_engine_of_another_database_is_used(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    Users(opened(tmp_path, url)).add("alice", PASSWORD, UserRole.ADMIN)
    with create_engine(url).connect() as connection:
        assert connection.execute(text("SELECT name FROM users")).scalar() == "alice"
    assert not (tmp_path / database.ACCESS_FILE).exists()
