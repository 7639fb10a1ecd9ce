"""Single sign-on against a provider on loopback that signs what a test gives it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from streamlog.console.access.roles import UserRole

pytest.importorskip("authlib", reason="streamlog[console] is not installed")

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.requests import Request

from streamlog.console.access.control import LoginRefused
from streamlog.console.access.oidc import STARTED_OF_NETWORK_MAX, OidcProvider, user_of
from streamlog.console.access.settings import OidcSettings

REDIRECT = "http://127.0.0.1:8048/login/oidc/callback"


class FakeProvider:
    """`claims` are put over those of an intact id token."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "1"})
        self.signing = self.key
        self.claims: dict[str, Any] = {}
        self.forged: Callable[[dict[str, Any]], str] = lambda claims: ""
        self.nonce = ""
        self.challenge = ""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith("openid-configuration"):
                    self._send(
                        {
                            "issuer": provider.issuer,
                            "authorization_endpoint": f"{provider.issuer}/authorize",
                            "token_endpoint": f"{provider.issuer}/token",
                            "jwks_uri": f"{provider.issuer}/keys",
                            "id_token_signing_alg_values_supported": ["RS256"],
                        }
                    )
                else:
                    self._send({"keys": [provider.key.as_dict(private=False)]})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                given = parse_qs(body)["code_verifier"][0]
                digest = hashlib.sha256(given.encode()).digest()
                assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == provider.challenge
                now_s = int(time.time())
                claims = {
                    "iss": provider.issuer,
                    "aud": "console",
                    "sub": "1",
                    "iat": now_s,
                    "exp": now_s + 60,
                    "nonce": provider.nonce,
                    "preferred_username": "alice",
                    "groups": ["sre"],
                }
                token = provider.forged({**claims, **provider.claims}) or jwt.encode(
                    {"alg": "RS256", "kid": "1"}, {**claims, **provider.claims}, provider.signing
                )
                self._send({"access_token": "x", "token_type": "Bearer", "id_token": token})

            def _send(self, document: object) -> None:
                data = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def settings(self, **more: Any) -> OidcSettings:
        roles = {"admin": ("sre",), "viewer": ("dev", "sre")}
        return OidcSettings(**{"issuer": self.issuer, "client_id": "console", "roles": roles, **more})

    def authorize(self, address: str) -> str:
        """As the browser: the state that comes back with the code."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["redirect_uri"] == REDIRECT
        self.nonce, self.challenge = asked["nonce"], asked["code_challenge"]
        return asked["state"]


@pytest.fixture(scope="module")
def running() -> Iterator[FakeProvider]:
    found = FakeProvider()
    yield found
    found.server.shutdown()


@pytest.fixture
def fake(running: FakeProvider) -> FakeProvider:
    running.claims, running.signing, running.forged = {}, running.key, lambda claims: ""
    return running


def request(query: str = "", cookie: str = "", address: str = "127.0.0.1") -> Request:
    headers = [(b"host", b"127.0.0.1:8048"), (b"cookie", cookie.encode())]
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/login/oidc/callback",
            "query_string": query.encode(),
            "headers": headers,
            "scheme": "http",
            "client": (address, 1),
            "server": ("127.0.0.1", 8048),
        }
    )


async def started(provider: OidcProvider, fake: FakeProvider) -> tuple[str, str]:
    """The state, and the browser's cookie."""
    response = await provider.start(request())
    assert response.status_code == 302
    return fake.authorize(response.headers["location"]), response.headers["set-cookie"].split(";")[0]


async def test_a_login_with_pkce_gets_the_highest_role(fake: FakeProvider) -> None:
    provider = OidcProvider(fake.settings(), REDIRECT)
    state, cookie = await started(provider, fake)
    user = await provider.finish(request(f"code=1&state={state}", cookie))
    assert (user.name, user.role) == ("oidc:alice", UserRole.ADMIN)
    with pytest.raises(LoginRefused, match="expired"):
        await provider.finish(request(f"code=1&state={state}", cookie))


@pytest.mark.parametrize(
    "claims",
    [{"aud": "other"}, {"iss": "http://evil.example"}, {"exp": 1}, {"nonce": "other"}, {"nonce": None}, {"groups": []}],
    ids=str,
)
async def test_another_token_is_refused(fake: FakeProvider, claims: dict[str, Any]) -> None:
    fake.claims = claims
    provider = OidcProvider(fake.settings(), REDIRECT)
    state, cookie = await started(provider, fake)
    with pytest.raises(LoginRefused):
        await provider.finish(request(f"code=1&state={state}", cookie))


