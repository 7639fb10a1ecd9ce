"""The data directory of release 0.1.0 (release-0.1.0/README.md), opened and served by this one: records of all codecs,
transactions, configs and offsets are there; it is written on, and its metadata.version is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from streamlog.client import EARLIEST, Admin, Consumer, Producer
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.model import PartitionId, TopicPartition
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.operations.release import unpack

DATA: Final = Path(__file__).parent / "release-0.1.0" / "data.tar.gz"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
Row: TypeAlias = tuple[int, bytes | None, bytes | None, dict[str, bytes | None]]
READ_S: Final = 60.0
FIRST, SECOND = (TopicPartition("orders", PartitionId(index)) for index in range(2))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessCluster]:
    directory = tmp_path_factory.mktemp("streamlog")
    unpack(DATA, directory)
    with InProcessCluster(directory, nodes=1) as cluster:
        yield cluster


def read(
    cluster: InProcessCluster, topic: str, count: int
) -> list[tuple[int, bytes | None, bytes | None, dict[str, bytes | None]]]:
    """Partition, key, value, headers of the first committed records, by partition."""
    found: list[Row] = []
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        consumer.assign_topics([topic], start=EARLIEST)
        while len(found) < count:
            some = consumer.poll(timeout_s=READ_S)
            assert some, f"{len(found)} of {count} records"
            found += [(one.partition, one.key, one.value, dict(one.headers)) for one in some]
    return sorted(found, key=lambda one: one[0])


def test_records_of_all_codecs_and_committed_transactions_are_read(cluster: InProcessCluster) -> None:
    found = read(cluster, "orders", 54)
    expected: list[Row] = [
        (index % 2, str(index).encode(), f"{codec}-{index}".encode() * 5, {"codec": codec.encode()})
        for codec in CODECS
        for index in range(10)
    ]
    committed: list[Row] = [(0, None, f"committed-{index}".encode(), {}) for index in range(4)]
    assert found[:29] == [one for one in expected if one[0] == 0] + committed
    assert found[29:] == [one for one in expected if one[0] == 1]
    assert [(key, value) for _, key, value, _ in read(cluster, "compacted", 6)][-3:] == [
        (b"0", b"3"),
        (b"1", b"4"),
        (b"2", b"5"),
    ]


def test_configs_and_offsets_are_kept(cluster: InProcessCluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.describe_topic("orders").configs == {"retention.ms": "-1"}
        assert admin.describe_topic("compacted").configs == {"cleanup.policy": "compact"}
        offsets = admin.list_group_offsets("billing")
        assert {at: one.offset for at, one in offsets.items()} == {FIRST: 32, SECOND: 25}
        lag = {one.at: one.lag for one in admin.group_lag("billing")}
        assert lag[SECOND] == 0


def test_it_is_written_on_and_upgraded(cluster: InProcessCluster) -> None:
    """The producer of the earlier release is followed by the next epoch of its transactional id."""
    servers = cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, transactional_id="tx") as producer:
        producer.init_transactions()
        with producer.transaction():
            sent = producer.send("orders", b"today", partition=1)
        assert sent.result(READ_S).offset == 25
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.update_metadata_version() == METADATA_VERSION_MAX
        assert admin.create_topic("new", partitions=1).partition_count == 1
    assert read(cluster, "orders", 55)[-1] == (1, None, b"today", {})
