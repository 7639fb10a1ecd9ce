"""From a user's file and command line to a configuration: what counts, what is said when something is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.config import Loaded, PropertiesFile, Source, load_admin, load_consumer, load_node, load_producer
from streamlog.config.load import REPORTED_MAX
from streamlog.config.settings import client_settings, consumer_settings, log_settings, node_settings, producer_settings
from streamlog.config.settings.node_settings import NODE
from streamlog.errors import InvalidConfigError


def node(text: str = "", *overrides: str) -> Loaded:
    return load_node(PropertiesFile("server.properties", text), ["node.id=1", *overrides])


def refusal(text: str = "", *overrides: str) -> InvalidConfigError:
    with pytest.raises(InvalidConfigError) as caught:
        node(text, *overrides)
    return caught.value


class TestPrecedence:
    def test_default(self) -> None:
        loaded = node()
        assert loaded.config[node_settings.NUM_PARTITIONS] == 1
        assert loaded.config.effective(node_settings.NUM_PARTITIONS).source is Source.DEFAULT_CONFIG
        assert loaded.warnings == ()

    def test_file_over_default(self) -> None:
        loaded = node("num.partitions=3")
        assert loaded.config[node_settings.NUM_PARTITIONS] == 3
        assert loaded.config.effective(node_settings.NUM_PARTITIONS).source is Source.STATIC_BROKER_CONFIG

    def test_override_over_file_and_the_last_override_counts(self) -> None:
        assert node("num.partitions=3", "num.partitions=4").config[node_settings.NUM_PARTITIONS] == 4
        assert node("", "num.partitions=4", "num.partitions = 5").config[node_settings.NUM_PARTITIONS] == 5

    def test_an_override_is_taken_as_it_is(self) -> None:
        loaded = node("", r"log.dirs=C:\data,b=c")
        assert loaded.config[log_settings.LOG_DIRS] == (r"C:\data", "b=c")

    def test_the_last_of_a_file_counts_and_is_warned_of(self) -> None:
        loaded = node("num.partitions=3\nnum.partitions=4")
        assert loaded.config[node_settings.NUM_PARTITIONS] == 4
        assert loaded.warnings == (
            "server.properties:2: 'num.partitions' is also set in server.properties:1; this value is used",
        )

    def test_what_was_given_is_the_static_layer(self) -> None:
        assert node("num.partitions=3\nno.such.thing=1").given == {"num.partitions": "3", "node.id": "1"}


class TestErrors:
    def test_file_line_name_value_and_range(self) -> None:
        error = refusal("# a comment\nnum.partitions=0")
        assert str(error) == "server.properties:2: num.partitions='0': must be in 1..10000"
        assert error.details == {"field": "num.partitions", "limit": "1..10000"}
        assert not error.retriable

    def test_an_override_is_named(self) -> None:
        assert str(refusal("", "num.partitions=x")) == "--override: num.partitions='x': must be a whole number"

    @pytest.mark.parametrize("override", ["", "num.partitions", "=3", " = 3"])
    def test_an_override_needs_a_name_and_a_value(self, override: str) -> None:
        assert str(refusal("", override)) == "--override: must be name=value"

    def test_all_errors_are_reported_together(self) -> None:
        error = refusal("num.partitions=0\ndelete.topic.enable=maybe", "log.segment.bytes=1")
        assert str(error).splitlines() == [
            "server.properties:1: num.partitions='0': must be in 1..10000",
            "server.properties:2: delete.topic.enable='maybe': must be true or false",
            "--override: log.segment.bytes='1': must be in 1048576..2147483647",
        ]

    def test_a_node_needs_its_number(self) -> None:
        with pytest.raises(InvalidConfigError, match=r"^node.id must be set \(range 0\.\.\): The id"):
            load_node()

    def test_a_misspelt_name_is_reported_with_the_missing_setting(self) -> None:
        with pytest.raises(InvalidConfigError) as caught:
            load_node(overrides=["node.idd=1"])
        assert "did you mean node.id?" in str(caught.value).splitlines()[1]

    def test_a_secret_is_in_no_message(self) -> None:
        secret = "-----BEGIN \x00 hunter2"
        error = refusal(f"ssl.keystore.key={secret}")
        assert str(error) == "server.properties:1: ssl.keystore.key=[hidden]: is not valid"
        assert "hunter2" not in repr(error.details)

    def test_a_long_value_is_cut_short(self) -> None:
        assert len(str(refusal("num.partitions=" + "9" * 100_000))) < 200

    def test_a_broken_rule_names_the_place(self) -> None:
        assert str(refusal("broker.heartbeat.interval.ms=6000")) == (
            "server.properties:1: broker.heartbeat.interval.ms=6000: must be below broker.session.timeout.ms=6000"
        )

    def test_a_file_that_is_none(self) -> None:
        assert str(refusal("a=\\u00")).startswith("server.properties:1: ")


class TestWarnings:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("num.partition", "'num.partition' is not a setting of nodes; did you mean num.partitions?"),
            (
                "ssl.keystore.locaton",
                "'ssl.keystore.locaton' is not a setting of nodes; did you mean ssl.keystore.location?",
            ),
            ("completely.else", "'completely.else' is not a setting of nodes"),
            ("retention.ms", "retention.ms is a setting of topics: the nodes' default for it is log.retention.ms"),
            ("linger.ms", "linger.ms is a setting of producers, not of nodes"),
            (
                "zookeeper.connect",
                "zookeeper.connect has no effect here. There is no ZooKeeper: the nodes of controller.quorum.voters "
                "hold the metadata",
            ),
            (
                "process.roles",
                "process.roles has no effect here. Every node is a broker, and a controller where "
                "controller.quorum.voters names it",
            ),
            ("broker.id", "broker.id has no effect here. A node has one id: use node.id"),
        ],
    )
    def test_an_unknown_name(self, name: str, said: str) -> None:
        assert node(f"\n{name}=1").warnings == (f"server.properties:2: {said}",)
        assert node("", f"{name}=1").warnings == (f"--override: {said}",)

    def test_other_clients_settings(self) -> None:
        assert load_consumer({"acks": "all"}).warnings == (
            "argument: acks is a setting of producers, not of consumers",
        )
        said = "argument: key.serializer has no effect here. It is an argument of the Python producer, key_serializer="
        assert load_producer({"key.serializer": "x"}).warnings == (said,)

    def test_hints(self) -> None:
        loaded = node("min.insync.replicas=3\ndefault.replication.factor=2")
        assert loaded.warnings == (
            "server.properties:1: min.insync.replicas=3: must be at most default.replication.factor=2",
        )

    def test_they_are_bounded(self) -> None:
        warnings = node("\n".join(f"no.such.{n}=1" for n in range(1_000))).warnings
        assert len(warnings) == REPORTED_MAX + 1
        assert warnings[-1] == "and 950 more"

    @pytest.mark.parametrize("name", ["n" * 500_000, "zookeeper." + "n" * 500_000])
    def test_a_name_without_end_is_cut_short_and_not_guessed_at(self, name: str) -> None:
        (warning,) = node(f"{name}=1").warnings
        assert len(warning) < 200


class TestClients:
    def test_values_of_their_types_or_text(self) -> None:
        values = {"linger.ms": 20, "enable.idempotence": False, "acks": "-1", "bootstrap.servers": ["a:1", "b:2"]}
        config = load_producer({**values, "transactional.id": None}).config
        assert config[producer_settings.LINGER_MS] == 20
        assert config[producer_settings.ENABLE_IDEMPOTENCE] is False
        assert config[producer_settings.ACKS] == "all"
        assert [str(a) for a in config[client_settings.BOOTSTRAP_SERVERS]] == ["a:1", "b:2"]
        assert config[producer_settings.TRANSACTIONAL_ID] is None

    def test_arguments_over_a_file(self) -> None:
        file = PropertiesFile("client.properties", "group.id=a\nmax.poll.records=7")
        config = load_consumer({"group.id": "b"}, file=file).config
        assert (config[consumer_settings.GROUP_ID], config[consumer_settings.MAX_POLL_RECORDS]) == ("b", 7)

    def test_defaults_need_nothing(self) -> None:
        for load in (load_producer, load_consumer, load_admin):
            assert [str(a) for a in load().config[client_settings.BOOTSTRAP_SERVERS]] == ["127.0.0.1:9092"]

    def test_an_argument_is_named(self) -> None:
        with pytest.raises(InvalidConfigError, match=r"^argument: linger.ms='-1': must be in 0\.\.3600000$"):
            load_producer({"linger.ms": -1})


LINES = st.tuples(st.sampled_from([s.name for s in NODE]), st.text(max_size=12) | st.integers(-2, 2**64).map(str))


@given(st.lists(LINES, max_size=8), st.lists(st.text(max_size=20), max_size=2))
def test_whatever_is_given_there_is_a_configuration_or_our_error(lines: list[tuple[str, str]], more: list[str]) -> None:
    file = PropertiesFile("f", "\n".join(f"{name}={value}" for name, value in lines))
    try:
        loaded = load_node(file, more)
    except InvalidConfigError as e:
        refused = e
    else:
        assert {value.setting.name for value in loaded.config} == {setting.name for setting in NODE}
        return
    assert str(refused)
    assert refused.details["field"]
