"""What a request passes before a page: bodies, embedding by other sites, numbers of pages and websockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="streamlog[console] is not installed")
pytest.importorskip("argon2", reason="streamlog[console] is not installed")

from streamlog.console.access import control
from streamlog.console.access.audit import AuditLog
from streamlog.console.access.control import Access
from streamlog.console.access.database import AccessError, opened
from streamlog.console.access.gate import BODY_BYTES_MAX, PAGES_MAX, WEBSOCKETS_MAX, Message, RequestGate, Scope
from streamlog.console.access.users import Users

HOST = "console.example"
OWN = {"origin": f"http://{HOST}"}


@pytest.fixture
def access(tmp_path: Path) -> Iterator[Access]:
    engine = opened(tmp_path, "")
    found = Access(Users(engine), AuditLog(engine), required=False)
    yield found
    found.close()


class Tried:
    """One request: `reached` the application, or `status`."""

    def __init__(self) -> None:
        self.reached = False
        self.status = 0
        self.closed = 0


async def tried(
    access: Access, method: str = "GET", headers: dict[str, str] | None = None, *, path: str = "/", pages: int = 0
) -> Tried:
    found = Tried()

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        found.reached = True

    async def receive() -> Message:
        return {"type": "websocket.connect" if method == "WEBSOCKET" else "http.request"}

    async def send(message: Message) -> None:
        found.status = message.get("status", found.status)
        found.closed = message.get("code", found.closed)

    scope: Scope = {
        "type": "websocket" if method == "WEBSOCKET" else "http",
        "method": method,
        "path": path,
        "scheme": "ws" if method == "WEBSOCKET" else "http",
        "headers": [(name.encode(), value.encode()) for name, value in {"host": HOST, **(headers or {})}.items()],
        "client": ("10.0.0.9", 1),
    }
    await RequestGate(app, app, access, frozenset(), pages=lambda _: pages)(scope, receive, send)
    return found


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-length": str(BODY_BYTES_MAX)}, 0),
        ({"content-length": str(BODY_BYTES_MAX + 1)}, 413),
        ({"content-length": "9" * 400}, 413),
        ({"content-length": "-1"}, 413),
        ({"content-length": "\u0665"}, 413),
        ({"transfer-encoding": "chunked"}, 411),
    ],
)
@pytest.mark.parametrize("path", ["/", "/_nicegui/client/x/upload/1", "/login"])
async def test_a_body_is_bounded(access: Access, path: str, headers: dict[str, str], status: int) -> None:
    found = await tried(access, "POST", {**OWN, **headers}, path=path)
    assert (found.status, found.reached) == (status, status == 0)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "target", "reached"),
    [
        ("navigate", "document", True),  # a link
        ("navigate", "iframe", False),
        ("no-cors", "image", False),
        ("cors", "empty", False),
        ("", "", False),
    ],
)
async def test_another_sites_page_may_link_here_and_nothing_else(
    access: Access, site: str, mode: str, target: str, reached: bool
) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": target}
    found = await tried(access, headers=headers)
    assert (found.reached, found.status) == (reached, 0 if reached else 403)


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_the_consoles_own_pages_load_what_they_need(access: Access, site: str) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
    assert (await tried(access, headers=headers)).reached


async def test_pages_of_a_session_are_bounded(access: Access) -> None:
    assert (await tried(access, pages=PAGES_MAX - 1)).reached
    assert (await tried(access, pages=PAGES_MAX)).status == 429
    for part in ("/_nicegui/3.0/static/vue.js", "/_nicegui_ws/socket.io/"):
        assert (await tried(access, pages=PAGES_MAX, path=part)).reached, "what the open ones need"


async def test_websockets_of_a_session_are_bounded(access: Access) -> None:
    session = access.session("")
    assert session is not None
    for number in range(WEBSOCKETS_MAX):
        session.add_closer(lambda number=number: None)  # type: ignore[misc]  # another one each
    assert (await tried(access, "WEBSOCKET", OWN)).closed == 1008
    assert (await tried(access)).reached
    assert session.open == WEBSOCKETS_MAX, "none is left behind"


@pytest.mark.parametrize(("required", "reached", "status"), [(False, True, 0), (True, False, 503)])
async def test_users_that_cannot_be_read(tmp_path: Path, required: bool, reached: bool, status: int) -> None:
    """Without users the console runs on; a user's session may have ended since. Neither goes to the login and back."""
    engine = opened(tmp_path, "")
    access = Access(Users(engine), AuditLog(engine), required=required)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE users")
    for method in ("GET", "WEBSOCKET"):
        found = await tried(access, method, OWN)
        assert found.reached is reached
    assert (await tried(access)).status == status
    access.close()


async def test_users_that_cannot_be_read_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = opened(tmp_path, "")
    access = Access(Users(engine), AuditLog(engine), required=False)
    left = iter([True, True, True, False, False])

    async def refresh() -> None:
        found = next(left, None)
        if found is None:
            raise LookupError  # the end of the test
        if found:
            raise AccessError("The users cannot be read or written: connection refused.")

    monkeypatch.setattr(control, "WATCH_S", 0.0)
    monkeypatch.setattr(access, "refresh", refresh)
    with pytest.raises(LookupError):
        await access.run()
    assert caplog.messages == [
        "The users cannot be read or written: connection refused.",
        "The users can be read again.",
    ]
    access.close()
