"""A client's bearer token: where it gets it, when it gets a new one, and what its calls carry meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import pytest

from streamlog.client.connection import client_ports, token_login
from streamlog.client.connection.token_login import (
    LIFETIME_S,
    RefreshTimes,
    Retrieved,
    TokenLogin,
    retriever_of,
)
from streamlog.config import load_admin
from streamlog.errors import InvalidConfigError, Status
from streamlog.ports import RpcError
from streamlog.ports.system import SystemClock, ThreadWorkers
from tests.support.tokens import TokenIssuer

WAIT_S: Final = 60.0
LOGIN: Final = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "ssl.keystore.location": "k.pem",
    "ssl.truststore.location": "ca.crt",
}
ISSUER = TokenIssuer()


class Endpoint:
    """A token endpoint on loopback."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, list[str]], str]] = []
        self.status = 200
        self.answer: bytes = b""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                endpoint.requests.append((form, self.headers["Authorization"]))
                self.send_response(endpoint.status)
                if endpoint.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(endpoint.answer)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint()
    yield running
    running.close()


def retrieved(**values: str) -> Retrieved:
    given = {name.replace("_", "."): value for name, value in values.items()}
    return retriever_of(load_admin({**LOGIN, **given}).config, SystemClock())()


def of_endpoint(endpoint: Endpoint, **more: str) -> Retrieved:
    return retrieved(
        sasl_oauthbearer_token_endpoint_url=endpoint.url,
        sasl_oauthbearer_client_credentials_client_id="orders:service",
        sasl_oauthbearer_client_credentials_client_secret="hunter2",
        **more,
    )


def test_client_credentials_at_an_endpoint(endpoint: Endpoint) -> None:
    endpoint.answer = json.dumps({"access_token": ISSUER.token(), "expires_in": 60, "token_type": "Bearer"}).encode()
    assert of_endpoint(endpoint, sasl_oauthbearer_scope="read write").lifetime_s == 60
    form, login = endpoint.requests[0]
    assert form == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    assert base64.b64decode(login.removeprefix("Basic ")) == b"orders%3Aservice:hunter2"


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (401, b"{}", "it answered with HTTP status 401"),
        (302, b"", "it answered with HTTP status 302"),
        (200, b"<html>", "its answer has no access_token"),
        (200, b'{"access_token": 7}', "its answer has no access_token"),
        (200, b'{"access_token": "a b"}', "is not one"),
        (200, b'{"access_token": "a\\r\\nb"}', "is not one"),
        (200, b"x" * (65 << 10), "its answer has more than 65536 bytes"),
    ],
)
def test_an_endpoint_that_gives_no_token(endpoint: Endpoint, status: int, answer: bytes, said: str) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises((OSError, ValueError)) as caught:
        of_endpoint(endpoint)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(endpoint.requests) == 1


def test_an_endpoint_that_is_not_there(endpoint: Endpoint) -> None:
    endpoint.close()
    with pytest.raises(OSError, match=r"token endpoint http://127.0.0.1:\d+/token: it cannot be reached"):
        of_endpoint(endpoint)


def test_a_token_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(ISSUER.token(lifetime_s=1_000) + "\n")
    found = retrieved(sasl_oauthbearer_token_endpoint_url=file.as_uri())
    assert found.token == file.read_text().strip()
    assert 900 < found.lifetime_s < 1_001  # clocks are adjusted
    file.write_text("opaque")
    assert retrieved(sasl_oauthbearer_token_endpoint_url=file.as_uri()).lifetime_s == LIFETIME_S
    file.write_text(ISSUER.token(lifetime_s=-1))
    with pytest.raises(ValueError, match="the token has expired"):
        retrieved(sasl_oauthbearer_token_endpoint_url=file.as_uri())
    file.unlink()
    with pytest.raises(OSError, match="token: No such file"):
        retrieved(sasl_oauthbearer_token_endpoint_url=file.as_uri())


def token_of_a_function() -> str:
    return ISSUER.token("bob")


def no_token() -> int:
    return 7


def exits() -> str:
    raise SystemExit(1)


async def later() -> str:
    return ""


def test_a_function_of_the_program() -> None:
    name = f"{__name__}:token_of_a_function"
    assert retrieved(sasl_oauthbearer_jwt_retriever_class=name).token.count(".") == 2
    given: dict[str, Any] = {**LOGIN, "sasl.oauthbearer.jwt.retriever.class": token_of_a_function}
    assert retriever_of(load_admin(given).config, SystemClock())().token.count(".") == 2
    with pytest.raises(ValueError, match="no_token returned int, must return the token as a str"):
        retrieved(sasl_oauthbearer_jwt_retriever_class=f"{__name__}:no_token")
    with pytest.raises(ValueError, match=r"exits raised SystemExit\(1\)"):
        retrieved(sasl_oauthbearer_jwt_retriever_class=f"{__name__}:exits")
    for wrong in (f"{__name__}:missing", f"{__name__}:later", "no.such.module:f"):
        with pytest.raises(InvalidConfigError, match=r"retriever\.class"):
            retrieved(sasl_oauthbearer_jwt_retriever_class=wrong)
    with pytest.raises(InvalidConfigError, match="must be module:function"):
        load_admin({**LOGIN, "sasl.oauthbearer.jwt.retriever.class": lambda: "x"})


