"""Rules for a node's listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streamlog.access.principals import parse_mapping_rules
from streamlog.config.addresses import Protocol
from streamlog.config.effective import Config
from streamlog.config.listeners import (
    HTTPS,
    advertised_of,
    https_client_auth,
    inter_broker_name,
    of_listener,
    protocol_of,
    serves_https,
    tls_of,
)
from streamlog.config.rule import KEY_MISSING, TRUST_MISSING, Rule, is_now
from streamlog.config.settings import node_settings as node
from streamlog.config.settings import security_settings as security
from streamlog.config.settings.listener_settings import listener_in, listener_setting

REQUESTED: Final = (
    "ssl.client.auth=requested is not supported: a listener either requires the caller's certificate or does not "
    "request one; use required, or none for a listener whose clients log in with passwords or tokens"
)


def _names(config: Config) -> str | None:
    names = [one.name for one in config[node.LISTENERS]]
    if len(set(names)) != len(names):
        return "must have a name of its own for each listener"
    bound = [one.address for one in config[node.LISTENERS] if one.address.port]
    if len(set(bound)) != len(bound):
        return "must have an address of its own for each listener"
    if len(names) > 1 and config[node.INTER_BROKER_LISTENER_NAME] is None:
        return f"which of them is for nodes must be said: set {node.INTER_BROKER_LISTENER_NAME.name}"
    return None


def _mapped(config: Config) -> str | None:
    for one in config[node.LISTENERS]:
        if protocol_of(config, one.name) is None:
            return (
                f"listener {one.name} has no security protocol: add {one.name}:SSL, or {one.name}:PLAINTEXT, to "
                f"{node.LISTENER_SECURITY_PROTOCOL_MAP.name}"
            )
    return None


def _map_is_unique(config: Config) -> str | None:
    names = [one.name for one in config[node.LISTENER_SECURITY_PROTOCOL_MAP]]
    return "must name each listener once" if len(set(names)) != len(names) else None


def _inter_broker(config: Config) -> str | None:
    given = config[node.INTER_BROKER_LISTENER_NAME]
    if given is None or given in {one.name for one in config[node.LISTENERS]}:
        return None
    return f"must be one of {is_now(config, node.LISTENERS)}"


def _advertised(config: Config) -> str | None:
    listeners = config[node.LISTENERS]
    names = {one.name for one in listeners}
    given = [one.name for one in config[node.ADVERTISED_LISTENERS]]
    if len(set(given)) != len(given):
        return "must name each listener once"
    if all(name in names for name in given):
        return None
    if len(names) == 1:
        return f"must be {listeners[0].name}:// as {is_now(config, node.LISTENERS)}"
    return f"must have the names of {is_now(config, node.LISTENERS)}"


def _for_each(check: Callable[[Config, str], str | None]) -> Callable[[Config], str | None]:
    def broken(config: Config) -> str | None:
        listeners = config[node.LISTENERS]
        for one in listeners:
            complaint = check(config, one.name)
            if complaint is not None:
                return complaint if len(listeners) == 1 else f"listener {one.name}: {complaint}"
        return None

    return broken


def _public_plaintext(config: Config, name: str) -> str | None:
    """FAULTS "Security": 127.0.0.1 by default; a plain-text public address needs an explicit second setting."""
    listener = next(one for one in config[node.LISTENERS] if one.name == name)
    if protocol_of(config, name) is not Protocol.PLAINTEXT or listener.address.loopback:
        return None
    if config[node.ALLOW_PLAINTEXT_PUBLIC_LISTENERS]:
        return None
    return (
        f"other machines can reach that address, without encryption or authentication: use SSL://, or set "
        f"{node.ALLOW_PLAINTEXT_PUBLIC_LISTENERS.name}=true"
    )


def _reachable(config: Config, name: str) -> str | None:
    listener = next(one for one in config[node.LISTENERS] if one.name == name)
    if not advertised_of(config, listener).address.is_wildcard:
        return None
    return f"clients cannot connect to a wildcard address: set {node.ADVERTISED_LISTENERS.name} too"


def _has_key(config: Config, name: str) -> str | None:
    return None if not _is_secure(config, name) or tls_of(config, name).has_key else KEY_MISSING


def _trusts(config: Config, name: str) -> str | None:
    if not _is_secure(config, name) or tls_of(config, name).has_trust:
        return None
    if name != inter_broker_name(config) and of_listener(config, name, security.SSL_CLIENT_AUTH) == "none":
        return None
    return f"{TRUST_MISSING}: nodes verify each other's certificates, and those of clients"


def _one_keystore(config: Config, name: str) -> str | None:
    found = tls_of(config, name)
    if (found.keystore is not None and found.key is not None) or (
        found.truststore is not None and found.roots is not None
    ):
        return "must have a store as a file or as text, not both"
    return None


def _client_auth(config: Config, name: str) -> str | None:
    wanted = of_listener(config, name, security.SSL_CLIENT_AUTH)
    if wanted == "requested":
        return REQUESTED
    if wanted == "none" and _is_secure(config, name) and name == inter_broker_name(config):
        return (
            "ssl.client.auth=none: nodes are known by their certificates, so such clients need a listener of their own "
            f"(listeners, {node.INTER_BROKER_LISTENER_NAME.name})"
        )
    return None


def _open_to_all(config: Config, name: str) -> str | None:
    if not _is_secure(config, name) or of_listener(config, name, security.SSL_CLIENT_AUTH) != "none":
        return None
    if config[security.AUTHORIZER_CLASS_NAME] != "none":
        return None
    return (
        f"ssl.client.auth=none and {security.AUTHORIZER_CLASS_NAME.name}=none: everyone who reaches the listener may "
        "read, write and administer"
    )


def _authorizer_needs_tls(config: Config) -> str | None:
    if config[security.AUTHORIZER_CLASS_NAME] == "none":
        return None
    if all(_is_secure(config, one.name) for one in config[node.LISTENERS]):
        return None
    return (
        f"principals are known over TLS only, and nodes by their certificates: {node.LISTENERS.name} must be SSL:// "
        "(streamlogctl security init makes certificates)"
    )


def _own_port(config: Config) -> str | None:
    """A voter that listens on another port than the other voters connect to receives nothing from them."""
    listener = next((one for one in config[node.LISTENERS] if one.name == inter_broker_name(config)), None)
    own = [voter for voter in config[node.CONTROLLER_QUORUM_VOTERS] if voter.node_id == config[node.NODE_ID]]
    if not own or listener is None:
        return None
    where = advertised_of(config, listener)
    if own[0].address.port == where.address.port:
        return None
    return f"gives this node port {own[0].address.port}, but it is advertised at {where}"


def _mapping_rules(config: Config) -> str | None:
    common = security.SSL_PRINCIPAL_MAPPING_RULES
    own = [listener_setting(one.name, common) for one in config[node.LISTENERS]]
    for setting in (common, *(one for one in own if config.has(one))):
        try:
            parse_mapping_rules(config[setting])
        except ValueError as error:
            return str(error) if setting is common else f"{setting.name}: {error}"
    return None


def _mapping_over_https(config: Config) -> str | None:
    own = listener_setting(HTTPS, security.SSL_PRINCIPAL_MAPPING_RULES)
    if not config.has(own) or not serves_https(config):
        return None
    return f"{own.name} has no effect: over HTTPS a certificate names no one"


def _of_unknown_listener(config: Config) -> str | None:
    names = {one.name for one in config[node.LISTENERS]}
    if serves_https(config):
        names.add(HTTPS)
    for one in config:
        listener = listener_in(one.setting.name)
        if listener is not None and listener not in names:
            return f"{one.setting.name} has no effect: there is no listener {listener}"
    return None


def _https_name(config: Config) -> str | None:
    if not serves_https(config) or all(one.name != HTTPS for one in config[node.LISTENERS]):
        return None
    return f"{HTTPS} is the name of the addresses over TLS in {node.HTTP_LISTENERS.name}: give this listener another"


def _http_addresses(config: Config) -> str | None:
    bound = [one.address for one in config[node.HTTP_LISTENERS] if one.address.port]
    return "must not have an address twice" if len(set(bound)) != len(bound) else None


def _https_key(config: Config) -> str | None:
    return None if not serves_https(config) or tls_of(config, HTTPS).has_key else f"HTTPS {KEY_MISSING}"


def _https_stores(config: Config) -> str | None:
    return _one_keystore(config, HTTPS) if serves_https(config) else None


def _https_trust(config: Config) -> str | None:
    if not serves_https(config) or https_client_auth(config) == "none" or tls_of(config, HTTPS).has_trust:
        return None
    return f"listener.name.https.ssl.client.auth={https_client_auth(config)} {TRUST_MISSING}"


def _is_secure(config: Config, name: str) -> bool:
    return protocol_of(config, name) is Protocol.SSL


LISTENER_RULES: Final = (
    Rule(node.LISTENERS, _names),
    Rule(node.LISTENERS, _mapped),
    Rule(node.LISTENER_SECURITY_PROTOCOL_MAP, _map_is_unique),
    Rule(node.INTER_BROKER_LISTENER_NAME, _inter_broker),
    Rule(node.ADVERTISED_LISTENERS, _advertised),
    Rule(node.LISTENERS, _for_each(_public_plaintext)),
    Rule(node.LISTENERS, _for_each(_reachable)),
    Rule(node.LISTENERS, _for_each(_has_key)),
    Rule(node.LISTENERS, _for_each(_trusts)),
    Rule(node.LISTENERS, _for_each(_one_keystore)),
    Rule(node.LISTENERS, _for_each(_client_auth)),
    Rule(node.LISTENERS, _for_each(_open_to_all), hint=True),
    Rule(security.AUTHORIZER_CLASS_NAME, _authorizer_needs_tls),
    Rule(security.SSL_PRINCIPAL_MAPPING_RULES, _mapping_rules),
    Rule(node.HTTP_LISTENERS, _mapping_over_https, hint=True),
    Rule(node.LISTENERS, _https_name),
    Rule(node.HTTP_LISTENERS, _http_addresses),
    Rule(node.HTTP_LISTENERS, _https_key),
    Rule(node.HTTP_LISTENERS, _https_stores),
    Rule(node.HTTP_LISTENERS, _https_trust),
    Rule(node.CONTROLLER_QUORUM_VOTERS, _own_port, hint=True),
    Rule(node.LISTENERS, _of_unknown_listener, hint=True),
)
