"""The console's HTTP server, for users of this machine.

It has no authentication, so it listens on loopback only. A browser on this machine also runs other sites' pages:
requests with another Host (DNS rebinding) or another Origin (a site that opens our websocket) are refused.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.console.access.caller import SCOPE_KEY
from streamlog.console.access.local import LocalCaller
from streamlog.console.alarms.store import AlarmStore
from streamlog.console.history import SampleHistory

HOST: Final = "127.0.0.1"
CALL_MS: Final = 10_000
UNREACHABLE_S: Final = 3.0
"""The page reports an unreachable cluster when no node has answered for this time."""
RECONNECT_S: Final = 30.0
HISTORY_FILE: Final = "history.db"
SECRET_FILE: Final = "session.key"
ALARMS_FILE: Final = "alarms.toml"
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' ws: wss:;"
        b" frame-ancestors 'none'; base-uri 'self'; form-action 'self'",
    ),
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def serve(
    settings: Mapping[str, object],
    data: Path,
    database: str,
    port: int,
    on_ready: Callable[[str], None],
    alarms: Path | None = None,
) -> None:
    """Runs until a signal. `settings`: of the admin client; `alarms`: the file of alarm rules, by default in `data`.
    OSError where the port or the directory cannot be used; HistoryError.
    """
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    listener = socket.create_server((HOST, port))
    url = f"http://{HOST}:{listener.getsockname()[1]}/"
    history = SampleHistory.open(database or f"sqlite:///{(data / HISTORY_FILE).absolute()}")
    if history.moved_aside:
        on_ready(f"The history was corrupt and is kept as {history.moved_aside}; a new one was created.")
    app = _app(settings, data, history, alarms or data / ALARMS_FILE)
    config = uvicorn.Config(
        _OwnPagesOnly(app, url), log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=1
    )
    on_ready(f"Console: {url} (Ctrl-C stops it)")
    uvicorn.Server(config).run(sockets=[listener])


def _app(settings: Mapping[str, object], data: Path, history: SampleHistory, rules: Path) -> FastAPI:
    os.environ["NICEGUI_STORAGE_PATH"] = str(data / "browser")  # read when nicegui is imported
    from nicegui import ui

    from streamlog.console.alarms.engine import AlarmEngine
    from streamlog.console.pages import (
        alarms,
        brokers,
        groups,
        operations,
        overview,
        quorum,
        records,
        topics,
        transactions,
    )
    from streamlog.console.sampler import ClusterSampler
    from streamlog.console.versions import NodeVersions

    times = {"default.api.timeout.ms": CALL_MS, "request.timeout.ms": CALL_MS}
    admin = AsyncAdmin({**settings, **times}, unreachable_s=UNREACHABLE_S, client_version="streamlog-console")
    sampler = ClusterSampler(admin, history, NodeVersions(settings))
    engine = AlarmEngine(sampler, AlarmStore(history.engine), rules)

    @asynccontextmanager
    async def life(_: FastAPI) -> Any:
        await admin.start()
        watching = [asyncio.create_task(engine.run()), asyncio.create_task(sampler.run())]
        yield
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await engine.close()
        await sampler.close()

    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    overview.register(sampler, engine)
    alarms.register(sampler, engine)
    for page in (brokers, topics, groups, transactions, quorum, operations):
        page.register(sampler)
    records.register(sampler, settings)
    ui.run_with(
        app,
        title="streamlog",
        dark=None,
        storage_secret=_secret(data / SECRET_FILE),
        show_welcome_message=False,
        reconnect_timeout=RECONNECT_S,  # for a shorter gap of the connection, a page is not loaded again
    )
    return app


def _secret(path: Path) -> str:
    """The key that signs the cookie with a browser's colour scheme. OSError."""
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
    return path.read_text()


class _OwnPagesOnly:
    def __init__(self, app: Any, url: str) -> None:
        self._app = app
        port = urlsplit(url).port
        self._hosts = {f"{name}:{port}".encode() for name in (HOST, "localhost")}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if headers.get(b"host") not in self._hosts or (origin is not None and origin not in self._origins):
            await _refuse(scope, receive, send)
            return
        scope[SCOPE_KEY] = LocalCaller((scope.get("client") or ("",))[0])
        await self._app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *_HEADERS]
        await send(message)

    return send_more


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    body = b"The console accepts requests to its own address only.\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
