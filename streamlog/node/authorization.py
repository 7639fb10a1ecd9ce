"""A node's authorizer and its gate, from its settings (authorizer.class.name)."""

from __future__ import annotations

from streamlog.access.principals import parse_mapping_rules
from streamlog.config import Config
from streamlog.config.settings import security_settings as security
from streamlog.metadata.view import MetadataView
from streamlog.ports import Ports
from streamlog.services.access.authenticator import Authenticator
from streamlog.services.access.authorizer import Authorizer
from streamlog.services.access.gate import MethodGate


def made_authorizer(config: Config, view: MetadataView) -> Authorizer:
    return Authorizer(
        view,
        enabled=config[security.AUTHORIZER_CLASS_NAME] != "none",
        super_users=config[security.SUPER_USERS],
        default=config[security.ALLOW_EVERYONE_IF_NO_ACL_FOUND],
    )


def made_gate(config: Config, view: MetadataView, authorizer: Authorizer, ports: Ports) -> MethodGate | None:
    """None without an authorizer: calls pay nothing then."""
    if not authorizer.enabled:
        return None
    authenticator = Authenticator(view, ports.clock, ports.random, ports.workers)
    rules = parse_mapping_rules(config[security.SSL_PRINCIPAL_MAPPING_RULES])
    return MethodGate(view, authorizer, authenticator, rules)
