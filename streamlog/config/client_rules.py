"""Rules between the settings of a client."""

from __future__ import annotations

from typing import Final

from streamlog.config.addresses import Protocol
from streamlog.config.effective import Config
from streamlog.config.rule import KEY_MISSING, TLS_RULES, TRUST_MISSING, Rule, at_most, below, has_key, has_trust
from streamlog.config.settings import client_settings as client
from streamlog.config.settings import consumer_settings as consumer
from streamlog.config.settings import producer_settings as producer
from streamlog.config.settings import tls_settings as tls
from streamlog.config.settings import token_settings as tokens

IDEMPOTENT_IN_FLIGHT_MAX: Final = 5  # SEMANTICS 6: a partition keeps as many batches of a producer


def _client_logs_in(config: Config) -> str | None:
    name, password = config[client.SASL_USERNAME], config[client.SASL_PASSWORD]
    if config[client.SECURITY_PROTOCOL] != client.SASL_SSL:
        if name is not None or password is not None:
            return f"must be {client.SASL_SSL}: a user's name and password are sent over TLS only"
        if config[client.SASL_MECHANISM] == client.OAUTHBEARER:
            return f"must be {client.SASL_SSL}: bearer tokens are sent over TLS only"
        return None
    if config[client.SASL_MECHANISM] == client.OAUTHBEARER:
        return _has_token(config)
    if name is None or password is None:
        return f"needs {client.SASL_USERNAME.name} and {client.SASL_PASSWORD.name}"
    if ":" in name:
        return f"needs a {client.SASL_USERNAME.name} without a colon"
    return None


def _has_token(config: Config) -> str | None:
    endpoint = config[tokens.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL]
    function = config[tokens.SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS]
    if (endpoint is None) == (function is None):
        return (
            f"with {client.SASL_MECHANISM.name}={client.OAUTHBEARER} needs one of "
            f"{tokens.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL.name} and {tokens.SASL_OAUTHBEARER_JWT_RETRIEVER_CLASS.name}"
        )
    credentials = (
        tokens.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_ID,
        tokens.SASL_OAUTHBEARER_CLIENT_CREDENTIALS_CLIENT_SECRET,
    )
    if endpoint is not None and not endpoint.startswith("file:") and any(config[one] is None for one in credentials):
        return f"at a token endpoint needs {credentials[0].name} and {credentials[1].name}"
    return None


def _client_has_key(config: Config) -> str | None:
    """Nodes with ssl.client.auth=none request no certificate; a half one is a mistake."""
    given = any(config[one] is not None for one in (tls.SSL_KEYSTORE_KEY, tls.SSL_KEYSTORE_CERTIFICATE_CHAIN))
    if config[client.SECURITY_PROTOCOL] == Protocol.PLAINTEXT.value or not given or has_key(config):
        return None
    return KEY_MISSING


def _client_trusts(config: Config) -> str | None:
    if config[client.SECURITY_PROTOCOL] == Protocol.PLAINTEXT.value or has_trust(config):
        return None
    return f"{TRUST_MISSING}: the client verifies the nodes' certificates"


def _idempotent(config: Config) -> str | None:
    """Idempotence by default is switched off where other settings exclude it, as in Kafka; explicit, it is an error."""
    if not config[producer.ENABLE_IDEMPOTENCE] or not config.is_given(producer.ENABLE_IDEMPOTENCE):
        return None
    return idempotence_denied(config)


def idempotence_denied(config: Config) -> str | None:
    """Why a producer with these settings cannot be idempotent; None where it can."""
    if config[producer.ACKS] != "all":
        return f"needs {producer.ACKS.name}=all"
    if config[producer.RETRIES] == 0:
        return f"needs {producer.RETRIES.name} above 0"
    if config[producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION] > IDEMPOTENT_IN_FLIGHT_MAX:
        return f"needs {producer.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION.name} of at most {IDEMPOTENT_IN_FLIGHT_MAX}"
    return None


def _transactional(config: Config) -> str | None:
    if config[producer.TRANSACTIONAL_ID] is None:
        return None
    if not config[producer.ENABLE_IDEMPOTENCE]:
        return f"needs {producer.ENABLE_IDEMPOTENCE.name}=true"
    return idempotence_denied(config)


def _delivery(config: Config) -> str | None:
    """The total timeout is not below the sum of its parts; Kafka refuses that too."""
    parts = config[producer.LINGER_MS] + config[client.REQUEST_TIMEOUT_MS]
    if config[producer.DELIVERY_TIMEOUT_MS] >= parts:
        return None
    return f"must be at least {producer.LINGER_MS.name} + {client.REQUEST_TIMEOUT_MS.name} = {parts}"


CLIENT_RULES: Final = (
    Rule(client.SECURITY_PROTOCOL, _client_logs_in),
    Rule(client.SECURITY_PROTOCOL, _client_has_key),
    Rule(client.SECURITY_PROTOCOL, _client_trusts),
    *TLS_RULES,
    at_most(client.RETRY_BACKOFF_MS, client.RETRY_BACKOFF_MAX_MS, hint=True),
    at_most(client.RECONNECT_BACKOFF_MS, client.RECONNECT_BACKOFF_MAX_MS, hint=True),
)
PRODUCER_RULES: Final = (
    *CLIENT_RULES,
    Rule(producer.ENABLE_IDEMPOTENCE, _idempotent),
    Rule(producer.TRANSACTIONAL_ID, _transactional),
    Rule(producer.DELIVERY_TIMEOUT_MS, _delivery),
    at_most(producer.MAX_REQUEST_SIZE, producer.BUFFER_MEMORY),
)
CONSUMER_RULES: Final = (
    *CLIENT_RULES,
    below(consumer.HEARTBEAT_INTERVAL_MS, consumer.SESSION_TIMEOUT_MS),
    below(consumer.FETCH_MAX_WAIT_MS, client.REQUEST_TIMEOUT_MS),
)
