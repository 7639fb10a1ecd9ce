"""Quotas of a real node: they hold for open streams, are reported to clients, survive a restart, and can be removed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from streamlog.access.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaFilter,
    QuotaMatch,
)
from streamlog.cli.main import main
from streamlog.client import EARLIEST, Admin, Consumer, Producer
from streamlog.pytest_plugin.cluster import InProcessCluster

ETL = QuotaEntity(client_id="etl")
RATE = 50_000
VALUE = bytes(10_000)
UNTIL_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("cluster"), nodes=1) as running:
        running.create_topic("orders", partitions=1)
        yield running


@pytest.fixture
def admin(cluster: InProcessCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made
        left = {entity: dict.fromkeys(limits) for entity, limits in made.describe_client_quotas().items()}
        if left:
            made.alter_client_quotas(left)


def test_a_producer_is_held_to_its_limit_and_its_metrics_say_so(cluster: InProcessCluster, admin: Admin) -> None:
    servers = cluster.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, client_id="etl", linger_ms=0) as slow,
        Producer(bootstrap_servers=servers, client_id="other") as fast,
    ):
        slow.send("orders", VALUE).result(UNTIL_S)  # its stream is open when the limit comes
        admin.alter_client_quotas({ETL: {PRODUCER_BYTE_RATE: RATE}})
        began = time.monotonic()
        sent = slow.send("orders", bytes(5 * RATE))
        for one in [fast.send("orders", VALUE) for _ in range(30)]:
            one.result(UNTIL_S)
        sent.result(UNTIL_S)
        assert time.monotonic() - began >= 3.9, "five seconds' worth, of which one is free"
        assert slow.metrics()["produce-throttle-time-total"] >= 3_900
        assert fast.metrics()["produce-throttle-count"] == 0


def test_a_consumer_is_held_to_its_limit(cluster: InProcessCluster, admin: Admin) -> None:
    cluster.create_topic("read", partitions=1)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for one in [producer.send("read", VALUE) for _ in range(25)]:
            one.result(UNTIL_S)
    admin.alter_client_quotas({QuotaEntity(user=DEFAULT): {CONSUMER_BYTE_RATE: RATE}})
    began = time.monotonic()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign({("read", 0): EARLIEST})
        count = 0
        while count < 25:
            count += len(consumer.poll(timeout_s=UNTIL_S))
        assert consumer.metrics()["fetch-throttle-time-total"] > 0
    assert time.monotonic() - began >= 2.0, "250 kB at 50 kB/s, of which 50 kB and a response of 64 KiB are free"


def test_a_client_is_held_to_its_part_of_the_time(cluster: InProcessCluster, admin: Admin) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="etl", linger_ms=0) as producer:
        producer.send("orders", b"1").result(UNTIL_S)  # its stream is open when the limit comes
        admin.alter_client_quotas({ETL: {REQUEST_PERCENTAGE: 0.5}})
        for _ in range(1_000):  # some twenty exceed five milliseconds
            producer.send("orders", b"1").result(UNTIL_S)
            if producer.metrics()["produce-throttle-time-total"] > 0:
                return
        pytest.fail("it was never held up")


def test_a_limit_survives_a_restart_and_its_removal_frees_a_waiting_stream(
    cluster: InProcessCluster, admin: Admin
) -> None:
    admin.alter_client_quotas({ETL: {PRODUCER_BYTE_RATE: 5_000}, QuotaEntity(user="a"): {CONSUMER_BYTE_RATE: 5}})
    cluster.stop_node(1)
    cluster.start_node(1)
    assert admin.describe_client_quotas() == {
        ETL: {PRODUCER_BYTE_RATE: 5_000},
        QuotaEntity(user="a"): {CONSUMER_BYTE_RATE: 5},
    }
    assert list(admin.describe_client_quotas(QuotaFilter(user=QuotaMatch("a")))) == [QuotaEntity(user="a")]
    with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="etl", linger_ms=0, batch_size=1) as producer:
        sent = [producer.send("orders", VALUE) for _ in range(40)]
        sent[0].result(UNTIL_S)
        admin.alter_client_quotas({ETL: {PRODUCER_BYTE_RATE: None}})
        began = time.monotonic()
        for one in sent:
            one.result(UNTIL_S)
        assert time.monotonic() - began < 60, "with the limit it takes 78 s"


def test_the_command(cluster: InProcessCluster, admin: Admin) -> None:
    def run(*arguments: str) -> str:
        found = CliRunner().invoke(main, [*arguments, "--bootstrap-server", cluster.bootstrap_servers])
        assert found.exit_code == 0, found.output
        return found.output

    run("quota", "set", "--user-default", "--client-id", "etl", "producer_byte_rate=1000000")
    assert run("quota", "set", "--user", "alice", "producer_byte_rate=2", "consumer_byte_rate=3").splitlines() == [
        "Set: user alice: producer_byte_rate=2",
        "Set: user alice: consumer_byte_rate=3",
    ]
    assert run("quota", "describe", "--output", "text").splitlines() == [
        "USER\tCLIENT ID\tADDRESS\tKEY\tVALUE",
        "<default>\tetl\t-\tproducer_byte_rate\t1000000",
        "alice\t-\t-\tconsumer_byte_rate\t3",
        "alice\t-\t-\tproducer_byte_rate\t2",
    ]
    run("quota", "set", "--ip", "::FFFF:10.9.8.7", "connection_creation_rate=2.5")
    run("quota", "set", "--ip-default", "connection_creation_rate=2000")
    assert run("quota", "describe", "--ip", "10.9.8.7", "--output", "text").splitlines() == [
        "USER\tCLIENT ID\tADDRESS\tKEY\tVALUE",
        "-\t-\t10.9.8.7\tconnection_creation_rate\t2.5",
    ]
    assert "Deleted: address 10.9.8.7: connection_creation_rate" in run("quota", "delete", "--ip", "10.9.8.7")
    run("quota", "delete", "--ip-default")
    assert "Deleted: user alice: producer_byte_rate" in run("quota", "delete", "--user", "alice", "producer_byte_rate")
    assert "alice\t-\t-\tconsumer" in run("quota", "describe", "--user", "alice", "--output", "text")
    run("quota", "delete", "--user", "alice")
    assert "There is no such limit" in run("quota", "delete", "--user", "alice")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "producer_byte_rate=1"], "Give whose limit it is"),
        (["set", "--user", "a", "--user-default", "producer_byte_rate=1"], "cannot be given together"),
        (["set", "--user", "", "producer_byte_rate=1"], "give --user-default"),
        (["set", "--user", "a", "producer_byte_rate=fast"], "give producer_byte_rate=NUMBER"),
        (["set", "--user", "a", "leader_rate=1"], "give one of producer_byte_rate"),
        (["delete"], "Give whose limit it is"),
        (["set", "--ip", "node1", "connection_creation_rate=5"], "give an IP address"),
        (["set", "--ip", "10.0.0.7", "--user", "a", "connection_creation_rate=5"], "cannot be given together"),
        (
            ["set", "--ip", "10.0.0.7", "producer_byte_rate=5"],
            "producer_byte_rate is not a quota of address 10.0.0.7: give one of connection_creation_rate",
        ),
        (["set", "--user", "a", "request_percentage=0.0001"], "must be a number from 0.001 to"),
        (["set", "--user", "a", "consumer_byte_rate=2.5"], "must be a whole number of bytes"),
    ],
)
def test_the_command_says_what_is_missing(arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(main, ["quota", *arguments])
    assert found.exit_code == 2
    assert said in found.output
