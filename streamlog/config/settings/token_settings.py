"""Where a client gets its bearer token from (sasl.mechanism=OAUTHBEARER), and when it gets a new one."""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import DocumentUrlKind
from streamlog.config.kinds import FunctionName, Real, Text, count
from streamlog.config.setting import Setting, section

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL: Final[Setting[str | None]] = Setting(
    "sasl.oauthbearer.token.endpoint.url", DocumentUrlKind(), None,
    doc="The issuer's token endpoint, https://, for the grant of client credentials; or a file with the token, file:///.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID: Final[Setting[str | None]] = Setting(
    "sasl.oauthbearer.client.credentials.client.id", Text(), None,
    doc="The client's name at the token endpoint.")
SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET: Final[Setting[str | None]] = Setting(
    "sasl.oauthbearer.client.credentials.client.secret", Text(secret=True), None, sensitive=True,
    doc="The client's secret at the token endpoint.")
SASL_OAUTHBEARER_SCOPE: Final[Setting[str | None]] = Setting(
    "sasl.oauthbearer.scope", Text(), None,
    doc="The scope that the client requests at the token endpoint.")
SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS: Final[Setting[str | None]] = Setting(
    "sasl.oauthbearer.jwt.retriever.class", FunctionName(), None, kafka="a Java class",
    doc="A function without arguments that returns a token, as module:function; instead of a token endpoint.")
SASL_LOGIN_REFRESH_WINDOW_FACTOR: Final = Setting(
    "sasl.login.refresh.window.factor", Real(0.5, 1.0), 0.8,
    doc="The part of a token's lifetime after which the client gets a new one.")
SASL_LOGIN_REFRESH_WINDOW_JITTER: Final = Setting(
    "sasl.login.refresh.window.jitter", Real(0.0, 0.25), 0.05,
    doc="The largest random part of the lifetime that is added to it.")
SASL_LOGIN_REFRESH_MIN_PERIOD_SECONDS: Final = Setting(
    "sasl.login.refresh.min.period.seconds", count(0, 900), 60,
    doc="The shortest wait before a new token; ignored with sasl.login.refresh.buffer.seconds where a token's lifetime "
    "is shorter than both.")
SASL_LOGIN_REFRESH_BUFFER_SECONDS: Final = Setting(
    "sasl.login.refresh.buffer.seconds", count(0, 3_600), 300,
    doc="How long before a token's expiry the client gets a new one at the latest.")
# fmt: on

TOKENS: Final = section("Bearer tokens", globals())
