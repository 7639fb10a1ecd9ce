"""Configs of topics and nodes through streamlogctl."""

from __future__ import annotations

import json

import pytest

from streamlog.api.pb import admin_pb2 as pb
from tests.cli.served import USAGE, ServedCluster, refused
from tests.client.admin.fake_admin import entry


@pytest.fixture(autouse=True)
def _entries(served: ServedCluster) -> None:
    served.run("topic", "create", "t")
    served.cluster.entries[pb.CONFIG_RESOURCE_TYPE_TOPIC, "t"] = [
        entry("retention.ms", "5", pb.CONFIG_SOURCE_TOPIC, default_value="7", documentation="How long."),
        entry("segment.bytes", "6", pb.CONFIG_SOURCE_DEFAULT),
    ]
    served.cluster.entries[pb.CONFIG_RESOURCE_TYPE_BROKER, "1"] = [
        pb.ConfigEntry(name="ssl.keystore.key", source=pb.CONFIG_SOURCE_DYNAMIC_BROKER, sensitive=True)
    ]


def test_dynamic_configs_and_all_configs(served: ServedCluster) -> None:
    assert served.run("config", "describe", "--topic", "t").stdout == (
        "OF\tNAME\tVALUE\tSOURCE\ntopic t\tretention.ms\t5\tDYNAMIC_TOPIC_CONFIG\n"
    )
    lines = served.run("config", "describe", "--topic", "t", "--all").stdout.splitlines()
    assert lines[2] == "topic t\tsegment.bytes\t6\tDEFAULT_CONFIG"


def test_the_long_form_says_what_a_config_does(served: ServedCluster) -> None:
    line = served.run("config", "describe", "--topic", "t", "--long").stdout.splitlines()[1]
    assert line.endswith("\t7\twhile running\tHow long. (long)")


def test_kafkas_words_for_topics_and_nodes(served: ServedCluster) -> None:
    done = served.run("config", "--describe", "--entity-type", "topics", "--entity-name", "t")
    assert "retention.ms\t5" in done.stdout
    done = served.run("config", "describe", "--entity-type", "brokers", "--entity-default")
    assert done.exit_code == 0
    [resource] = served.cluster.last.resources
    assert (resource.type, resource.name) == (pb.CONFIG_RESOURCE_TYPE_BROKER, "")


def test_a_name_that_is_no_setting(served: ServedCluster) -> None:
    done = served.run("config", "describe", "--topic", "t", "--name", "segment.bytes")
    assert done.exit_code == 0
    unset = served.run("config", "describe", "--all-brokers", "--name", "log.retention.hours")
    assert unset.exit_code == 0, "of the defaults of all nodes, only those that are set are shown"
    missing = refused(served.run("config", "describe", "--topic", "t", "--name", "retention"))
    assert "topic t: 'retention' is not a setting of topics: list them with" in missing


def test_secrets_are_not_shown(served: ServedCluster) -> None:
    assert "\tssl.keystore.key\t[hidden]\t" in served.run("config", "describe", "--broker", "1").stdout
    [row] = json.loads(served.run("config", "describe", "--broker", "1", "-o", "json").stdout)
    assert row["value"] == "[hidden]"


def test_alter_sets_deletes_and_changes_lists(served: ServedCluster) -> None:
    done = served.run("config", "alter", "--topic", "t", "--add-config", "retention.ms=9,cleanup.policy=[delete]")
    assert done.stdout == "Configs of topic t altered.\n"
    served.run(
        "config", "alter", "--topic", "t", "--append", "cleanup.policy=compact", "--delete-config", "retention.ms"
    )
    [topic] = json.loads(served.run("topic", "describe", "t", "-o", "json").stdout)
    assert topic["configs"] == {"cleanup.policy": "delete,compact"}


def test_brackets_hold_commas_together(served: ServedCluster) -> None:
    served.run("config", "alter", "--topic", "t", "--add-config", "cleanup.policy=[compact,delete],retention.ms=1")
    changes = {change.name: change.value for change in served.cluster.last.alterations[0].changes}
    assert changes == {"cleanup.policy": "compact,delete", "retention.ms": "1"}


def test_several_topics_one_of_them_missing(served: ServedCluster) -> None:
    done = served.run("config", "alter", "--topic", "t", "--topic", "missing", "--set", "retention.ms=1")
    assert done.stdout == "Configs of topic t altered.\n"
    assert refused(done).startswith("Error: topic 'missing' does not exist: "), "named once"


def test_a_value_that_cannot_be(served: ServedCluster) -> None:
    said = refused(served.run("config", "alter", "--topic", "t", "--set", "min.insync.replicas=x"))
    assert said == "Error: topic t: min.insync.replicas='x': a number from 1 on.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe",),
        ("describe", "--entity-name", "t"),
        ("alter", "--topic", "t"),
        ("alter", "--topic", "t", "--set", "novalue"),
        ("alter", "--set", "a=1"),
        ("alter", "--entity-type", "topics", "--entity-default", "--set", "retention.ms=1"),
        ("alter", "--entity-default", "--set", "retention.ms=1"),
    ],
)
def test_wrong_usage(served: ServedCluster, arguments: tuple[str, ...]) -> None:
    assert served.run("config", *arguments).exit_code == USAGE
