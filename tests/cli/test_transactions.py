"""`streamlogctl transaction`: what is asked, and what is refused before anybody is."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from streamlog.cli.main import main
from streamlog.client import EARLIEST, Consumer, Producer
from streamlog.errors import TransactionAbortableError
from streamlog.model import PartitionId, TopicPartition
from streamlog.pytest_plugin.cluster import InProcessCluster

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize(
    "arguments",
    [
        ["abort"],
        ["abort", "x", "--partition", "t-0", "--producer-id", "1"],
        ["abort", "--partition", "t-0"],
        ["abort", "x", "--producer-id", "1"],
        ["describe"],
        ["list", "--state", "sleeping"],
        ["find-hanging", "--open-for-ms", "-1"],
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["transaction", *arguments])
    assert result.exit_code == 2, result.output
    assert "Usage:" in result.output


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    with InProcessCluster(tmp_path_factory.mktemp("streamlog")) as cluster:
        yield cluster


def test_an_open_transaction_is_seen_and_aborted(cluster: InProcessCluster) -> None:
    """With the synchronous producer, on real nodes."""

    def asked(*arguments: str) -> str:
        environment = {"STREAMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
        result = CliRunner().invoke(main, ["transaction", *arguments], env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout

    cluster.create_topic("t", partitions=2)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x") as producer:
        with producer.transaction():
            producer.send("t", b"committed", partition=0)
        producer.begin_transaction()
        producer.send("t", b"open", partition=1)
        producer.flush()
        (listed,) = json.loads(asked("list", "--state", "ongoing", "--output", "json"))
        assert listed["transactional_id"] == "x"
        (described,) = json.loads(asked("describe", "x", "--output", "json"))
        assert (described["state"], described["partitions"]) == ("ongoing", "t-1")
        (found,) = json.loads(
            asked("find-hanging", "--topic", "[t]", "--open-for-ms", "0", "--all", "--output", "json")
        )
        assert (found["topic"], found["partition"], found["hanging"]) == ("t", 1, False)
        assert "Aborted" in asked("abort", "x")
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send("t", b"again", partition=0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition("t", PartitionId(n)) for n in range(2)], start=EARLIEST)
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [record.value for record in consumer.poll(timeout_s=30)]
    assert values == [b"committed", b"again"]