@pytest.mark.parametrize(
    ("lifetime_s", "drawn", "wait_s"),
    [
        (3_600, 0.0, 2_880.0),
        (3_600, 1.0, 3_060.0),
        (1_000, 1.0, 700.0),  # the buffer
        (400, 0.0, 100.0),
        (361, 0.0, 61.0),
        (10, 0.0, 8.0),  # shorter than the shortest wait and the buffer: neither counts
    ],
)
def test_when_a_token_is_renewed(lifetime_s: float, drawn: float, wait_s: float) -> None:
    assert RefreshTimes().wait_s(lifetime_s, drawn) == pytest.approx(wait_s)


class Tokens:
    """Retrieved in turn; an exception is raised."""

    def __init__(self, *found: Retrieved | Exception) -> None:
        self.left = list(found)
        self.taken = 0

    def __call__(self) -> Retrieved:
        self.taken += 1
        one = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(one, Exception):
            raise one
        return one


def login_of(tokens: Tokens, times: RefreshTimes | None = None) -> TokenLogin:
    return TokenLogin(tokens, times or RefreshTimes(), SystemClock(), random.Random(1), ThreadWorkers())


async def test_calls_carry_the_newest_token_and_streams_are_renewed() -> None:
    tokens = Tokens(Retrieved("one", 0.2), Retrieved("two", 3_600))
    login = login_of(tokens)
    renewed = asyncio.Event()

    async def renew() -> None:
        assert await login.metadata() == (("authorization", "Bearer two"),)
        renewed.set()

    login.renew_streams = renew
    first = await asyncio.gather(login.metadata(), login.metadata())
    assert first[0] in ((("authorization", "Bearer one"),), (("authorization", "Bearer two"),))
    await asyncio.wait_for(renewed.wait(), WAIT_S)
    assert tokens.taken == 2
    await login.close()


class AtOnce:
    """Workers, without a thread."""

    async def run(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)


async def test_a_call_without_a_token_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_login, "WAIT_S", 0.05)
    tokens = Tokens(OSError(1, "token endpoint x: it cannot be reached"))
    login = TokenLogin(tokens, RefreshTimes(), SystemClock(), random.Random(1), AtOnce())
    with pytest.raises(RpcError) as caught:
        await login.metadata()
    assert caught.value.status is Status.UNAUTHENTICATED
    assert caught.value.message == "the client has no bearer token: token endpoint x: it cannot be reached"
    await login.close()


async def test_a_failure_is_repeated() -> None:
    login = login_of(Tokens(RuntimeError("of the user's function"), Retrieved("one", 3_600)))
    assert await login.metadata() == (("authorization", "Bearer one"),)
    await login.close()


async def test_streams_that_cannot_be_renewed_do_not_end_the_renewal_of_tokens() -> None:
    tokens = Tokens(Retrieved("one", 0.2), Retrieved("two", 0.2), Retrieved("three", 3_600))
    login = login_of(tokens)
    renewals, again = 0, asyncio.Event()

    async def renew() -> None:
        nonlocal renewals
        renewals += 1
        if renewals == 2:
            again.set()
        raise RuntimeError("the network is gone")

    login.renew_streams = renew
    await login.metadata()
    await asyncio.wait_for(again.wait(), WAIT_S)
    assert await login.metadata() == (("authorization", "Bearer three"),)
    await login.close()


_ASKED, _ANSWER, _ENDED = threading.Event(), threading.Event(), threading.Event()


def slow_retriever() -> str:
    _ASKED.set()
    _ANSWER.wait(10)
    _ENDED.set()
    return "one"


async def test_a_client_that_is_closed_does_not_wait_for_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_ports, "_tls", lambda _config: None)  # it connects to no node
    given = {**LOGIN, "sasl.oauthbearer.jwt.retriever.class": f"{__name__}:slow_retriever"}
    ports = client_ports.real_ports(load_admin(given).config)
    assert ports.login is not None
    asking = asyncio.ensure_future(ports.login.metadata())
    assert await asyncio.to_thread(_ASKED.wait, WAIT_S)
    asking.cancel()
    await ports.close()
    assert not _ENDED.is_set()
    _ANSWER.set()
