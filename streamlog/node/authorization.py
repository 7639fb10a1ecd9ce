"""A node's authorizer, its gate and its quotas, from its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlog.access.principals import PrincipalMapping, parse_mapping_rules
from streamlog.config import Config
from streamlog.config.listeners import of_listener
from streamlog.config.settings import security_settings as security
from streamlog.config.settings.node_settings import LISTENERS, MAX_CONNECTION_CREATION_RATE, NUM_PARTITIONS
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.view import MetadataView
from streamlog.ports import Ports
from streamlog.services.access.access_lease import AccessLease
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.access.gate import MethodGate, TokenAccess
from streamlog.services.quotas.connection_rates import ConnectionRates
from streamlog.services.quotas.gate import QuotaGate
from streamlog.services.quotas.limits import QuotaLimits

if TYPE_CHECKING:
    from streamlog.services.access.token_keys import KeyTimes


def made_authorizer(config: Config, view: MetadataView) -> Authorizer:
    return Authorizer(
        view,
        enabled=config[security.AUTHORIZER_CLASS_NAME] != "none",
        super_users=config[security.SUPER_USERS],
        default=config[security.ALLOW_EVERYONE_IF_NO_ACL_FOUND],
    )


def made_mapping(config: Config) -> PrincipalMapping:
    """A call has the name of its listener where there are several."""
    names = [one.name for one in config[LISTENERS]]
    rules = {
        name: parse_mapping_rules(of_listener(config, name, security.SSL_PRINCIPAL_MAPPING_RULES)) for name in names
    }
    return PrincipalMapping(rules[names[0]] if len(names) == 1 else (), rules)


def made_gate(
    config: Config, view: MetadataView, authorizer: Authorizer, lease: AccessLease, ports: Ports
) -> MethodGate | None:
    """None without an authorizer: calls pay nothing then."""
    if not authorizer.enabled:
        return None
    authenticator = Authenticator(view, ports.clock, ports.random, ports.workers)
    return MethodGate(view, authorizer, authenticator, made_mapping(config), lease, _made_tokens(config, ports))


def made_quotas(config: Config, view: MetadataView, configs: NodeConfigs, ports: Ports) -> QuotaGate:
    limits = QuotaLimits(
        view,
        ports.clock,
        window_num=config[security.QUOTA_WINDOW_NUM],
        window_s=config[security.QUOTA_WINDOW_SIZE_SECONDS],
    )
    return QuotaGate(limits, ports.clock, made_mapping(config), view, lambda: configs.node[NUM_PARTITIONS])


def made_connection_rates(view: MetadataView, configs: NodeConfigs) -> ConnectionRates:
    return ConnectionRates(view, lambda: configs.node[MAX_CONNECTION_CREATION_RATE])


def _made_tokens(config: Config, ports: Ports) -> TokenAccess | None:
    """None without an issuer, and in a simulation, which has none."""
    url = config[security.SASL_OAUTHBEARER_JWKS_ENDPOINT_URL]
    issuer = config[security.SASL_OAUTHBEARER_EXPECTED_ISSUER]
    if url is None or issuer is None or ports.documents is None:
        return None
    # Expensive imports, of no use to nodes without tokens.
    from streamlog.access.tokens import TokenRules
    from streamlog.services.access.token_keys import TokenKeys
    from streamlog.services.access.token_logins import TokenLogins
    from streamlog.services.access.token_sessions import TokenSessions

    keys = TokenKeys(url, ports.documents, ports.clock, ports.workers, ports.probe, _key_times(config))
    rules = TokenRules(
        issuer=issuer,
        audiences=config[security.SASL_OAUTHBEARER_EXPECTED_AUDIENCE],
        user_claim=config[security.SASL_OAUTHBEARER_SUB_CLAIM_NAME],
        clock_skew_ms=config[security.SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS] * 1000,
    )
    logins = TokenLogins(keys, rules, ports.clock, ports.random)
    return TokenAccess(logins, TokenSessions(logins, ports.clock))


def _key_times(config: Config) -> KeyTimes:
    from streamlog.services.access.token_keys import KeyTimes

    return KeyTimes(
        refresh_s=config[security.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS] / 1000,
        pause_s=config[security.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS] / 1000,
        pause_max_s=config[security.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS] / 1000,
    )
