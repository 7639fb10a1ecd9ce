"""A node's listeners: names, protocols, addresses, TLS settings of their own, and what is refused."""

from __future__ import annotations

import pytest

from streamlog.config import PropertiesFile, load_node, print_config
from streamlog.config.listeners import client_listener, inter_broker_listener, listeners_of, tls_of
from streamlog.errors import InvalidConfigError

TWO = {
    "node.id": "1",
    "listeners": "CLIENT://:9092,INTERNAL://10.0.0.1:9093",
    "advertised.listeners": "CLIENT://node1.example:443",
    "listener.security.protocol.map": "CLIENT:SSL,INTERNAL:SSL",
    "inter.broker.listener.name": "INTERNAL",
    "ssl.keystore.location": "/certs/node-1.pem",
    "ssl.truststore.location": "/certs/ca.crt",
    "authorizer.class.name": "StandardAuthorizer",
}


def overrides(values: dict[str, str | None]) -> list[str]:
    return [f"{name}={value}" for name, value in {**TWO, **values}.items() if value is not None]


def refusal(values: dict[str, str | None]) -> str:
    with pytest.raises(InvalidConfigError) as refused:
        load_node(overrides=overrides(values))
    return str(refused.value)


def test_two_listeners() -> None:
    loaded = load_node(overrides=overrides({}))
    assert loaded.warnings == ()
    clients, nodes = listeners_of(loaded.config)
    assert (clients.name, str(clients.bind), str(clients.advertised)) == ("CLIENT", ":9092", "node1.example:443")
    assert (nodes.name, str(nodes.bind), str(nodes.advertised)) == ("INTERNAL", "10.0.0.1:9093", "10.0.0.1:9093")
    assert [(one.for_clients, one.for_nodes, one.secure) for one in (clients, nodes)] == [
        (True, False, True),
        (False, True, True),
    ]
    assert (client_listener(loaded.config), inter_broker_listener(loaded.config)) == (clients, nodes)


def test_a_single_one_is_for_clients_and_nodes() -> None:
    [only] = listeners_of(load_node(overrides=["node.id=1"]).config)
    assert (only.name, only.for_clients, only.for_nodes, only.secure) == ("PLAINTEXT", True, True, False)


def test_names_are_those_of_kafka_whatever_their_case() -> None:
    values = {"listeners": "client://:9092,internal://10.0.0.1:9093", "inter.broker.listener.name": "internal"}
    assert [one.name for one in listeners_of(load_node(overrides=overrides(dict(values))).config)] == [
        "CLIENT",
        "INTERNAL",
    ]


def test_a_listener_has_a_store_of_its_own_or_the_common_one_never_a_mixture() -> None:
    config = load_node(
        overrides=overrides(
            {
                "listener.name.client.ssl.keystore.key": "KEY",
                "listener.name.client.ssl.keystore.certificate.chain": "CHAIN",
                "listener.name.client.ssl.client.auth": "none",
            }
        )
    ).config
    own, common = tls_of(config, "CLIENT"), tls_of(config, "INTERNAL")
    assert (own.keystore, own.key, own.chain, own.truststore) == (None, "KEY", "CHAIN", "/certs/ca.crt")
    assert (common.keystore, common.key) == ("/certs/node-1.pem", None)
    assert [one.client_auth for one in listeners_of(config)] == ["none", "required"]
    assert "KEY" not in repr(own)


