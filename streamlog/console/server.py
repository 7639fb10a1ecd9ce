"""The console's HTTP server: where it listens, and what it is made of.

Without users it listens on loopback only. A browser on this machine also runs other sites' pages: what a request passes
before it reaches a page is in access/gate.py.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from msgspec import Struct

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.config.settings.client_settings import OAUTHBEARER, SASL_MECHANISM
from streamlog.console.access.audit import AuditLog
from streamlog.console.access.caller import SCOPE_KEY
from streamlog.console.access.control import Access, SessionCaller
from streamlog.console.access.database import AccessError, opened
from streamlog.console.access.gate import RequestGate
from streamlog.console.access.login import CALLBACK, LoginApp, Provider
from streamlog.console.access.sessions import UserSession
from streamlog.console.access.settings import AccessSettings, OidcSettings, is_loopback, load
from streamlog.console.access.users import Users
from streamlog.console.alarms.store import AlarmStore
from streamlog.console.collection.history import SampleHistory
from streamlog.console.connections import HEAD_BYTES_MAX, IDLE_S, bounded_protocol
from streamlog.console.tls import TlsFiles
from streamlog.regular_file import read_regular

HOST: Final = "127.0.0.1"
CALL_MS: Final = 10_000
UNREACHABLE_S: Final = 3.0
"""The page reports an unreachable cluster when no node has answered for this time."""
RECONNECT_S: Final = 30.0
HISTORY_FILE: Final = "history.db"
SECRET_FILE: Final = "session.key"
ALARMS_FILE: Final = "alarms.toml"


class ServerOptions(Struct, frozen=True, kw_only=True):
    """As `streamlogctl console` has them; see docs/console.md."""

    data: Path
    database: str = ""
    host: str = HOST
    port: int = 0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str = ""
    forwarded_from: str = ""
    access_file: Path | None = None
    alarms: Path | None = None  # None: the default file in `data`


def serve(settings: Mapping[str, object], options: ServerOptions, on_ready: Callable[[str], None]) -> None:
    """Runs until a signal. `settings`: of the admin client. OSError where the port or the directory cannot be used;
    HistoryError, AccessError.
    """
    os.umask(0o077)  # what is kept is for this user alone
    data, local = options.data, is_loopback(options.host)
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    rules = AccessSettings() if options.access_file is None else load(options.access_file)
    engine = opened(data, options.database)
    users = Users(engine)
    required = bool(users.list()) or rules.oidc is not None
    if not local and not required:
        raise AccessError(
            f"--host {options.host} needs users, and there are none. Create the first one with\n"
            f"  {_first_user(options)}"
        )
    tls = None
    if options.tls_cert is not None and options.tls_key is not None:
        tls = TlsFiles(options.tls_cert, options.tls_key)
        tls.check()
    listener = socket.create_server(
        (options.host, options.port), family=socket.AF_INET6 if ":" in options.host else socket.AF_INET
    )
    port = listener.getsockname()[1]
    url = f"{'http' if tls is None else 'https'}://{_bracketed(options.host)}:{port}/"
    history = SampleHistory.open(options.database or f"sqlite:///{(data / HISTORY_FILE).absolute()}")
    if history.database.notice:
        on_ready(history.database.notice)
    public = options.public_url.rstrip("/")
    provider = None if rules.oidc is None else _provider(rules.oidc, public or url.rstrip("/"))
    access = Access(users, AuditLog(engine), required=required, rules=rules.values)
    hosts = (
        frozenset(f"{_bracketed(name)}:{port}" for name in (options.host, HOST, "localhost")) if local else frozenset()
    )
    watched: list[Callable[[], Coroutine[Any, Any, None]]] = [access.run]
    app = RequestGate(
        _app(settings, data, history, access, options.alarms or data / ALARMS_FILE, watched),
        LoginApp(access, provider),
        access,
        hosts,
        public,
        _open_pages,
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        http=bounded_protocol(options.forwarded_from),
        timeout_keep_alive=IDLE_S,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_graceful_shutdown=1,
        proxy_headers=bool(options.forwarded_from),
        forwarded_allow_ips=options.forwarded_from or None,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )
    if tls is not None:
        config.load()
        assert config.ssl is not None
        watched.append(partial(tls.run, config.ssl))
    on_ready(f"Console: {public or url} (Ctrl-C stops it)")
    if not local and tls is None and not public.startswith("https:"):
        on_ready(
            "Passwords cross the network in clear: give --tls-cert and --tls-key, or put a proxy with TLS in front."
        )
    uvicorn.Server(config).run(sockets=[listener])


def _provider(settings: OidcSettings, own_url: str) -> Provider:
    from streamlog.console.access.oidc import OidcProvider  # its libraries take a second to load

    return OidcProvider(settings, f"{own_url}{CALLBACK}")


def _first_user(options: ServerOptions) -> str:
    database = f" --database {options.database}" if options.database else ""
    return f"streamlogctl console user add NAME --role admin --data {options.data}{database}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _open_pages(session: UserSession) -> int:
    from nicegui import Client

    callers = (one.request.scope.get(SCOPE_KEY) for one in Client.instances.values())
    return sum(isinstance(one, SessionCaller) and one.session is session for one in callers)


def _app(
    settings: Mapping[str, object],
    data: Path,
    history: SampleHistory,
    access: Access,
    rules: Path,
    watched: Sequence[Callable[[], Coroutine[Any, Any, None]]],
) -> Any:
    """`watched`: run until the end, from the start of the server on."""
    os.environ["NICEGUI_STORAGE_PATH"] = str(data / "browser")  # read when nicegui is imported
    from nicegui import ui

    from streamlog.console.alarms.engine import AlarmEngine
    from streamlog.console.collection.sampler import LOGIN_PAUSE_MAX_S, PASSWORD_PAUSE_MAX_S, ClusterSampler
    from streamlog.console.collection.versions import NodeVersions
    from streamlog.console.collection.voters import VoterPositions
    from streamlog.console.decoding.process import SchemaDecoder
    from streamlog.console.pages import (
        alarms,
        audit,
        brokers,
        groups,
        operations,
        overview,
        quorum,
        quotas,
        records,
        topics,
        transactions,
    )

    times = {"default.api.timeout.ms": CALL_MS, "request.timeout.ms": CALL_MS}
    admin = AsyncAdmin({**settings, **times}, unreachable_s=UNREACHABLE_S, client_version="streamlog-console")
    # Failed attempts with a token do not slow down the logins of others.
    login_pause_max_s = LOGIN_PAUSE_MAX_S if settings.get(SASL_MECHANISM.name) == OAUTHBEARER else PASSWORD_PAUSE_MAX_S
    sampler = ClusterSampler(admin, history, NodeVersions(settings), login_pause_max_s)
    engine = AlarmEngine(sampler, AlarmStore(history.database), rules, settings)
    decoder = SchemaDecoder()

    @asynccontextmanager
    async def life(_: FastAPI) -> Any:
        await admin.start()
        watching = [asyncio.create_task(run()) for run in (engine.run, sampler.run, *watched)]
        yield
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await decoder.close()
        await engine.close()
        await sampler.close()
        access.close()

    app = FastAPI(lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    overview.register(sampler, engine)
    alarms.register(sampler, engine)
    for page in (brokers, topics, groups, transactions, quotas, operations, audit):
        page.register(sampler)
    quorum.register(sampler, VoterPositions(settings))
    records.register(sampler, settings, decoder)
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
    return read_regular(path, 1_024)[0].decode()
