"""X-Forwarded-For and X-Forwarded-Proto: of addresses of --forwarded-from, and of no one else; files of the console."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")
pytest.importorskip("argon2", reason="streamlog[console] is not installed")

from streamlog.access.throttle import FREE
from tests.console.access.running import PASSWORD, Answer, RunningConsole, user

pytestmark = [pytest.mark.process]
PUBLIC = "https://console.example"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    assert user(found, "add", "alice", "--role", "viewer").returncode == 0
    return found


@pytest.fixture(params=["", "10.0.0.1"], ids=["no proxy", "another proxy"])
def direct(request: pytest.FixtureRequest, data: Path) -> Iterator[RunningConsole]:
    """A console to which this address is no proxy."""
    options = ("--forwarded-from", request.param) if request.param else ()
    with RunningConsole(data, *options) as found:
        yield found


def logged_in(console: RunningConsole, name: str, password: str, forwarded: dict[str, str]) -> Answer:
    origin = f"{forwarded.get('X-Forwarded-Proto', 'http')}://{console.host}"
    form = console.request("GET", "/login", headers=forwarded)
    token = SimpleCookie(form.cookies[0])["streamlog_login"].value
    body = urlencode({"token": token, "name": name, "password": password})
    headers = {**forwarded, "Origin": origin}
    return console.request("POST", "/login", cookie=f"streamlog_login={token}", body=body, headers=headers)


def guesses(console: RunningConsole, count: int) -> Iterator[int]:
    """Each by another user, from what claims to be another address."""
    for number in range(count):
        claimed = {"X-Forwarded-For": f"203.0.113.{number}"}
        yield logged_in(console, f"user{number}", "wrong password", claimed).status


def test_a_stranger_chooses_neither_its_address_nor_https(direct: RunningConsole) -> None:
    claimed = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
    form = direct.request("GET", "/login", headers=claimed)
    assert "secure" not in form.cookies[0].lower(), "or the browser would not send it back"
    assert logged_in(direct, "alice", PASSWORD, claimed).status == 403, "its origin is http"
    # The pause doubles with each guess: it becomes longer than a guess takes, however slow the machine is.
    assert 429 in guesses(direct, FREE["address"] + 12)


def test_a_proxy_says_who_its_client_is_and_that_it_uses_https(data: Path) -> None:
    with RunningConsole(data, "--forwarded-from", "127.0.0.0/8", "--public-url", PUBLIC) as console:
        console_host = {"Host": "console.example", "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
        form = console.request("GET", "/login", headers=console_host)
        token = SimpleCookie(form.cookies[0])["streamlog_login"].value
        body = urlencode({"token": token, "name": "alice", "password": PASSWORD})
        answer = console.request(
            "POST",
            "/login",
            cookie=f"streamlog_login={token}",
            body=body,
            headers={**console_host, "Origin": PUBLIC},
        )
        assert answer.status == 303
        cookie = next(one for one in answer.cookies if one.startswith("__Host-streamlog_session="))
        assert "; Secure" in cookie
        value = cookie.split(";")[0]
        assert console.request("GET", "/", cookie=value, headers=console_host).status == 200
        assert console.request("GET", "/", cookie=value).status == 303, "it is a cookie of HTTPS"
        assert 429 not in guesses(console, FREE["address"] + 2), "each client has its own address"


def test_files_are_for_the_user_of_the_console_alone(data: Path) -> None:
    with RunningConsole(data):
        files = [path for path in data.rglob("*") if path.is_file()]
        assert {"access.db", "history.db", "session.key"} <= {path.name for path in files}
        assert {oct(path.stat().st_mode & 0o077) for path in [data, *files]} == {"0o0"}
