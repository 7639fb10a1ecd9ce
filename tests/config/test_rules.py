"""What must hold between settings: each rule broken, and what it says; and that the safe way is the easy one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamlog.config import Loaded, PropertiesFile, load_admin, load_consumer, load_node, load_producer
from streamlog.config.client_rules import idempotence_denied
from streamlog.config.settings import node_settings as node
from streamlog.errors import InvalidConfigError

TLS = {"ssl.keystore.location": "key.pem", "ssl.truststore.location": "ca.pem"}


def of_node(values: dict[str, object]) -> Loaded:
    return load_node(None, ["node.id=1", *(f"{name}={value}" for name, value in values.items())])


def complaint(load: Callable[[dict[str, object]], Loaded], values: dict[str, object]) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        load(values)
    assert caught.value.details["field"]
    return str(caught.value).split(": ", 1)[1] if caught.value.message.startswith(("--", "arg")) else str(caught.value)


class TestListeners:
    """FAULTS "Security": 127.0.0.1 by default; a plain-text public address only with an explicit setting."""

    def test_nobody_else_reaches_a_node_by_default(self) -> None:
        (listener,) = of_node({}).config[node.LISTENERS]
        assert str(listener) == "PLAINTEXT://127.0.0.1:9092"

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
    def test_loopback_needs_no_more(self, host: str) -> None:
        assert of_node({"listeners": f"PLAINTEXT://{host}:9092"}).warnings == ()

    @pytest.mark.parametrize("host", ["10.0.0.1", "node-1", "[2001:db8::1]", "169.254.0.1"])
    def test_plain_text_for_others_must_be_asked_for(self, host: str) -> None:
        values: dict[str, object] = {"listeners": f"PLAINTEXT://{host}:9092"}
        assert "allow.plaintext.public.listeners=true" in complaint(of_node, values)
        assert of_node({**values, "allow.plaintext.public.listeners": "true"}).warnings == ()

    @pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
    def test_every_address_too_and_others_need_a_name_for_it(self, host: str) -> None:
        values: dict[str, object] = {"listeners": f"PLAINTEXT://{host}:9092"}
        assert "allow.plaintext.public.listeners=true" in complaint(of_node, values)
        values["allow.plaintext.public.listeners"] = "true"
        assert complaint(of_node, values).endswith("set advertised.listeners too")
        values["advertised.listeners"] = "PLAINTEXT://node-1:9092"
        assert of_node(values).warnings == ()

    def test_tls_needs_a_key_and_somebody_to_trust(self) -> None:
        values: dict[str, object] = {"listeners": "SSL://10.0.0.1:9092"}
        assert "needs ssl.keystore.location, or ssl.keystore.key and" in complaint(of_node, values)
        values["ssl.keystore.location"] = "key.pem"
        assert "needs ssl.truststore.location or" in complaint(of_node, values)
        assert of_node({**values, **TLS}).warnings == ()
        half = {**values, **TLS, "ssl.keystore.key": "pem"}
        del half["ssl.keystore.location"]
        assert "needs ssl.keystore.location, or ssl.keystore.key and" in complaint(of_node, half)

    def test_advertised_in_the_same_protocol(self) -> None:
        text = complaint(of_node, {"advertised.listeners": "SSL://node-1:9092"})
        assert text.endswith("must be PLAINTEXT:// as listeners=PLAINTEXT://127.0.0.1:9092")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"broker.session.timeout.ms": 500}, "must be below broker.session.timeout.ms=500"),
        ({"controller.quorum.election.timeout.ms": 100}, "must be below controller.quorum.election.timeout.ms=100"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, "must name each node once"),
        ({"controller.quorum.voters": "1@a:1,2@a:1"}, "must give each node an address of its own"),
        (
            {"controller.quorum.voters": "1@a:1", "controller.quorum.bootstrap.servers": "b:1"},
            "must not be set together with controller.quorum.bootstrap.servers",
        ),
        ({**TLS, "ssl.keystore.key": "x"}, "must not be set together with ssl.keystore.key"),
        ({**TLS, "ssl.truststore.certificates": "x"}, "must not be set together with ssl.truststore.certificates"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///k"}, "set authorizer.class.name=StandardAuthorizer"),
        (
            {
                **TLS,
                "listeners": "SSL://127.0.0.1:1",
                "authorizer.class.name": "StandardAuthorizer",
                "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
                "sasl.oauthbearer.expected.issuer": "i",
            },
            "needs sasl.oauthbearer.expected.issuer and sasl.oauthbearer.expected.audience, so that tokens for other",
        ),
        ({"http.api.enable": "true", "http.listeners": ""}, "needs an address in http.listeners"),
        (
            {**TLS, "listeners": "SSL://127.0.0.1:1", "http.api.enable": "true"},
            "callers over HTTP have no certificate",
        ),
        (
            {"http.api.enable": "true", "http.listeners": "127.0.0.1:1,0.0.0.0:2"},
            "other machines can reach 0.0.0.0:2 (http.listeners), without encryption or authentication",
        ),
        (
            {
                **TLS,
                "listeners": "SSL://127.0.0.1:1",
                "authorizer.class.name": "StandardAuthorizer",
                "allow.plaintext.public.listeners": "true",
                "http.api.enable": "true",
                "http.listeners": "node-1:2",
            },
            "other machines can reach node-1:2 (http.listeners), and passwords and tokens would be sent to it without",
        ),
        (
            {
                **TLS,
                "listeners": "SSL://127.0.0.1:1",
                "http.api.enable": "true",
                "http.listeners": "HTTPS://127.0.0.1:1,127.0.0.1:2",
                "listener.name.https.ssl.client.auth": "required",
            },
            "callers over HTTP have no certificate",
        ),
        (
            {**TLS, "http.api.enable": "true", "http.listeners": "HTTPS://:2"},
            "other machines can reach HTTPS://:2 (http.listeners), without authentication: set listener.name.https.ssl",
        ),
        ({"http.listeners": "HTTPS://127.0.0.1:1"}, "HTTPS needs ssl.keystore.location, or ssl.keystore.key and"),
        ({"http.listeners": "ftp://127.0.0.1:1"}, "must be one of host:port, HTTPS://host:port"),
        ({"http.listeners": "127.0.0.1:1,HTTPS://127.0.0.1:1", **TLS}, "must not have an address twice"),
        (
            {
                "ssl.keystore.location": "/k",
                "http.listeners": "HTTPS://:1",
                "listener.name.https.ssl.client.auth": "requested",
            },
            "listener.name.https.ssl.client.auth=requested needs ssl.truststore.location",
        ),
        (
            {**TLS, "http.listeners": "HTTPS://:1", "listener.name.https.ssl.keystore.key": "k"},
            "HTTPS needs ssl.keystore.location, or ssl.keystore.key and",
        ),
        (
            {
                **TLS,
                "listeners": "https://127.0.0.1:1",
                "listener.security.protocol.map": "HTTPS:SSL",
                "http.listeners": "HTTPS://127.0.0.1:2",
            },
            "HTTPS is the name of the addresses over TLS in http.listeners",
        ),
        ({"http.api.allowed.origins": "app.example"}, "must be one of https://host"),
        ({"http.api.allowed.origins": "https://app.example/path"}, "is not a valid host name"),
        ({"message.max.bytes": 4 << 20}, "must be at most 4190208, to fit socket.request.max.bytes=4194304"),
        (
            {"log.cleaner.min.compaction.lag.ms": 2, "log.cleaner.max.compaction.lag.ms": 1},
            "must be at most log.cleaner.max.compaction.lag.ms=1",
        ),
        ({"group.max.session.timeout.ms": 5_000}, "must be at most group.max.session.timeout.ms=5000"),
        ({"group.min.session.timeout.ms": 45_001}, "must be at most group.consumer.session.timeout.ms=45000"),
        ({"group.max.session.timeout.ms": 44_999}, "must be at most group.max.session.timeout.ms=44999"),
        ({"group.consumer.heartbeat.interval.ms": 45_000}, "must be below group.consumer.session.timeout.ms=45000"),
    ],
)
def test_a_node_refuses(values: dict[str, object], said: str) -> None:
    assert said in complaint(of_node, values)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"http.listeners": "127.0.0.1:1,[::1]:2,localhost:3"},
        {"http.listeners": ":1", "allow.plaintext.public.listeners": "true"},
        {**TLS, "listeners": "SSL://127.0.0.1:1", "authorizer.class.name": "StandardAuthorizer"},
        {
            **TLS,
            "listeners": "SSL://127.0.0.1:1",
            "authorizer.class.name": "StandardAuthorizer",
            "http.listeners": "HTTPS://:2,HTTP://127.0.0.1:3",
        },
        {
            **TLS,
            "listeners": "SSL://127.0.0.1:1",
            "http.listeners": "HTTPS://:2",
            "listener.name.https.ssl.client.auth": "required",
        },
        {"http.api.allowed.origins": "https://App.example,http://localhost:3000,*"},
    ],
)
def test_the_api_over_http_may_be_enabled(values: dict[str, object]) -> None:
    assert of_node({**values, "http.api.enable": "true"}).warnings == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"controller.quorum.voters": "2@a:1,3@b:1"}, "2 voters tolerate no more failures than 1"),
        (
            {"controller.quorum.voters": "1@localhost:9093"},
            "gives this node port 9093, but it is advertised at PLAINTEXT://127.0.0.1:9092",
        ),
        ({"min.insync.replicas": 4, "default.replication.factor": 3}, "must be at most default.replication.factor=3"),
        (
            {"transaction.state.log.min.isr": 2, "transaction.state.log.replication.factor": 1},
            "must be at most transaction.state.log.replication.factor=1",
        ),
    ],
)
def test_a_node_starts_and_warns(values: dict[str, object], said: str) -> None:
    warnings = [warning for warning in of_node(values).warnings if "no effect in this release" not in warning]
    assert len(warnings) == 1
    assert warnings[0].endswith(said)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"enable.idempotence": True, "acks": 1}, "enable.idempotence=true: needs acks=all"),
        ({"enable.idempotence": True, "retries": 0}, "enable.idempotence=true: needs retries above 0"),
        (
            {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
            "enable.idempotence=true: needs max.in.flight.requests.per.connection of at most 5",
        ),
        ({"transactional.id": "t", "acks": 1}, "transactional.id=t: needs acks=all"),
        ({"transactional.id": "t", "enable.idempotence": False}, "transactional.id=t: needs enable.idempotence=true"),
        (
            {"delivery.timeout.ms": 30_004},
            "delivery.timeout.ms=30004: must be at least linger.ms + request.timeout.ms = 30005",
        ),
        ({"buffer.memory": 2_000}, "max.request.size=1048576: must be at most buffer.memory=2000"),
        (
            {"sasl.mechanism": "OAUTHBEARER"},
            "security.protocol=PLAINTEXT: must be SASL_SSL: bearer tokens are sent over TLS only",
        ),
    ],
)
def test_a_producer_refuses(values: dict[str, object], said: str) -> None:
    assert complaint(load_producer, values) == said


def test_idempotence_by_default_gives_way() -> None:
    assert idempotence_denied(load_producer({}).config) is None
    assert idempotence_denied(load_producer({"acks": 1}).config) == "needs acks=all"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"heartbeat.interval.ms": 45_000}, "must be below session.timeout.ms=45000"),
        ({"fetch.max.wait.ms": 30_000}, "must be below request.timeout.ms=30000"),
    ],
)
def test_a_consumer_refuses(values: dict[str, object], said: str) -> None:
    assert said in complaint(load_consumer, values)


def test_where_a_client_gets_its_token_from() -> None:
    login: dict[str, object] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **TLS}
    url, function = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwt.retriever.class"
    for load in (load_producer, load_consumer, load_admin):
        assert f"needs one of {url} and {function}" in complaint(load, login)
        assert f"needs one of {url} and {function}" in complaint(load, {**login, url: "file:///t", function: "a:b"})
        assert "needs sasl.oauthbearer.client.credentials.client.id and" in complaint(
            load, {**login, url: "https://i/t"}
        )
        assert load({**login, url: "file:///t"}).warnings == ()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://issuer/keys", "must be https://: others can read and change what is sent over http://"),
        ("ftp://issuer/keys", "must be one of https://..., file:///..."),
        ("https://", "must be one of https://..., file:///..."),
        ("https://user:secret@issuer/keys", "must have no user, password or fragment"),
        ("file://host/keys", "must be file:/// and an absolute path"),
        ("https://issuer/a b", "and no spaces"),
        ("https://issuer:port/", "must be a URL"),
    ],
)
def test_urls_of_keys_and_tokens(url: str, said: str) -> None:
    text = complaint(of_node, {"sasl.oauthbearer.jwks.endpoint.url": url})
    assert said in text
    assert "secret" not in text


@pytest.mark.parametrize("name", ["sasl.oauthbearer.jwks.endpoint.url", "log.retention.ms"])
def test_a_long_value_is_refused_at_once(name: str) -> None:
    """In a time that grows with its length: other nodes and clients send such values."""
    assert len(complaint(of_node, {name: "://" * 500_000})) < 1_000
    assert "secret" not in complaint(of_node, {name: "x://" * 100_000 + "user:secret@host"})


def test_a_client_needs_authorities_for_tls_and_a_certificate_whole_or_not_at_all() -> None:
    for load in (load_producer, load_consumer, load_admin):
        said = complaint(load, {"security.protocol": "SSL", "ssl.keystore.key": "x"})
        assert "needs ssl.keystore.location, or ssl.keystore.key and" in said
        assert "needs ssl.truststore.location or" in said
        load({"security.protocol": "SSL", "ssl.truststore.location": "/ca.crt"})


def test_back_off_that_stands_on_its_head_is_warned_of() -> None:
    (warning,) = load_admin({"retry.backoff.ms": 5_000}).warnings
    assert warning == "argument: retry.backoff.ms=5000: must be at most retry.backoff.max.ms=1000"


def test_the_file_and_line_are_reported() -> None:
    file = PropertiesFile("c.properties", "\nheartbeat.interval.ms=50000")
    with pytest.raises(InvalidConfigError, match=r"^c\.properties:2: heartbeat\.interval\.ms=50000: must be below"):
        load_consumer(file=file)
