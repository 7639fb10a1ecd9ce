"""Logins by a provider of OpenID Connect, with Authlib: authorization code, PKCE (S256), state and nonce.

Authlib checks the id token: signature, issuer, audience, times, nonce. What is kept between leaving and coming back
(state, nonce, the PKCE verifier) is in memory, under the state; the browser has the state in a cookie too, so that a
stranger's code cannot be redeemed in another browser.

The role comes from a claim at each login. The user's name in the audit log has the prefix `oidc:`, so that it cannot be
taken for one of the console's own.
"""

from __future__ import annotations

import errno
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import OAuth
from joserfc.errors import JoseError
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from streamlog.access.throttle import network_of
from streamlog.console.access.caller import User
from streamlog.console.access.control import LoginRefused
from streamlog.console.access.gate import LOGIN, address_of, is_secure
from streamlog.console.access.roles import UserRole
from streamlog.console.access.settings import OidcSettings
from streamlog.printable import escaped
from streamlog.regular_file import OTHERS, read_regular

STARTED_MAX: Final = 1_000
STARTED_OF_NETWORK_MAX: Final = 50
"""Beyond these a network's own oldest one is dropped: no stranger can end all logins under way."""
STARTED_KEPT_S: Final = 600.0
TIMEOUT_S: Final = 10.0
SECRET_BYTES_MAX: Final = 64 << 10
NAME_MAX: Final = 120
_COOKIE: Final = "streamlog_oidc"
_NAME: Final = "provider"

_log: Final = logging.getLogger(__name__)


class _Started(Struct):
    at_s: float
    network: str  # of the browser
    session: dict[str, Any]  # Authlib's: state, nonce, verifier


def _secret_in(path: str) -> str:
    """OSError."""
    data, mode = read_regular(path, SECRET_BYTES_MAX)
    if mode & OTHERS:
        raise OSError(errno.EACCES, f"other users can read it (mode {mode:04o}): chmod 600 {path}", path)
    return data.decode(errors="replace").strip()


class OidcProvider:
    def __init__(
        self, settings: OidcSettings, redirect_uri: str, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`redirect_uri`: as registered at the provider. OSError: the secret cannot be read."""
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._now_s = now_s
        self._started: dict[str, _Started] = {}
        file = settings.client_secret_file
        secret = _secret_in(file) if file else None
        oauth = OAuth()
        self._client = oauth.register(
            _NAME,
            client_id=settings.client_id,
            client_secret=secret,
            server_metadata_url=f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(settings.scopes),
                "code_challenge_method": "S256",
                "timeout": TIMEOUT_S,
                **({} if secret else {"token_endpoint_auth_method": "none"}),
            },
        )

    async def start(self, request: Request) -> Response:
        session: dict[str, Any] = {}
        request.scope["session"] = session
        await self._attempt(self._check_issuer())
        response: Response = await self._attempt(self._client.authorize_redirect(request, self._redirect_uri))
        key = secrets.token_urlsafe(24)
        now_s = self._now_s()
        for old in [old for old, one in self._started.items() if now_s - one.at_s > STARTED_KEPT_S]:
            del self._started[old]
        network = network_of(address_of(request.scope))
        own = [old for old, one in self._started.items() if one.network == network]
        if len(own) >= STARTED_OF_NETWORK_MAX:
            del self._started[own[0]]
        while len(self._started) >= STARTED_MAX:
            del self._started[next(iter(self._started))]
        self._started[key] = _Started(now_s, network, session)
        response.set_cookie(
            _COOKIE,
            key,
            path=LOGIN,
            max_age=int(STARTED_KEPT_S),
            httponly=True,
            samesite="lax",
            secure=is_secure(request.scope),
        )
        return response

    async def finish(self, request: Request) -> User:
        """LoginRefused."""
        started = self._started.pop(request.cookies.get(_COOKIE, ""), None)
        if started is None or self._now_s() - started.at_s > STARTED_KEPT_S:
            raise LoginRefused("The login has expired: try again.", 403)
        request.scope["session"] = started.session
        token = await self._attempt(self._client.authorize_access_token(request))
        claims = token.get("userinfo")
        if not isinstance(claims, Mapping):
            raise LoginRefused("The provider sent no id token.", 502)
        return user_of(self._settings, claims)

    async def _check_issuer(self) -> None:
        metadata = await self._client.load_server_metadata()
        if metadata.get("issuer") != self._settings.issuer:
            raise ValueError(f"the provider calls itself {metadata.get('issuer')!r}, not {self._settings.issuer!r}")

    async def _attempt(self, work: Any) -> Any:
        """LoginRefused, for all that the provider, or a forged request, may cause."""
        try:
            return await work
        except (AuthlibBaseError, JoseError) as error:
            _log.warning("login by %s refused: %s", self._settings.issuer, _plain(error))
            raise LoginRefused("The provider's login is not valid: try again.", 403) from None
        except (httpx2.HTTPError, ValueError, KeyError, TypeError, RuntimeError) as error:
            _log.warning("login by %s failed: %s: %s", self._settings.issuer, type(error).__name__, _plain(error))
            raise LoginRefused("The provider does not answer as it should; see the console's log.", 502) from None


def _plain(error: Exception) -> str:
    """For the log: a forged request chooses the text."""
    return escaped(str(error)[:300])


def user_of(settings: OidcSettings, claims: Mapping[str, Any]) -> User:
    """LoginRefused where no role matches."""
    found: Any = claims
    for name in settings.claim.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    values = (
        {found}
        if isinstance(found, str)
        else {one for one in found or () if isinstance(one, str)}
        if isinstance(found, list | None)
        else set()
    )
    roles = [UserRole.of(label) for label, wanted in settings.roles.items() if values & set(wanted)]
    candidates = (claims.get(settings.name_claim), claims.get("email"), claims.get("sub"))
    name = next((one for one in candidates if isinstance(one, str) and one), "")
    shown = "".join(letter if letter.isprintable() else "?" for letter in name[:NAME_MAX])
    if not roles:
        raise LoginRefused(f"{shown or 'This user'} has no role in the console: ask its administrator.", 403)
    return User(f"oidc:{shown}", max(roles))
