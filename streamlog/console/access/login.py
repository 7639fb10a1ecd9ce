"""/login: a plain HTML page without scripts, so that nothing of the console is sent to a browser before the login.

    GET  /login              the form; with a provider, a link to it
    POST /login              name, password; sets the session's cookie
    GET  /login/oidc         to the provider (oidc.py); /login/oidc/callback: back from it

The form carries a random token that a cookie has too: another site can neither read nor set it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import secrets
from typing import Final, Protocol
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from streamlog.console.access.caller import User
from streamlog.console.access.control import Access, LoginRefused
from streamlog.console.access.database import AccessError
from streamlog.console.access.gate import (
    LOGIN,
    Receive,
    Scope,
    Send,
    address_of,
    is_secure,
    session_cookie,
    session_token,
)
from streamlog.console.access.sessions import LIFETIME_S

CALLBACK: Final = f"{LOGIN}/oidc/callback"
BODY_MAX: Final = 8 << 10
_FORM_COOKIE: Final = "streamlog_login"
_STYLE: Final = """
:root { color-scheme: light dark; --primary: #1f5fa8; --line: #767676; --bad: #c62828 }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80 } }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; display: grid; place-items: center; min-height: 100vh }
main { width: min(20rem, calc(100vw - 2rem)); box-sizing: border-box }
h1 { font-size: 1.4rem; margin: 0 0 1rem }
label { display: block; margin: .75rem 0 .25rem }
input { width: 100%; box-sizing: border-box; font: inherit; padding: .5rem; border: 1px solid var(--line);
  border-radius: 4px }
button, a.provider { display: block; width: 100%; box-sizing: border-box; margin-top: 1.25rem; padding: .6rem;
  font: inherit; text-align: center; border: 0; border-radius: 4px; background: var(--primary); color: #fff;
  text-decoration: none; cursor: pointer }
:focus-visible { outline: 3px solid #f9a825; outline-offset: 2px }
.bad { color: var(--bad) }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


class Provider(Protocol):
    """Logins elsewhere (oidc.py)."""

    async def start(self, request: Request) -> Response: ...

    async def finish(self, request: Request) -> User:
        """LoginRefused."""


class LoginApp:
    def __init__(self, access: Access, provider: Provider | None) -> None:
        self._access = access
        self._provider = provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except LoginRefused as error:
            response = self._form(request, error)
        except AccessError:
            response = self._form(request, LoginRefused("Logins are not possible now; see the console's log.", 503))
        response.headers["cache-control"] = "no-store"
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        if not self._access.required:
            return RedirectResponse("/", 303)
        match request.method, request.url.path:
            case "GET", "/login":
                if self._access.session(session_token(request.scope)) is not None:
                    return RedirectResponse(_next(request.query_params.get("next", "")), 303)
                return self._form(request)
            case "POST", "/login":
                return await self._password(request)
            case "GET", "/login/oidc" if self._provider is not None:
                return await self._provider.start(request)
            case "GET", "/login/oidc/callback" if self._provider is not None:
                user = await self._provider.finish(request)
                token = await self._access.open_session(user, None, address_of(request.scope))
                return _with_session(request, token, "/")
        return Response("There is no such page.\n", 404, media_type="text/plain")

    async def _password(self, request: Request) -> Response:
        fields = await _fields(request)
        expected = request.cookies.get(_FORM_COOKIE, "")
        if not expected or not hmac.compare_digest(expected.encode(), fields.get("token", "").encode()):
            raise LoginRefused("The form has expired: try again.", 403)
        token = await self._access.log_in(fields.get("name", ""), fields.get("password", ""), address_of(request.scope))
        return _with_session(request, token, _next(fields.get("next", "")))

    def _form(self, request: Request, refused: LoginRefused | None = None) -> Response:
        token = secrets.token_urlsafe(24)
        target = html.escape(_next(request.query_params.get("next", "")))
        problem = "" if refused is None else f'<p class="bad" role="alert">{html.escape(refused.message)}</p>'
        provider = (
            "" if self._provider is None else f'<a class="provider" href="{LOGIN}/oidc">Log in by single sign-on</a>'
        )
        page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in - streamlog</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><main><h1>streamlog console</h1>{problem}
<form method="post" action="{LOGIN}?next={quote(html.unescape(target), safe="")}">
<input type="hidden" name="token" value="{token}"><input type="hidden" name="next" value="{target}">
<label for="name">User</label><input id="name" name="name" autocomplete="username" required autofocus maxlength="64">
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required maxlength="1024">
<button>Log in</button></form>{provider}</main></body></html>
"""
        response = HTMLResponse(page, 200 if refused is None else refused.status)
        response.headers["content-security-policy"] = _POLICY
        if refused is not None and refused.retry_s:
            response.headers["retry-after"] = str(refused.retry_s)
        response.set_cookie(
            _FORM_COOKIE,
            token,
            path=LOGIN,
            httponly=True,
            samesite="strict",
            secure=is_secure(request.scope),
        )
        return response


def _with_session(request: Request, token: str, target: str) -> Response:
    response = RedirectResponse(target, 303)
    response.set_cookie(
        session_cookie(request.scope),
        token,
        max_age=LIFETIME_S,
        httponly=True,
        samesite="lax",  # strict would not be sent when the provider's page redirects back
        secure=is_secure(request.scope),
    )
    response.delete_cookie(_FORM_COOKIE, path=LOGIN)
    return response


async def _fields(request: Request) -> dict[str, str]:
    """LoginRefused: too large, or not a form."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_MAX:
            raise LoginRefused("The form is too large.", 413)
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=10, errors="strict")
    except ValueError:
        raise LoginRefused("The form is not valid.", 400) from None
    return {name: values[0] for name, values in found.items()}


def _next(target: str) -> str:
    """A path of this console, never another site: '//host' and '/\\host' are addresses of other sites."""
    own = target.startswith("/") and target[1:2] not in ("/", "\\") and target.isprintable() and len(target) <= 2_000
    return target if own and not target.startswith(LOGIN) else "/"
