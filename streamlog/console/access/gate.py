"""What each request passes before it reaches a page: the server's outermost layer.

    1  its Host and Origin are the console's own (other sites' pages, DNS rebinding)
    2  a change over HTTP, and a websocket, must have an Origin (CSRF); what another site's page loads, other than
       by a link, is refused: it would build a page in the console for each image
    3  its body is bounded, and its length known
    4  /login is served to everyone; everything else needs a session, which has a limit of pages and websockets. While
       the users cannot be read, their sessions are refused; where there are none, pages are served on, and changes are
       refused, since they cannot be recorded
    5  the caller is put in the scope; security headers are added to the response

A websocket is closed when its session ends, and its page goes to the login.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from starlette.requests import cookie_parser

from streamlog.console.access.caller import SCOPE_KEY
from streamlog.console.access.control import Access
from streamlog.console.access.database import AccessError
from streamlog.console.access.sessions import UserSession

LOGIN: Final = "/login"
COOKIE: Final = "streamlog_session"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_STATIC: Final = "/_nicegui/"
_SOCKETS: Final = "/_nicegui_ws/"
_CLOSED: Final = 4401
BODY_BYTES_MAX: Final = 2 << 20
"""A schema file, with what a form adds to it; the UI library itself has no limit of uploads."""
PAGES_MAX: Final = 100
WEBSOCKETS_MAX: Final = 200
"""Open at the same time, of one session."""
GRACE_S: Final = 0.5
"""From the end of a session to the close of its websockets: its page goes to the login, and its events are refused."""
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, browsers send forms with Origin: null
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_POLICY: Final = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    b" img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; object-src 'none';"
    b" frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
)
"""NiceGUI's pages have inline scripts, and compile templates in the browser."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RequestGate:
    """`hosts`: accepted values of Host; empty: any. `public_origin`: of a proxy in front, such as https://console.example.
    `pages`: how many a session has open.
    """

    def __init__(
        self,
        app: App,
        login: App,
        access: Access,
        hosts: frozenset[str],
        public_origin: str = "",
        pages: Callable[[UserSession], int] = lambda _: 0,
    ) -> None:
        self._app = app
        self._login = login
        self._access = access
        self._hosts = hosts
        self._public_origin = public_origin
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        send = _with_headers(send)
        if not self._is_own(scope):
            await _refuse(scope, receive, send, 403, "The console accepts requests of its own pages only.")
            return
        if scope["type"] == "http" and (problem := _problem_of_body(scope)) is not None:
            await _refuse(scope, receive, send, *problem)
            return
        path = str(scope["path"])
        if scope["type"] == "http" and (path == LOGIN or path.startswith(f"{LOGIN}/")):
            await self._login(scope, receive, send)
            return
        try:
            session = await self._session(scope, path)
        except AccessError:
            await _refuse(scope, receive, send, 503, "Sessions cannot be checked now; see the console's log.")
            return
        if session is None:
            await self._to_login(scope, receive, send)
            return
        if self._has_too_many(session, scope, path):
            await _refuse(scope, receive, send, 429, "Too many pages of this session are open: close some.")
            return
        scope[SCOPE_KEY] = self._access.caller(session, address_of(scope))
        if scope["type"] == "websocket":
            await _until_end(self._app, session, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _has_too_many(self, session: UserSession, scope: Scope, path: str) -> bool:
        if scope["type"] == "websocket":
            return session.open >= WEBSOCKETS_MAX
        return not path.startswith((_STATIC, _SOCKETS)) and self._pages(session) >= PAGES_MAX

    def _is_own(self, scope: Scope) -> bool:
        host, origin = header(scope, b"host"), header(scope, b"origin")
        public = urlsplit(self._public_origin).netloc
        if _is_embedded(scope):
            return False
        if self._hosts and host not in self._hosts and host != public:
            return False
        if not origin:
            return scope["type"] == "http" and scope["method"] in _SAFE_METHODS
        secure = scope["scheme"] in ("https", "wss")
        return origin in (f"{'https' if secure else 'http'}://{host}", self._public_origin or None)

    async def _session(self, scope: Scope, path: str) -> UserSession | None:
        """AccessError: there are users, and they cannot be read."""
        if not path.startswith(_STATIC):
            try:
                await self._access.refresh()
            except AccessError:
                if self._access.required:
                    raise
        return self._access.session(session_token(scope))

    async def _to_login(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and not str(scope["path"]).startswith(_STATIC):
            query = scope.get("query_string", b"").decode("latin-1")
            target = quote(f"{scope['path']}{'?' if query else ''}{query}", safe="")
            headers = [(b"location", f"{LOGIN}?next={target}".encode()), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 303, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await _refuse(scope, receive, send, 401, "Log in first.")


async def _until_end(app: App, session: UserSession, scope: Scope, receive: Receive, send: Send) -> None:
    """Runs a websocket until it closes or its session ends."""
    ended = asyncio.Event()
    session.add_closer(ended.set)
    closed = False

    async def receive_until() -> Message:
        if not closed:
            receiving = asyncio.ensure_future(receive())
            await asyncio.wait({receiving, closing}, return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                return receiving.result()
            receiving.cancel()
        return {"type": "websocket.disconnect", "code": _CLOSED}

    async def send_until(message: Message) -> None:
        if not closed:
            await send(message)

    async def close() -> None:
        nonlocal closed
        await ended.wait()
        await asyncio.sleep(GRACE_S)
        closed = True
        await send({"type": "websocket.close", "code": _CLOSED, "reason": "the session has ended"})

    closing = asyncio.ensure_future(close())
    try:
        await app(scope, receive_until, send_until)
    finally:
        closing.cancel()
        session.remove_closer(ended.set)


def _is_embedded(scope: Scope) -> bool:
    """Another site's page loads this as an image, a script or a frame. Old browsers do not say so."""
    if header(scope, b"sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    return header(scope, b"sec-fetch-mode") != "navigate" or header(scope, b"sec-fetch-dest") != "document"


def _problem_of_body(scope: Scope) -> tuple[int, str] | None:
    """A server ends a request whose body is longer than its Content-Length."""
    if header(scope, b"transfer-encoding"):
        return 411, "A request must have a Content-Length."
    length = header(scope, b"content-length")
    if length and (not length.isascii() or not length.isdigit() or int(length[:20]) > BODY_BYTES_MAX):
        return 413, f"A request has at most {BODY_BYTES_MAX:,} bytes."
    return None


def header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def address_of(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def is_secure(scope: Scope) -> bool:
    return scope["scheme"] in ("https", "wss")


def session_cookie(scope: Scope) -> str:
    """Its name: over HTTPS with the prefix that browsers accept from this host over HTTPS only."""
    return f"__Host-{COOKIE}" if is_secure(scope) else COOKIE


def session_token(scope: Scope) -> str:
    return cookie(scope, session_cookie(scope))


def cookie(scope: Scope, name: str) -> str:
    return cookie_parser(header(scope, b"cookie")).get(name, "")


def _with_headers(send: Send) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            added = [*_HEADERS, (b"content-security-policy", _POLICY)]
            message["headers"] = [*message["headers"], *(one for one in added if one[0] not in present)]
        await send(message)

    return send_more


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, text: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    body = f"{text}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