def test_a_secret_of_a_listener_is_not_printed_and_the_rest_is_read_back() -> None:
    values = {"listener.name.client.ssl.keystore.key": "SECRET", "listener.name.client.ssl.client.auth": "none"}
    values["listener.name.client.ssl.keystore.certificate.chain"] = "CHAIN"
    printed = print_config(load_node(overrides=overrides(dict(values))).config)
    assert "SECRET" not in printed
    assert "#listener.name.client.ssl.keystore.key=[hidden]" in printed
    assert "listener.name.client.ssl.client.auth=none" in printed
    kept = printed.replace("#listener.name.client.ssl.keystore.key=[hidden]", "listener.name.client.ssl.keystore.key=S")
    again = load_node(PropertiesFile("printed", kept)).config
    assert listeners_of(again)[0].client_auth == "none"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"inter.broker.listener.name": None},
            "for nodes must be said: set inter.broker.listener.name",
        ),
        ({"inter.broker.listener.name": "OTHER"}, "must be one of listeners=CLIENT://:9092,INTERNAL://10.0.0.1:9093"),
        (
            {"listener.security.protocol.map": "CLIENT:SSL"},
            "INTERNAL has no security protocol: add INTERNAL:SSL",
        ),
        (
            {"listener.security.protocol.map": "CLIENT:SSL,CLIENT:PLAINTEXT,INTERNAL:SSL"},
            "must name each listener once",
        ),
        ({"listener.security.protocol.map": "CLIENT:SSL,CLIENT:PLAINTEXT"}, "must name each listener once"),
        ({"listener.security.protocol.map": "CLIENT:SASL_SSL"}, "SASL_SSL is not a protocol of listeners: use SSL"),
        ({"listener.security.protocol.map": "CLIENT:TLS"}, "must be one of NAME:PLAINTEXT, NAME:SSL"),
        ({"listeners": "CLIENT://:1,CLIENT://:2"}, "must have a name of its own for each listener"),
        ({"listeners": "CLIENT://:1,INTERNAL://:1"}, "must have an address of its own for each listener"),
        ({"listeners": "SASL_SSL://:9092,INTERNAL://:9093"}, "SASL_SSL is not a protocol of listeners: use SSL"),
        ({"advertised.listeners": None}, "listener CLIENT: clients cannot connect to a wildcard address"),
        ({"advertised.listeners": "CLIENT://a:1,PUBLIC://b:2"}, "must have the names of listeners=CLIENT"),
        ({"ssl.keystore.location": None}, "listener CLIENT: needs ssl.keystore.location"),
        ({"ssl.truststore.location": None}, "listener CLIENT: needs ssl.truststore.location"),
        (
            {
                "listener.name.client.ssl.truststore.certificates": "x",
                "listener.name.client.ssl.truststore.location": "y",
            },
            "listener CLIENT: must have a store as a file or as text, not both",
        ),
        ({"ssl.client.auth": "requested"}, "ssl.client.auth=requested is not supported: a listener"),
        ({"ssl.client.auth": "none"}, "listener INTERNAL: ssl.client.auth=none: nodes are known by their certificates"),
        (
            {"listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SSL", "authorizer.class.name": "none"},
            "listener CLIENT: other machines can reach that address",
        ),
        ({"listener.security.protocol.map": "CLIENT:SSL,INTERNAL:PLAINTEXT"}, "principals are known over TLS only"),
        ({"ssl.principal.mapping.rules": "x"}, "ssl.principal.mapping.rules=x: must be RULE:pattern"),
        (
            {"listener.name.client.ssl.principal.mapping.rules": "RULE:(/x/"},
            "listener.name.client.ssl.principal.mapping.rules: pattern '(' is not a regular expression",
        ),
        ({"listener.name.client.ssl.client.auth": "maybe"}, "listener.name.client.ssl.client.auth='maybe'"),
    ],
)
def test_refused(values: dict[str, str | None], said: str) -> None:
    assert said in refusal(values)


def test_a_listener_without_client_certificates_needs_no_authorities_of_its_own() -> None:
    values = {
        "listener.name.client.ssl.client.auth": "none",
        "ssl.truststore.location": None,
        "listener.name.internal.ssl.truststore.location": "/certs/ca.crt",
    }
    assert listeners_of(load_node(overrides=overrides(values)).config)[0].client_auth == "none"


def test_warnings() -> None:
    open_to_all = load_node(
        overrides=overrides({"listener.name.client.ssl.client.auth": "none", "authorizer.class.name": "none"})
    )
    assert "everyone who reaches the listener may read, write and administer" in str(open_to_all.warnings)
    https: dict[str, str | None] = {
        "http.listeners": "HTTPS://:1",
        "listener.name.https.ssl.principal.mapping.rules": "DEFAULT",
    }
    assert "has no effect: over HTTPS a certificate names no one" in str(load_node(overrides=overrides(https)).warnings)
    unknown = load_node(overrides=overrides({"listener.name.public.ssl.client.auth": "none"}))
    assert "has no effect: there is no listener PUBLIC" in str(unknown.warnings)
    other = load_node(overrides=overrides({"listener.name.client.max.connections": "5"}))
    assert "of one listener only ssl.keystore.*" in str(other.warnings).lower()
    voters = load_node(overrides=overrides({"controller.quorum.voters": "1@10.0.0.1:9092"}))
    assert "gives this node port 9092, but it is advertised at INTERNAL://10.0.0.1:9093" in str(voters.warnings)
