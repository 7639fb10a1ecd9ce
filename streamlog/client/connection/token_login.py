"""A client's bearer token: got when it is first needed, sent with each call, renewed before it expires.

    endpoint, file or function --worker thread--> token --> `authorization` of every call
          after a part of its lifetime (sasl.login.refresh.*)  --> a new one, and a call with it on each open
          connection, so that the node prolongs the streams that were opened with the earlier one (as KIP-368)

A renewal that fails is repeated, with a pause that doubles, while the earlier token is in use. Without a valid token a
call waits WAIT_S for one and then fails with SASL_AUTHENTICATION_FAILED and the reason. What a token says about itself
is verified by the node, not here.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import jwt
import msgspec
from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.config import Config
from streamlog.config.settings import token_settings as settings
from streamlog.errors import InvalidConfigError, Status
from streamlog.ports import Clock, Random, RpcError, Workers
from streamlog.ports.grpc_adapter.metadata import Pairs
from streamlog.url_documents import UrlDocuments

TOKEN_BYTES_MAX: Final = 8_000
ANSWER_BYTES_MAX: Final = 64 << 10
LIFETIME_S: Final = 300.0
"""Of a token that says nothing about it."""
WAIT_S: Final = 10.0
PAUSE_S: Final = (0.1, 10.0)
"""After a failure: the first and the longest."""

Retriever = Callable[[], "Retrieved"]
"""Blocks. OSError, ValueError; a function of the user anything."""


class Retrieved(Struct, frozen=True):
    token: str
    lifetime_s: float  # from now on


class RefreshTimes(Struct, frozen=True, kw_only=True):
    factor: float = 0.8
    jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0

    @classmethod
    def of(cls, config: Config) -> RefreshTimes:
        return cls(
            factor=config[settings.SASL_LOGIN_REFRESH_WINDOW_FACTOR],
            jitter=config[settings.SASL_LOGIN_REFRESH_WINDOW_JITTER],
            min_period_s=config[settings.SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS],
            buffer_s=config[settings.SASL_LOGIN_REFRESH_BUFFER_SECONDS],
        )

    def wait_s(self, lifetime_s: float, drawn: float) -> float:
        """From getting a token to getting the next one. `drawn`: in 0..1."""
        wait_s = lifetime_s * min(self.factor + self.jitter * drawn, 1.0)
        if lifetime_s > self.min_period_s + self.buffer_s:
            wait_s = max(min(wait_s, lifetime_s - self.buffer_s), self.min_period_s)
        return max(0.0, wait_s)


class TokenLogin:
    """A CallLogin of the network. Owned by one client, on one loop."""

    def __init__(
        self, retrieve: Retriever, times: RefreshTimes, clock: Clock, random: Random, workers: Workers
    ) -> None:
        self._retrieve = retrieve
        self._times = times
        self._clock = clock
        self._random = random
        self._workers = workers
        self._pairs: Pairs = ()
        self._valid_until_s = -math.inf
        self._reason = "it does not answer"
        self._arrived = asyncio.Event()  # replaced by each that arrives or fails
        self._task: asyncio.Task[None] | None = None
        self.renew_streams: Callable[[], Awaitable[None]] | None = None

    async def metadata(self) -> Pairs:
        """RpcError(UNAUTHENTICATED) without a token."""
        if self._clock.monotonic() < self._valid_until_s:
            return self._pairs
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())  # sim: it catches what fails, and ends with `close`
        deadline_s = self._clock.monotonic() + WAIT_S
        while self._clock.monotonic() >= self._valid_until_s:
            try:
                async with timeout(deadline_s - self._clock.monotonic()):
                    await self._arrived.wait()
            except TimeoutError:
                raise RpcError(Status.UNAUTHENTICATED, f"the client has no bearer token: {self._reason}") from None
        return self._pairs

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        pause_s, longest_s = PAUSE_S
        while True:
            try:
                found = await self._workers.run(self._retrieve)
            except Exception as error:  # noqa: BLE001  of the user's function too; repeated, and reported by the calls
                self._reason = _reason(error)
                await asyncio.sleep(pause_s)
                pause_s = min(longest_s, 2 * pause_s)
                continue
            pause_s = PAUSE_S[0]
            is_renewal = bool(self._pairs)
            self._pairs = (("authorization", f"Bearer {found.token}"),)
            self._valid_until_s = self._clock.monotonic() + found.lifetime_s
            self._arrived.set()
            self._arrived = asyncio.Event()
            if is_renewal:
                await self._renew_streams()
            await asyncio.sleep(max(PAUSE_S[0], self._times.wait_s(found.lifetime_s, self._random.random())))

    async def _renew_streams(self) -> None:
        """A stream that is not renewed ends with its token, and its caller opens another one with the new token."""
        if self.renew_streams is None:
            return
        try:
            await self.renew_streams()
        except Exception as error:  # noqa: BLE001  the next token must be fetched all the same
            self._reason = _reason(error)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or repr(error)


def retriever_of(config: Config, clock: Clock) -> Retriever:
    """InvalidConfigError."""
    function = config[settings.SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS]
    if function is not None:
        found = _imported(function)
        return lambda: _as_retrieved(_called(found, function), None, clock)
    url = config[settings.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL]
    assert url is not None, "a rule of the settings"
    documents = UrlDocuments()
    if url.startswith("file:"):
        return lambda: _of_file(documents, url, clock)
    client = config[settings.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID] or ""
    secret = config[settings.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET] or ""
    scope = config[settings.SASL_OAUTHBEARER_SCOPE]
    form = {"grant_type": "client_credentials", **({} if scope is None else {"scope": scope})}
    return lambda: _of_endpoint(documents, url, form, client, secret, clock)


def _imported(name: str) -> Callable[[], object]:
    module, _, path = name.partition(":")
    where = f"{settings.SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS.name}={name}"
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidConfigError(f"{where}: cannot be imported ({error})", field=where.partition("=")[0]) from None
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise InvalidConfigError(f"{where}: must be a function, and not a coroutine", field=where.partition("=")[0])
    function: Callable[[], object] = found
    return function


def _called(function: Callable[[], object], name: str) -> str:
    try:
        token = function()
    except Exception:
        raise
    except BaseException as error:  # SystemExit would end the loop that the result arrives in
        raise ValueError(f"{name} raised {error!r}") from error
    if not isinstance(token, str):
        raise ValueError(f"{name} returned {type(token).__name__}, must return the token as a str")
    return token


def _of_file(documents: UrlDocuments, url: str, clock: Clock) -> Retrieved:
    try:
        data = documents.read(url, TOKEN_BYTES_MAX)
    except OSError as error:
        raise OSError(error.errno, f"{url}: {error.strerror}") from None
    return _as_retrieved(data.decode("ascii", "replace"), None, clock)


class _TokenAnswer(Struct):
    access_token: str
    expires_in: float | None = None


def _of_endpoint(
    documents: UrlDocuments, url: str, form: dict[str, str], client: str, secret: str, clock: Clock
) -> Retrieved:
    try:
        data = documents.post(url, form, client, secret, ANSWER_BYTES_MAX)
    except OSError as error:
        raise OSError(error.errno, f"token endpoint {url}: {error.strerror}") from None
    try:
        answer = msgspec.json.decode(data, type=_TokenAnswer)
    except (msgspec.DecodeError, RecursionError):
        raise ValueError(f"token endpoint {url}: its answer has no access_token") from None
    return _as_retrieved(answer.access_token, answer.expires_in, clock)


def _as_retrieved(given: str, lifetime_s: float | None, clock: Clock) -> Retrieved:
    """`lifetime_s`: None: what the token says. ValueError."""
    token = given.strip()
    if not 0 < len(token) <= TOKEN_BYTES_MAX or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"what is in the place of a token is not one: 1 to {TOKEN_BYTES_MAX} characters, no spaces")
    if lifetime_s is None:
        lifetime_s = _lifetime_s(token, clock)
    if not lifetime_s > 0:
        raise ValueError("the token has expired")
    return Retrieved(token, min(lifetime_s, 365 * 86_400.0))


def _lifetime_s(token: str, clock: Clock) -> float:
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return LIFETIME_S  # it is for the node to refuse it
    expires = claims.get("exp")
    if isinstance(expires, bool) or not isinstance(expires, int | float) or not math.isfinite(expires):
        return LIFETIME_S
    return expires - clock.wall_ms() / 1000
