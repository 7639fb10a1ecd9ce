"""`--print-config`: golden text, nothing secret in it, and what is printed can be loaded again."""

from __future__ import annotations

from pathlib import Path

from streamlog.config import (
    Config,
    PropertiesFile,
    load_admin,
    load_consumer,
    load_node,
    load_producer,
    node_config,
    node_layers,
    print_config,
    topic_config,
)
from streamlog.config.properties import parse_properties

HERE = Path(__file__).parent
OWN = {
    "node.id": "1",
    "num.partitions": "3",
    "log.dirs": "/data/a b,/data/c\\d",
    "broker.rack": "é",
    "super.users": "User:a;User:b",
}
SECRET = {"ssl.keystore.key": "hunter2", "ssl.keystore.certificate.chain": "c"}


def values(config: Config) -> dict[str, object]:
    return {value.setting.name: value.value for value in config}


def test_golden_node() -> None:
    """Regenerate with: python -m tests.config.test_print"""
    assert golden() == (HERE / "golden" / "node.properties").read_text()


def golden() -> str:
    return print_config(load_node(PropertiesFile("f", "node.id=1\nnum.partitions=3")).config)


def test_what_is_printed_can_be_loaded_again() -> None:
    config = node_config(node_layers(OWN))
    again = load_node(PropertiesFile("printed", print_config(config)))
    assert values(again.config) == values(config)
    assert [line for line in again.warnings if "no effect in this release" not in line] == []
    for load in (load_producer, load_consumer, load_admin):
        printed = print_config(load().config)
        assert values(load(file=PropertiesFile("printed", printed)).config) == values(load().config)


def test_an_empty_value_is_printed_where_the_default_is_not_empty() -> None:
    config = node_config(node_layers({**OWN, "http.listeners": "", "ssl.principal.mapping.rules": ""}))
    printed = print_config(config)
    assert "\nhttp.listeners=\n" in printed
    assert values(load_node(PropertiesFile("printed", printed)).config) == values(config)


def test_every_setting_is_there_once() -> None:
    config = node_config(node_layers(OWN))
    lines = [line.removeprefix("#") for line in print_config(config).splitlines() if "=" in line and "# " not in line]
    names = [line.partition("=")[0] for line in lines if line[0] != " "]
    assert names == [value.setting.name for value in config]


def test_secrets_are_not() -> None:
    text = print_config(node_config(node_layers({**OWN, **SECRET})))
    assert "#ssl.keystore.key=[hidden]" in text
    assert "hunter2" not in text


def test_where_a_value_is_from() -> None:
    text = print_config(topic_config({"retention.ms": "5"}, node_layers({}, cluster={"log.segment.bytes": "1048576"})))
    found = {one.key: one.value for one in parse_properties(text, "printed")}
    assert (found["retention.ms"], found["segment.bytes"]) == ("5", "1048576")
    assert text.count("DYNAMIC_TOPIC_CONFIG") == text.count("DYNAMIC_DEFAULT_BROKER_CONFIG") == 1


if __name__ == "__main__":
    (HERE / "golden" / "node.properties").write_text(golden())
