"""The settings of clients, with Kafka's names: those of all clients, and the tables of producer, consumer and admin."""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import Address, AddressKind, Protocol
from streamlog.config.kinds import Boolean, ListOf, OneOf, Text, duration_ms
from streamlog.config.setting import Section, Setting, Table, section
from streamlog.config.settings import consumer_settings
from streamlog.config.settings.producer_settings import PRODUCING
from streamlog.config.settings.tls_settings import TLS
from streamlog.config.settings.token_settings import TOKENS

SASL_SSL: Final = "SASL_SSL"
"""A value of security.protocol: TLS, and a user's password or token."""
OAUTHBEARER: Final = "OAUTHBEARER"
"""A value of sasl.mechanism: a token."""

# A table reads best with an entry's facts on one line and its sentence below.
# fmt: off

BOOTSTRAP_SERVERS: Final = Setting(
    "bootstrap.servers", ListOf(AddressKind(), items_min=1, items_max=100), (Address("127.0.0.1", 9092),),
    kafka="must be set",
    doc="Nodes that the client first connects to, to find all others; one that answers is enough.")
CLIENT_ID: Final = Setting(
    "client.id", Text(249, may_be_empty=True), "",
    doc="A name for this client, in the nodes' logs and quotas.")
REQUEST_TIMEOUT_MS: Final = Setting(
    "request.timeout.ms", duration_ms(1), 30_000,
    doc="How long one request may take before it fails.")
RETRY_BACKOFF_MS: Final = Setting(
    "retry.backoff.ms", duration_ms(0, 3_600_000), 100,
    doc="The wait before a request is retried; it doubles each time up to retry.backoff.max.ms.")
RETRY_BACKOFF_MAX_MS: Final = Setting(
    "retry.backoff.max.ms", duration_ms(0, 3_600_000), 1_000,
    doc="The longest wait before a request is retried.")
RECONNECT_BACKOFF_MS: Final = Setting(
    "reconnect.backoff.ms", duration_ms(1, 3_600_000), 50,
    doc="The wait before reconnecting; it doubles each time up to reconnect.backoff.max.ms.")
RECONNECT_BACKOFF_MAX_MS: Final = Setting(
    "reconnect.backoff.max.ms", duration_ms(1, 3_600_000), 200, kafka="1000",
    doc="The longest wait before reconnecting.")
CONNECTIONS_MAX_IDLE_MS: Final = Setting(
    "connections.max.idle.ms", duration_ms(1_000), 540_000,
    doc="How long a connection without a call stays open.")
METADATA_MAX_AGE_MS: Final = Setting(
    "metadata.max.age.ms", duration_ms(1), 300_000,
    doc="The age at which cached metadata is refreshed.")
SECURITY_PROTOCOL: Final = Setting(
    "security.protocol", OneOf((*Protocol.__members__, SASL_SSL)), "PLAINTEXT",
    doc="Whether connections are encrypted (SSL), with a user's login besides (SASL_SSL), or not (PLAINTEXT).")
SASL_MECHANISM: Final = Setting(
    "sasl.mechanism", OneOf(("PLAIN", OAUTHBEARER)), "PLAIN", kafka="GSSAPI",
    doc="How a user logs in with SASL_SSL: PLAIN, by name and password, or OAUTHBEARER, by a bearer token.")
SASL_USERNAME: Final[Setting[str | None]] = Setting(
    "sasl.username", Text(128), None, ours=True,
    doc="The user's name, with sasl.mechanism=PLAIN.")
SASL_PASSWORD: Final[Setting[str | None]] = Setting(
    "sasl.password", Text(secret=True), None, sensitive=True, ours=True,
    doc="The user's password; sent over TLS only.")

COMMON: Final = section("All clients", globals())

TRACING_ENABLE: Final = Setting(
    "tracing.enable", Boolean(), False, ours=True,
    doc="Whether producers and consumers make OpenTelemetry spans, and put their context into headers of records, and "
    "unary calls carry the current one; needs streamlog[otel].")
# fmt: on

TRACING: Final = Section("Tracing", (TRACING_ENABLE,))

PRODUCER: Final = Table("producer", [COMMON, PRODUCING, TLS, TOKENS, TRACING])
CONSUMER: Final = Table("consumer", [COMMON, consumer_settings.CONSUMING, TLS, TOKENS, TRACING])
ADMIN: Final = Table(
    "admin client",
    [COMMON, Section("Administration", (consumer_settings.DEFAULT_API_TIMEOUT_MS,)), TLS, TOKENS, TRACING],
)
