"""REQUIREMENTS, "Storage", as it shows on the disks of running nodes. Rule by rule: tests/storage, tests/records."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from streamlog.api.pb import batches_pb2, common_pb2, records_pb2
from streamlog.client import EARLIEST, Admin, AtTime, Consumer, ConsumerRecord, Producer
from streamlog.client.admin.values import ConfigChange, ConfigResource
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.requirements.conftest import Ctl, Piped
from tests.services.raw import leader_of, produce, stream_call, unary
from tests.storage.batches import batch

Topic = Callable[..., str]
FIRST = "0" * 20
KNOWN = (
    "offset: 0 position: 0 CreateTime: 1557393691677 isvalid: true keysize: 10 valuesize: 8 magic: 2 "
    "compresscodec: NONE producerId: -1 producerEpoch: -1 sequence: 0 isTransactional: false headerKeys: [] "
    'key: group_demo payload: {"id":0}'
)


def folder(directory: Path, cluster: InProcessCluster, topic: str, *, node: int | None = None) -> Path:
    """Of the leader of partition 0, or of that node."""
    if node is None:
        leader = leader_of(cluster.address(1), topic)
        node = next(one for one in cluster.node_ids if cluster.address(one) == leader)
    return directory / f"node-{node}" / f"{topic}-0"


def read_all(servers: str, topic: str, count: int) -> list[ConsumerRecord]:
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([(topic, 0)], start=EARLIEST)
        found: list[ConsumerRecord] = []
        while len(found) < count:
            got = consumer.poll(timeout_s=30)
            assert got, f"{len(found)} of {count}"
            found += got
    return found


def news(cluster: InProcessCluster, topic: str) -> Iterator[records_pb2.PartitionRecords]:
    """What a reader at the end of partition 0 gets, ten times a second."""
    part = records_pb2.SubscribePartitions(topic=topic, partitions=[0])
    request = records_pb2.SubscribeRequest(subscriptions=[part], heartbeat_interval_ms=100)
    with grpc.insecure_channel(cluster.address(1)) as channel:
        for data in stream_call(channel, "Records/Subscribe", request):
            yield from records_pb2.SubscribeResponse.FromString(data).partitions


def test_a_partitions_files(
    directory: Path, streamlog_cluster: InProcessCluster, servers: str, topic: Topic, ctl: Ctl
) -> None:
    """A partition is a directory `topic-0` holding, per segment, `00000000000000000000.log`, `.index` (10485760 bytes
    preallocated), `.timeindex` (10485756) and once `leader-epoch-checkpoint`; files are named by the segment's first
    offset, 20 digits.
    """
    name = topic(replication_factor=1, segment_bytes="1048576")
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(3):
            producer.send(name, bytes(500_000)).result(30)
    at = folder(directory, streamlog_cluster, name)
    second = f"{2:020}"
    sizes = {path.name: path.stat().st_size for path in at.iterdir()}
    assert {f"{base}.{kind}" for base in (FIRST, second) for kind in ("log", "index", "timeindex")} <= set(sizes)
    assert (sizes[f"{second}.index"], sizes[f"{second}.timeindex"]) == (10_485_760, 10_485_756)
    dumped = ctl("dump", "--no-print-data-log", str(at / f"{second}.log")).splitlines()
    assert dumped[:2] == [f"Dumping {at / f'{second}.log'}", "Starting offset: 2"]
    node = int(at.parent.name.removeprefix("node-"))
    streamlog_cluster.stop_node(node)
    try:
        # Written with the recovery point: now and then, and at the stop.
        assert (at / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    finally:
        streamlog_cluster.start_node(node)


def test_offsets_and_order(servers: str, topic: Topic) -> None:
    """Records have 64-bit offsets, unique in the partition. Order is kept inside a partition; a topic of one partition
    is totally ordered.
    """
    name = topic()
    with Producer(bootstrap_servers=servers, batch_size=100) as producer:
        sent = [producer.send(name, b"%d" % number) for number in range(500)]
        assert [one.result(30).offset for one in sent] == list(range(500))
    read = read_all(servers, name, 500)
    assert [(one.offset, one.value) for one in read] == [(number, b"%d" % number) for number in range(500)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3], ids=["none", "gzip", "snappy", "lz4"])
def test_older_messages(
    streamlog_cluster: InProcessCluster, servers: str, topic: Topic, ctl: Ctl, tmp_path: Path, magic: int, codec: int
) -> None:
    """Formats: record batches (magic 2) are what is written. The older messages, magic 0 and 1, are read, converted and
    dumped too.
    """
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 16)
    for offset in range(3):
        builder.append(offset, timestamp=1_000 + offset, key=None, value=b"old %d" % offset)
    messages = bytes(builder.build())
    name = topic()
    assert produce(streamlog_cluster.address(1), name, messages) == 0
    read = read_all(servers, name, 3)
    assert [one.value for one in read] == [b"old 0", b"old 1", b"old 2"]
    if magic == 1:
        assert [one.timestamp_ms for one in read] == [1_000, 1_001, 1_002]
    file = tmp_path / f"{FIRST}.log"
    file.write_bytes(messages)
    dumped = ctl("dump", str(file)).splitlines()
    assert [line.rpartition("payload: ")[2] for line in dumped[2:]] == ["old 0", "old 1", "old 2"]
    assert all(f"magic: {magic} " in line for line in dumped[2:])


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("checksum", lambda data: data[:150] + bytes([data[150] ^ 1]) + data[151:], "CRC"),
        ("cut off", lambda data: data[:-5], "incomplete"),
        ("magic", lambda data: data[: 86 + 16] + b"\x07" + data[86 + 17 :], "magic"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_is_named(
    streamlog_cluster: InProcessCluster,
    directory: Path,
    topic: Topic,
    ctl: Ctl,
    tmp_path: Path,
    name: str,
    damage: Callable[[bytes], bytes],
    reason: str,
) -> None:
    """A checksum error, a cut-off message or an unknown magic is detected and named with its file and position."""
    made = topic(replication_factor=1)
    for number in range(2):
        produce(streamlog_cluster.address(1), made, batch([b'{"id":%d}' % number], keys=[b"group_demo"]))
    file = tmp_path / f"{FIRST}.log"
    file.write_bytes(damage((folder(directory, streamlog_cluster, made) / file.name).read_bytes()))
    said = ctl("dump", str(file), status=1)
    [line] = [line for line in said.splitlines() if str(file) in line and not line.startswith("Dumping")]
    assert "86" in line, name
    assert reason.lower() in line.lower()


def test_lookup(
    directory: Path, streamlog_cluster: InProcessCluster, servers: str, topic: Topic, ctl: Ctl, piped: Piped
) -> None:
    """Sparse index (each 4,096 bytes), time index, lookup by offset and by timestamp whose cost does not grow with the
    log.
    """
    name = topic(replication_factor=1)
    for number in range(200):
        produce(streamlog_cluster.address(1), name, batch([b"%d" % number + bytes(500)], timestamp=10_000 + number))
    at = folder(directory, streamlog_cluster, name)
    entries = ctl("dump", str(at / f"{FIRST}.index")).splitlines()[1:]
    places = [tuple(map(int, re.findall(r"\d+", line))) for line in entries]
    assert len(places) > 10
    steps = [after[1] - before[1] for before, after in itertools.pairwise(places)]
    assert all(4_096 < step < 4_096 + 2 * 600 for step in steps)
    times = ctl("dump", str(at / f"{FIRST}.timeindex")).splitlines()[1:]
    assert {offset for offset, _ in places} <= {int(line.split()[-1]) for line in times}
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([(name, 0)], start=137)
        assert consumer.poll(1, timeout_s=30)[0].offset == 137
        found = consumer.offsets_for_times({(name, 0): 10_150})
        assert [one.offset for one in found.values() if one is not None] == [150]
        consumer.assign([(name, 0)], start=AtTime(10_199))
        assert consumer.poll(1, timeout_s=30)[0].offset == 199
    with grpc.insecure_channel(leader_of(streamlog_cluster.address(1), name)) as channel:
        query = batches_pb2.OffsetQuery(topic=name, timestamp_ms=10_042)
        request = batches_pb2.ListOffsetsRequest(queries=[query])
        answer = unary(channel, "Batches/ListOffsets", request, batches_pb2.ListOffsetsResponse)
    assert answer.offsets[0].offset == 42
    properties = ("--property", "print.value=false", "--property", "print.offset=true")
    printed, _ = piped("consume", name, "--timestamp", "10180", "--max-messages", "1", *properties)
    assert printed == "Offset:180\n"


@pytest.mark.parametrize("config", ["retention.bytes=1048576", "retention.ms=1"])
def test_retention(
    directory: Path, streamlog_cluster: InProcessCluster, servers: str, topic: Topic, admin: Admin, config: str
) -> None:
    """Retention by time and size, `log.retention.check.interval.ms`, `log.segment.delete.delay.ms`; rolling by
    `log.segment.bytes`; `cleanup.policy`. Reading never deletes.
    """
    name = topic(segment_bytes="1048576", file_delete_delay_ms="600000")
    for number in range(5):
        produce(streamlog_cluster.address(1), name, batch([b"%d" % number + bytes(600_000)]))
    assert len(read_all(servers, name, 5)) == len(read_all(servers, name, 5)) == 5
    setting, _, value = config.partition("=")
    admin.alter_config(ConfigResource.topic(name), [ConfigChange(name=setting, value=value)])

    def files() -> set[str]:
        return {path.name for path in folder(directory, streamlog_cluster, name).iterdir()}

    # The log start is published before the files below it are renamed.
    deleted = f"{FIRST}.log.deleted"
    last = next(one for one in news(streamlog_cluster, name) if one.log_start >= 3 and deleted in files())
    assert last.high_watermark == 5
    # Size keeps whole segments; time, of records of 1970, keeps none.
    assert last.log_start == 3 or config == "retention.ms=1"
    assert f"{FIRST}.log" not in files()


def test_compaction(streamlog_cluster: InProcessCluster, servers: str, topic: Topic, admin: Admin) -> None:
    """`cleanup.policy` delete, compact or both."""
    name = topic(
        cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="0.01", max_message_bytes="2000000"
    )
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        for number in range(6):
            producer.send(name, b"%d" % number + bytes(300_000), key=b"key %d" % (number % 2)).result(30)
    # The reader gets what comes after; meanwhile the earlier values of each key are compacted away.
    for _ in news(streamlog_cluster, name):
        with Consumer(bootstrap_servers=servers) as consumer:
            consumer.assign([(name, 0)], start=EARLIEST)
            offsets: list[int] = []
            while not offsets or offsets[-1] < 5:
                offsets += [record.offset for record in consumer.poll(timeout_s=30)]
        if offsets[0] > 0:
            break
    assert offsets[-2:] == [4, 5]
    admin.alter_config(ConfigResource.topic(name), [ConfigChange(name="cleanup.policy", value="compact,delete")])
    assert admin.describe_topic(name).configs["cleanup.policy"] == "compact,delete"


def test_nothing_is_lost_by_a_restart(streamlog_cluster: InProcessCluster, servers: str, topic: Topic) -> None:
    """Flushing by `log.flush.*`. After a restart nothing acknowledged is lost."""
    synced, lazy = topic(), topic(flush_messages="100000", flush_ms="1000")
    with Producer(bootstrap_servers=servers) as producer:
        for name in (synced, lazy):
            sent = [producer.send(name, b"%d" % number) for number in range(1_000)]
            assert [one.result(30).offset for one in sent] == list(range(1_000))
    for node in streamlog_cluster.node_ids:
        streamlog_cluster.stop_node(node)
        streamlog_cluster.start_node(node)
    for name in (synced, lazy):
        assert [one.value for one in read_all(servers, name, 1_000)] == [b"%d" % number for number in range(1_000)]


def test_the_dump_tools_known_answer(
    directory: Path, streamlog_cluster: InProcessCluster, topic: Topic, ctl: Ctl
) -> None:
    """Dump tool for .log, .index, .timeindex. Known answer: one record a batch, key `group_demo`, values `{"id":0}`,
    `{"id":1}`...: positions 0, 86, 172, 258, 344, 430.
    """
    name = topic(replication_factor=1)
    for number in range(60):
        one = batch([b'{"id":%d}' % number], keys=[b"group_demo"], timestamp=1557393691677, producer=(-1, -1, 0))
        produce(streamlog_cluster.address(1), name, one)
    at = folder(directory, streamlog_cluster, name)
    lines = ctl("dump", str(at / f"{FIRST}.log")).splitlines()
    assert lines[:3] == [f"Dumping {at / FIRST}.log", "Starting offset: 0", KNOWN]
    assert [line.split(" ")[3] for line in lines[2:8]] == ["0", "86", "172", "258", "344", "430"]
    assert ctl("dump", str(at / f"{FIRST}.index")).splitlines()[1] == "offset: 48 position: 4166"
    assert ctl("dump", str(at / f"{FIRST}.timeindex")).splitlines()[1] == "timestamp: 1557393691677 offset: 0"


def test_bytes_are_kafkas(directory: Path, streamlog_cluster: InProcessCluster, topic: Topic) -> None:
    """Bytes are Kafka's, so Kafka's own tools read them. (Kafka itself reads them in tests/interop.)"""
    from kafka.record.memory_records import MemoryRecords

    name = topic(replication_factor=1)
    # That another node leads does not matter, but each must know of the topic.
    with grpc.insecure_channel(leader_of(streamlog_cluster.address(1), name)) as channel:
        request = records_pb2.PublishRequest(
            topic=name,
            records=[
                records_pb2.PublishRecord(key=b"k", value=b"v", headers=[records_pb2.Header(key="h", value=b"x")])
            ],
            options=records_pb2.PublishOptions(compression=common_pb2.COMPRESSION_LZ4),
        )
        unary(channel, "Records/Publish", request, records_pb2.PublishResponse)
    data = (folder(directory, streamlog_cluster, name) / f"{FIRST}.log").read_bytes()
    read = MemoryRecords(data).next_batch()
    assert read is not None
    assert read.validate_crc()
    assert [(one.offset, one.key, one.value, one.headers) for one in read] == [(0, b"k", b"v", [("h", b"x")])]
