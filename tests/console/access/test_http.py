"""Each page and each request, without a session and with each role; the process as it runs."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nicegui", reason="streamlog[console] is not installed")
pytest.importorskip("argon2", reason="streamlog[console] is not installed")

from streamlog.console import pages
from tests.console.access.running import COMMAND, PASSWORD, RunningConsole, user

pytestmark = [pytest.mark.process]
PAGES = (
    *("/", "/brokers", "/brokers/1", "/topics", "/topics/x", "/records", "/groups", "/groups/x", "/transactions"),
    *("/quorum", "/operations", "/quotas", "/alarms", "/audit"),
)
ROLES = ("viewer", "operator", "admin")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("console")
    for role in ROLES:
        assert user(found, "add", role, "--role", role).returncode == 0
    return found


@pytest.fixture(scope="module")
def console(data: Path) -> Iterator[RunningConsole]:
    with RunningConsole(data) as found:
        yield found


@pytest.fixture(scope="module")
def sessions(console: RunningConsole) -> dict[str, str]:
    return {role: console.session(role) for role in ROLES}


def test_all_pages_are_tried_here() -> None:
    written = "".join(path.read_text() for path in Path(pages.__file__).parent.rglob("*.py"))
    found = re.findall(r'@(?:ui\.page|view)\("([^"]+)"', written)
    assert sorted(
        one.replace("{node_id}", "1").replace("{name}", "x").replace("{name:path}", "x") for one in found
    ) == (sorted(PAGES))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_without_a_session_leads_to_the_login(console: RunningConsole, path: str) -> None:
    for cookie in ("", "streamlog_session=forged", "streamlog_session="):
        answer = console.request("GET", path, cookie=cookie)
        assert (answer.status, answer.body) == (303, "")
        assert answer.headers["location"].startswith("/login?next=%2F")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_with_a_session(console: RunningConsole, sessions: dict[str, str], path: str, role: str) -> None:
    answer = console.request("GET", path, cookie=sessions[role])
    assert answer.status == 200
    assert ("it needs role admin" in answer.body) == (path == "/audit" and role != "admin")
    assert ("Download as JSON lines" in answer.body) == (path == "/audit" and role == "admin")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", [*PAGES, "/_nicegui/client", "/login"])
def test_a_change_without_an_origin_of_its_own_is_refused(
    console: RunningConsole, sessions: dict[str, str], method: str, path: str
) -> None:
    for origin in ("http://evil.example", "null", f"https://{console.host}", "http://127.0.0.1"):
        answer = console.request(method, path, cookie=sessions["admin"], headers={"Origin": origin})
        assert answer.status == 403
    if method != "POST":
        assert console.request(method, path, cookie=sessions["admin"]).status == 403, "no Origin at all"


def test_a_foreign_host_is_refused(console: RunningConsole, sessions: dict[str, str]) -> None:
    for path in ("/", "/login"):
        answer = console.request("GET", path, cookie=sessions["admin"], headers={"Host": "evil.example"})
        assert answer.status == 403


@pytest.mark.parametrize("path", ["/_nicegui/3.0/static/vue.js", "/_nicegui_ws/socket.io/?EIO=4&transport=polling"])
def test_nothing_else_is_served_without_a_session(console: RunningConsole, path: str) -> None:
    assert console.request("GET", path).status == 401 if path.startswith("/_nicegui/") else 303


def websocket(console: RunningConsole, cookie: str, origin: str | None) -> str:
    """The status line of the handshake."""
    host, port = console.host.split(":")
    lines = [
        "GET /_nicegui_ws/socket.io/?EIO=4&transport=websocket HTTP/1.1",
        f"Host: {console.host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Cookie: {cookie}",
        *([] if origin is None else [f"Origin: {origin}"]),
    ]
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while b"\r\n" not in answer:  # what follows the head may be in the same packet: frames, which are no text
            answer += connection.recv(4096) or b"\r\n"
        return answer.partition(b"\r\n")[0].decode()


def test_a_websocket_needs_a_session_and_the_consoles_origin(console: RunningConsole, sessions: dict[str, str]) -> None:
    own = f"http://{console.host}"
    assert " 101 " in websocket(console, sessions["viewer"], own)
    assert " 403 " in websocket(console, sessions["viewer"], "http://evil.example")
    assert " 403 " in websocket(console, sessions["viewer"], None)
    assert " 403 " in websocket(console, "streamlog_session=forged", own)


def test_the_cookie_and_the_headers(console: RunningConsole) -> None:
    answer = console.log_in("viewer", target="/topics?x=1")
    assert (answer.status, answer.headers["location"]) == (303, "/topics?x=1")
    cookie = answer.cookies[0].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "max-age=43200" in cookie
    assert "secure" not in cookie
    for path in ("/login", "/"):
        headers = console.request("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", "/login"]
)
def test_a_login_never_leads_elsewhere(console: RunningConsole, target: str) -> None:
    assert console.log_in("viewer", target=target).headers["location"] == "/"


def test_wrong_logins(console: RunningConsole) -> None:
    wrong = console.log_in("viewer", "wrong password")
    unknown = console.log_in("<b>unknown</b>")
    assert (wrong.status, unknown.status) == (401, 401)
    assert wrong.body.count("The name or the password is wrong.") == 1
    assert "<b>" not in unknown.body
    assert not any("session" in cookie for cookie in wrong.cookies + unknown.cookies)


def test_a_form_without_its_token_is_refused(console: RunningConsole) -> None:
    body = f"name=viewer&password={PASSWORD}&token=x"
    assert console.request("POST", "/login", body=body).status == 403
    assert console.request("POST", "/login", body=body, cookie="streamlog_login=y").status == 403
    assert console.request("POST", "/login", body="x" * 10_000, cookie="streamlog_login=y").status == 413
    assert console.request("POST", "/login", body="%ff=%ff", cookie="streamlog_login=y").status in (400, 403)


def test_guessing_is_slowed_down(data: Path) -> None:
    with RunningConsole(data) as console:
        answers = [console.log_in("operator", f"guess {number}") for number in range(12)]
        assert [one.status for one in answers[:5]] == [401] * 5
        refused = [one for one in answers if one.status == 429]
        assert refused
        assert all(int(one.headers["retry-after"]) > 0 for one in refused)
        assert console.log_in("viewer").status == 303, "others may log in"


def test_a_session_ends_with_its_user(console: RunningConsole, data: Path) -> None:
    assert user(data, "add", "short", "--role", "viewer").returncode == 0
    for change in (["role", "short", "admin"], ["password", "short"], ["delete", "short"]):
        cookie = console.session("short")
        assert console.request("GET", "/", cookie=cookie).status == 200
        assert user(data, *change).returncode == 0
        assert console.request("GET", "/", cookie=cookie).status == 303
    assert console.log_in("short").status == 401


def test_without_users_this_machine_needs_none_until_there_is_one(tmp_path: Path) -> None:
    with RunningConsole(tmp_path) as console:
        assert console.request("GET", "/audit").status == 200
        assert console.request("GET", "/login").headers["location"] == "/"
        assert user(tmp_path, "add", "first", "--role", "admin").returncode == 0
        assert console.request("GET", "/audit").status == 303
        assert user(tmp_path, "delete", "first").returncode == 0
        assert console.request("GET", "/audit").status == 303, "it does not open again by itself"


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [COMMAND, "console", "--port", port, "--data", str(tmp_path), "--bootstrap-server", "127.0.0.1:1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"127.0.0.1 port {port}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
