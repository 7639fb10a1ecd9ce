"""Rules between the settings of a node, and between those of a topic."""

from __future__ import annotations

from typing import Final

from streamlog.access.acl import check_principal
from streamlog.config.effective import Config
from streamlog.config.listener_rules import LISTENER_RULES
from streamlog.config.listeners import https_client_auth, listeners_of
from streamlog.config.rule import TLS_RULES, Rule, at_most, below, is_now
from streamlog.config.settings import group_settings as groups
from streamlog.config.settings import http_settings as http
from streamlog.config.settings import node_settings as node
from streamlog.config.settings import security_settings as security
from streamlog.config.settings import topic_defaults as defaults
from streamlog.config.settings import topic_settings as topic
from streamlog.errors import InvalidRequestError

# Besides records, a request has names, ids and gRPC's framing.
REQUEST_OVERHEAD_BYTES: Final = 4 << 10


def _voters(config: Config) -> str | None:
    voters = config[node.CONTROLLER_QUORUM_VOTERS]
    if len({voter.node_id for voter in voters}) != len(voters):
        return "must name each node once"
    if len({voter.address for voter in voters}) != len(voters):
        return "must give each node an address of its own"
    if voters and config.is_given(node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS):
        return f"must not be set together with {node.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS.name}"
    return None


def _odd_voters(config: Config) -> str | None:
    number = len(config[node.CONTROLLER_QUORUM_VOTERS])
    return f"{number} voters tolerate no more failures than {number - 1}" if number and number % 2 == 0 else None


def _tokens_are_checked(config: Config) -> str | None:
    """A token of the same issuer for another service is not one for this cluster."""
    if config[security.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL] is None:
        return None
    if config[security.AUTHORIZER_CLASS_NAME] == "none":
        return (
            f"tokens are looked at by an authorizer only: set {security.AUTHORIZER_CLASS_NAME.name}=StandardAuthorizer"
        )
    issuer, audience = security.SASL_OAUTHBEARER_EXPECTED_ISSUER, security.SASL_OAUTHBEARER_EXPECTED_AUDIENCE
    if config[issuer] is None or not config[audience]:
        return f"needs {issuer.name} and {audience.name}, so that tokens for other services are refused"
    return None


def _http_callers_are_known(config: Config) -> str | None:
    """By a password or token: they have no certificate."""
    if not config[http.HTTP_API_ENABLE] or any(not one.secure for one in listeners_of(config) if one.for_clients):
        return None
    if config[security.AUTHORIZER_CLASS_NAME] == "none" and not _have_certificates(config):
        return (
            "callers over HTTP have no certificate, and passwords and tokens are looked at by an authorizer only: set "
            f"{security.AUTHORIZER_CLASS_NAME.name}=StandardAuthorizer, or serve HTTPS:// alone, with "
            "listener.name.https.ssl.client.auth=required"
        )
    return None


def _have_certificates(config: Config) -> bool:
    """All callers over HTTP."""
    return all(one.secure for one in config[node.HTTP_LISTENERS]) and https_client_auth(config) == "required"


def _http_is_private(config: Config) -> str | None:
    """Addresses that other machines can reach: a password needs encryption, and a caller needs to be known."""
    if not config[http.HTTP_API_ENABLE]:
        return None
    has_authorizer = config[security.AUTHORIZER_CLASS_NAME] != "none"
    for one in config[node.HTTP_LISTENERS]:
        known = one.secure and (has_authorizer or https_client_auth(config) == "required")
        if known or one.address.loopback:
            continue
        where = f"other machines can reach {one} ({node.HTTP_LISTENERS.name})"
        if has_authorizer:
            return (
                f"{where}, and passwords and tokens would be sent to it without encryption: use HTTPS://, or 127.0.0.1 "
                "behind a proxy of this machine that ends TLS"
            )
        if config[node.ALLOW_PLAINTEXT_PUBLIC_LISTENERS]:
            continue
        if one.secure:
            return (
                f"{where}, without authentication: set listener.name.https.ssl.client.auth=required, or "
                f"{security.AUTHORIZER_CLASS_NAME.name}=StandardAuthorizer"
            )
        return (
            f"{where}, without encryption or authentication: use 127.0.0.1, or set "
            f"{node.ALLOW_PLAINTEXT_PUBLIC_LISTENERS.name}=true"
        )
    return None


def _http_has_an_address(config: Config) -> str | None:
    if config[http.HTTP_API_ENABLE] and not config[node.HTTP_LISTENERS]:
        return f"needs an address in {node.HTTP_LISTENERS.name}"
    return None


def _super_users(config: Config) -> str | None:
    for principal in config[security.SUPER_USERS]:
        try:
            check_principal(principal)
        except InvalidRequestError as error:
            return error.message
    return None


def _request_holds_batch(config: Config) -> str | None:
    limit = config[node.SOCKET_REQUEST_MAX_BYTES] - REQUEST_OVERHEAD_BYTES
    if config[defaults.MESSAGE_MAX_BYTES] <= limit:
        return None
    return f"must be at most {limit}, to fit {is_now(config, node.SOCKET_REQUEST_MAX_BYTES)}"


NODE_RULES: Final = (
    *LISTENER_RULES,
    Rule(http.HTTP_API_ENABLE, _http_has_an_address),
    Rule(http.HTTP_API_ENABLE, _http_callers_are_known),
    Rule(http.HTTP_API_ENABLE, _http_is_private),
    Rule(security.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL, _tokens_are_checked),
    Rule(security.SUPER_USERS, _super_users),
    at_most(
        security.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS,
        security.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS,
    ),
    *TLS_RULES,
    Rule(node.CONTROLLER_QUORUM_VOTERS, _voters),
    Rule(node.CONTROLLER_QUORUM_VOTERS, _odd_voters, hint=True),
    below(node.CONTROLLER_QUORUM_HEARTBEAT_INTERVAL_MS, node.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS),
    below(node.BROKER_HEARTBEAT_INTERVAL_MS, node.BROKER_SESSION_TIMEOUT_MS),
    at_most(defaults.MIN_INSYNC_REPLICAS, node.DEFAULT_REPLICATION_FACTOR, hint=True),
    at_most(groups.TRANSACTION_STATE_LOG_MIN_ISR, groups.TRANSACTION_STATE_LOG_REPLICATION_FACTOR, hint=True),
    at_most(defaults.LOG_CLEANER_MIN_COMPACTION_LAG_MS, defaults.LOG_CLEANER_MAX_COMPACTION_LAG_MS),
    Rule(defaults.MESSAGE_MAX_BYTES, _request_holds_batch),
    at_most(groups.GROUP_MIN_SESSION_TIMEOUT_MS, groups.GROUP_MAX_SESSION_TIMEOUT_MS),
    at_most(groups.GROUP_MIN_SESSION_TIMEOUT_MS, groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
    at_most(groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS, groups.GROUP_MAX_SESSION_TIMEOUT_MS),
    below(groups.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, groups.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
)

TOPIC_RULES: Final = (at_most(topic.MIN_COMPACTION_LAG_MS, topic.MAX_COMPACTION_LAG_MS),)
