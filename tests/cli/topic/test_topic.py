"""REQUIREMENTS, Topics: create, describe, list, alter, delete through streamlogctl, and its exact words."""

from __future__ import annotations

import json

import pytest

from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.creation import CreateInternalTopic
from tests.cli.served import USAGE, ServedCluster, refused


def test_create_says_what_kafka_says(served: ServedCluster) -> None:
    done = served.run("topic", "create", "--topic", "test1", "--partitions", "2", "--replication-factor", "1")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Created topic test1.\n", "")


def test_describe_says_what_kafka_says(served: ServedCluster) -> None:
    served.run("topic", "create", "test1", "--replica-assignment", "1,2")
    done = served.run("topic", "describe", "--topic", "test1")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "Topic: test1\tPartitionCount: 2\tReplicationFactor: 1\tConfigs:",
        "\tTopic: test1\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1",
        "\tTopic: test1\tPartition: 1\tLeader: 2\tReplicas: 2\tIsr: 2",
    ]


def test_names_are_understood_behind_the_verb_and_as_flags_several_at_once(served: ServedCluster) -> None:
    done = served.run("topic", "create", "a", "--topic", "b,c", "d", "--topic", "a")
    assert done.stdout == "Created topic a.\nCreated topic d.\nCreated topic b.\nCreated topic c.\n"
    assert served.run("topic", "list").stdout == "a\nb\nc\nd\n"


def test_kafkas_dashed_verbs_are_understood(served: ServedCluster) -> None:
    assert served.run("topic", "--create", "--topic", "t").stdout == "Created topic t.\n"
    assert served.run("topic", "--topic", "t", "--describe").exit_code == 0
    assert served.run("topic", "t", "--describe").exit_code == 0
    assert served.run("topic", "--list").stdout == "t\n"
    assert served.run("topic", "--delete", "--topic", "t").stdout == "Deleted topic t.\n"