async def test_another_key_state_or_browser_is_refused(fake: FakeProvider) -> None:
    provider = OidcProvider(fake.settings(), REDIRECT)
    state, cookie = await started(provider, fake)
    with pytest.raises(LoginRefused, match="expired"):
        await provider.finish(request(f"code=1&state={state}", "streamlog_oidc=other"))
    with pytest.raises(LoginRefused):
        await provider.finish(request("code=1&state=other", cookie))
    fake.signing = RSAKey.generate_key(2048, {"kid": "1"})
    state, cookie = await started(provider, fake)
    with pytest.raises(LoginRefused):
        await provider.finish(request(f"code=1&state={state}", cookie))


def _unsigned(fake: FakeProvider, claims: dict[str, Any]) -> str:
    parts = (json.dumps({"alg": "none"}).encode(), json.dumps(claims).encode(), b"")
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def _signed_with_the_public_key(fake: FakeProvider, claims: dict[str, Any]) -> str:
    public = OctKey.import_key(fake.key.as_pem(private=False))
    return jwt.encode({"alg": "HS256", "kid": "1"}, claims, public, algorithms=["HS256"])


@pytest.mark.parametrize("forge", [_unsigned, _signed_with_the_public_key])
async def test_a_token_without_the_providers_signature_is_refused(
    fake: FakeProvider, forge: Callable[[FakeProvider, dict[str, Any]], str]
) -> None:
    fake.forged = lambda claims: forge(fake, claims)
    provider = OidcProvider(fake.settings(), REDIRECT)
    state, cookie = await started(provider, fake)
    with pytest.raises(LoginRefused, match=r"not valid|does not answer"):
        await provider.finish(request(f"code=1&state={state}", cookie))


async def test_a_stranger_ends_no_login_of_others_and_its_memory_is_bounded(fake: FakeProvider) -> None:
    provider = OidcProvider(fake.settings(), REDIRECT)
    state, cookie = await started(provider, fake)
    nonce, challenge = fake.nonce, fake.challenge
    for number in range(STARTED_OF_NETWORK_MAX * 2):
        await provider.start(request(address=f"2001:db8::{number:x}"))
    assert len(provider._started) == STARTED_OF_NETWORK_MAX + 1
    fake.nonce, fake.challenge = nonce, challenge
    assert (await provider.finish(request(f"code=1&state={state}", cookie))).name == "oidc:alice"


async def test_what_a_forged_request_says_is_one_line_of_the_log(
    fake: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    provider = OidcProvider(fake.settings(), REDIRECT)
    state, cookie = await started(provider, fake)
    with pytest.raises(LoginRefused) as caught:
        await provider.finish(
            request(f"error=x%0AERROR%20all%20lost&error_description=%1b%5b31m&state={state}", cookie)
        )
    assert "lost" not in caught.value.message
    assert not any(set("\n\x1b") & set(one.getMessage()) for one in caplog.records)


async def test_a_provider_that_is_not_there_or_has_another_name(fake: FakeProvider) -> None:
    for issuer in ("http://127.0.0.1:1", f"{fake.issuer}/"):
        with pytest.raises(LoginRefused, match="does not answer as it should"):
            await OidcProvider(fake.settings(issuer=issuer), REDIRECT).start(request())


@pytest.mark.parametrize("groups", [None, "sr", ["x"], {"sre": 1}, 5, [["sre"]]])
def test_claims_without_a_role(fake: FakeProvider, groups: object) -> None:
    with pytest.raises(LoginRefused, match="has no role"):
        user_of(fake.settings(), {"sub": "1", "groups": groups})


def test_nested_claims_and_names(fake: FakeProvider) -> None:
    settings = fake.settings(claim="realm.roles")
    assert user_of(settings, {"email": "a@b\n", "realm": {"roles": "dev"}}).name == "oidc:a@b?"


def test_a_secret_that_others_can_read_is_refused(fake: FakeProvider, tmp_path: Path) -> None:
    secret = tmp_path / "oidc.secret"
    secret.write_text("abc")
    secret.chmod(0o644)
    with pytest.raises(OSError, match=r"other users can read it \(mode 0644\): chmod 600"):
        OidcProvider(fake.settings(client_secret_file=str(secret)), REDIRECT)
    secret.chmod(0o600)
    OidcProvider(fake.settings(client_secret_file=str(secret)), REDIRECT)