def test_configs_are_set_at_creation_and_described(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--config", "retention.ms=5", "--config", "cleanup.policy=compact")
    heading = served.run("topic", "describe", "t").stdout.splitlines()[0]
    assert heading.endswith("\tConfigs: cleanup.policy=compact,retention.ms=5")


def test_a_topic_that_is_there_already(served: ServedCluster) -> None:
    served.run("topic", "create", "t")
    said = refused(served.run("topic", "create", "t"))
    assert said == (
        "Error: topic 't' already exists: choose another name, or see the topic with 'streamlogctl topic describe'.\n"
    )
    assert served.run("topic", "create", "t", "--if-not-exists").exit_code == 0


def test_more_replicas_than_live_nodes(served: ServedCluster) -> None:
    said = refused(served.run("topic", "create", "t", "--replication-factor", "4"))
    assert "replication factor 4 is larger than the number of active nodes, 3" in said
    assert "--replication-factor" in said


@pytest.mark.parametrize("name", [".", "..", "a b", "x" * 250, "a/b", "ä"])
def test_names_that_a_topic_cannot_have(served: ServedCluster, name: str) -> None:
    refused(served.run("topic", "create", name))


def test_a_name_to_be_warned_of_and_one_that_collides(served: ServedCluster) -> None:
    done = served.run("topic", "create", "a.b")
    assert done.exit_code == 0
    assert done.stdout == "Created topic a.b.\n"
    assert done.stderr.startswith("Warning: ")
    assert "collides with topic 'a.b'" in refused(served.run("topic", "create", "a_b"))


def test_one_of_several_is_refused_the_others_made(served: ServedCluster) -> None:
    served.run("topic", "create", "b")
    done = served.run("topic", "create", "a", "b", "c")
    assert done.stdout == "Created topic a.\nCreated topic c.\n"
    assert "topic 'b' already exists" in refused(done)


def test_a_topic_is_only_checked(served: ServedCluster) -> None:
    assert served.run("topic", "create", "t", "--validate-only").stdout == "Topic t can be created.\n"
    assert served.run("topic", "list").stdout == ""


def test_partitions_only_grow(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--partitions", "2")
    assert served.run("topic", "alter", "t", "--partitions", "4").stdout == "Altered topic t.\n"
    for count in ("4", "3"):
        said = refused(served.run("topic", "alter", "t", "--partitions", count))
        assert "4" in said
        assert "only" in said or "more" in said or "grow" in said
    assert json.loads(served.run("topic", "describe", "t", "-o", "json").stdout)[0]["partition_count"] == 4


def test_configs_change_while_running(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--config", "retention.ms=5")
    done = served.run("topic", "alter", "t", "--config", "segment.bytes=9", "--delete-config", "retention.ms")
    assert done.stdout == "Altered topic t.\n"
    assert served.run("topic", "describe", "t").stdout.splitlines()[0].endswith("Configs: segment.bytes=9")
    assert "unknown config 'bogus'" in refused(served.run("topic", "alter", "t", "--config", "bogus=1"))


def test_nothing_to_alter_is_wrong_usage(served: ServedCluster) -> None:
    done = served.run("topic", "alter", "t")
    assert done.exit_code == USAGE
    assert "Give a change" in done.stderr
    done = served.run("topic", "alter", "t", "--config", "retention.ms=5", "--replica-assignment", "1:2")
    assert done.exit_code == USAGE
    assert "give their total with --partitions" in done.stderr


def test_delete_and_a_topic_that_is_not_there(served: ServedCluster) -> None:
    served.run("topic", "create", "t")
    assert served.run("topic", "delete", "t").stdout == "Deleted topic t.\n"
    assert "topic 't' does not exist" in refused(served.run("topic", "delete", "t"))
    assert served.run("topic", "delete", "t", "--if-exists").exit_code == 0
    assert served.run("topic", "delete", "t.*", "--if-exists").exit_code == 0
    assert "no topic matches 't.*'" in refused(served.run("topic", "delete", "t.*"))
    assert "topic 't' does not exist" in refused(served.run("topic", "describe", "t"))


def test_deletion_can_be_gated(served: ServedCluster) -> None:
    served.run("topic", "create", "t")
    served.cluster.rig.settings = ControllerSettings(delete_topic_enable=False)
    said = refused(served.run("topic", "delete", "t"))
    assert "delete.topic.enable=false" in said
    assert "server.properties" in said


def test_describe_shows_what_is_wrong_only(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2,2:3")
    assert served.run("topic", "describe", "--under-replicated-partitions").stdout == ""
    served.cluster.rig.fence(1)
    done = served.run("topic", "describe", "--under-replicated-partitions")
    assert done.stdout == "\tTopic: t\tPartition: 0\tLeader: 2\tReplicas: 1,2\tIsr: 2\tOffline: 1\n"
    served.cluster.rig.fence(2)
    done = served.run("topic", "describe", "--unavailable-partitions")
    assert "\tPartition: 0\tLeader: none\t" in done.stdout


def test_what_is_wrong_with_internal_topics_is_shown_too(served: ServedCluster) -> None:
    """As `cluster health` counts it."""
    served.cluster.rig.do(CreateInternalTopic(name="__consumer_offsets"))
    assert "__consumer" not in served.run("topic", "describe").stdout
    served.cluster.rig.fence(1)
    shown = served.run("topic", "describe", "--under-replicated-partitions").stdout
    assert shown.startswith("\tTopic: __consumer_offsets\tPartition: 0\t")


def test_json_for_programs(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    [listed] = json.loads(served.run("topic", "list", "--output", "json").stdout)
    assert (listed["topic"], listed["partitions"], listed["replication_factor"]) == ("t", 1, 2)
    [described] = json.loads(served.run("topic", "describe", "--output", "json").stdout)
    assert described["topic_id"] == listed["topic_id"]
    assert described["partitions"][0]["replicas"] == [1, 2]


def test_tables_for_eyes(served: ServedCluster) -> None:
    served.run("topic", "create", "t", "--replica-assignment", "1:2")
    shown = served.run("topic", "describe", "t", "--output", "table").stdout
    assert "t  1 partitions, 2 replicas each" in shown
    assert "│" in shown
    assert "replication_factor" in served.run("topic", "list", "--output", "table").stdout


def test_no_name(served: ServedCluster) -> None:
    for verb in ("create", "alter", "delete"):
        done = served.run("topic", verb)
        assert done.exit_code == USAGE
        assert "Give a topic" in done.stderr


def test_help_has_examples(served: ServedCluster) -> None:
    for verb in ("create", "list", "describe", "alter", "delete"):
        shown = served.run("topic", verb, "--help").stdout
        assert f"streamlogctl topic {verb}" in shown
        assert "STREAMLOG_BOOTSTRAP_SERVERS" in shown


def test_a_regular_expression_names_the_topics_that_it_matches(served: ServedCluster) -> None:
    served.run("topic", "create", "orders-1", "orders-2", "clicks")
    assert served.run("topic", "alter", "--topic", "orders-.*", "--config", "retention.ms=9").stdout == (
        "Altered topic orders-1.\nAltered topic orders-2.\n"
    )
    assert "no topic matches 'order+'" in refused(served.run("topic", "delete", "--topic", "order+"))
    assert served.run("topic", "delete", "--topic", "(orders-1|clicks)").stdout.count("Deleted topic") == 2
    assert served.run("topic", "list").stdout == "orders-2\n"
