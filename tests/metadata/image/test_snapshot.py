from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamlog.errors import CorruptMessageError, UnsupportedVersionError
from streamlog.metadata.convert import encode_snapshot_head
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.delta import replay
from streamlog.metadata.image.image import EMPTY_IMAGE, MetadataImage
from streamlog.metadata.image.snapshot import (
    CHUNK_BYTES_MAX,
    CHUNK_TEXT_BYTES,
    SnapshotLoader,
    decode_snapshot,
    encode_snapshot,
    records_of,
)
from streamlog.metadata.pb import metadata_pb2 as pb
from streamlog.metadata.records import (
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    ConfigTarget,
    ConfigTargetType,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from streamlog.model import BrokerId, PartitionId, ProducerId, RaftIndex, TopicId
from tests.metadata.examples import EXAMPLES, NODE, TOPIC, ids
from tests.metadata.invariants import check_structure


def small_image() -> MetadataImage:
    records: list[MetadataRecord] = [
        MetadataVersionRecord(level=MetadataVersion(1)),
        ClusterRecord(cluster_id="c"),
        ProducerIdsRecord(next_producer_id=ProducerId(1000)),
        *(BrokerRecord(broker=replace(NODE, broker_id=b)) for b in ids(1, 2, 3, 4)),
        TopicRecord(topic_id=TOPIC, name="t"),
        replace(EXAMPLES["partition, at rest"], partition_id=PartitionId(0)),
        EXAMPLES["partition"],
        ConfigRecord(resource=ConfigTarget(ConfigTargetType.TOPIC, "t"), name="retention.ms", value="5"),
        ConfigRecord(resource=ConfigTarget(ConfigTargetType.BROKER, ""), name="retention.ms", value="ü" * 30_000),
    ]
    return replay(EMPTY_IMAGE, records, RaftIndex(77))


def large_image(topics: int, partitions: int) -> MetadataImage:
    records: list[MetadataRecord] = [MetadataVersionRecord(level=MetadataVersion(1)), ClusterRecord(cluster_id="c")]
    records += (BrokerRecord(broker=replace(NODE, broker_id=b)) for b in ids(1, 2, 3))
    state = Partition(replicas=ids(1, 2, 3), isr=ids(1, 2, 3), leader=BrokerId(1), last_leader=BrokerId(1))
    for at in range(topics):
        topic_id = TopicId(sha256(str(at).encode()).digest()[:16])
        records.append(TopicRecord(topic_id=topic_id, name=f"topic-{at}"))
        records += (
            PartitionRecord(topic_id=topic_id, partition_id=PartitionId(p), partition=state) for p in range(partitions)
        )
    return replay(EMPTY_IMAGE, records, RaftIndex(5))


IMAGES = {"empty": EMPTY_IMAGE, "small": small_image(), "many topics": large_image(700, 2), "long": large_image(2, 900)}


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_read_is_what_was_written(name: str) -> None:
    image = IMAGES[name]
    again = decode_snapshot(encode_snapshot(image))
    assert list(records_of(again)) == list(records_of(image))
    assert again.index == image.index
    assert b"".join(encode_snapshot(again)) == b"".join(encode_snapshot(image))
    if name == "long":
        check_structure(again)


def test_golden_bytes() -> None:
    records: list[MetadataRecord] = [
        MetadataVersionRecord(level=MetadataVersion(1)),
        ClusterRecord(cluster_id="c"),
        TopicRecord(topic_id=TOPIC, name="t"),
        EXAMPLES["partition, at rest"],
    ]
    image = replay(EMPTY_IMAGE, records, RaftIndex(77))
    assert [chunk.hex() for chunk in encode_snapshot(image)] == [
        "000000080a060801104d1801",
        "00000043"
        "12410a04120208010a051a030a01630a173a150a10000102030405060708090a0b0c0d0e0f120174"
        "0a194a170a10000102030405060708090a0b0c0d0e0f1a01002801",
        "000000041a020804",
    ]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 200_000), max_size=12))
def test_the_stream_may_be_cut_anywhere(cuts: list[int]) -> None:
    stream = b"".join(encode_snapshot(IMAGES["small"]))
    bounds = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
    loader = SnapshotLoader()
    for low, high in pairwise(bounds):
        loader.feed(stream[low:high])
    assert b"".join(encode_snapshot(loader.image())) == stream


@settings(max_examples=60)
@given(st.integers(0, 1_000_000))
def test_a_stream_that_ends_early_is_not_a_smaller_cluster(length: int) -> None:
    stream = b"".join(encode_snapshot(IMAGES["many topics"]))
    with pytest.raises(CorruptMessageError):
        decode_snapshot([stream[: length % len(stream)]])


def test_chunks_are_bounded() -> None:
    records: list[MetadataRecord] = [MetadataVersionRecord(level=MetadataVersion(1)), ClusterRecord(cluster_id="c")]
    resource = ConfigTarget(ConfigTargetType.BROKER, "")
    records += (ConfigRecord(resource=resource, name=f"n{at}", value="€" * 32_767) for at in range(40))
    node = replace(NODE, host="h" * 253, directory_ids=(bytes(16),) * 64)
    records += (BrokerRecord(broker=replace(node, broker_id=BrokerId(b))) for b in range(1_500))
    sizes = [len(chunk) for chunk in encode_snapshot(replay(EMPTY_IMAGE, records, RaftIndex(1)))]
    assert max(sizes) < CHUNK_TEXT_BYTES + 4 * 32_767 + 65_536 < CHUNK_BYTES_MAX


def framed(chunk: bytes) -> bytes:
    return len(chunk).to_bytes(4, "big") + chunk


HEAD, *BATCHES, TAIL = encode_snapshot(IMAGES["long"])


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [HEAD],
        [HEAD, *BATCHES],
        [HEAD, TAIL],
        [HEAD, BATCHES[0], TAIL],
        [*BATCHES, TAIL],
        [HEAD, HEAD, *BATCHES, TAIL],
        [HEAD, *BATCHES, TAIL, TAIL],
        [HEAD, *BATCHES, TAIL, b"\0"],
        [b"\x7f\xff\xff\xff"],
        [framed(b"noise")],
    ],
    ids=range(11),
)
def test_a_stream_that_makes_no_sense_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(CorruptMessageError):
        decode_snapshot(pieces)


@pytest.mark.parametrize(
    "head",
    [
        encode_snapshot_head(1, MetadataVersion(1), 2),
        encode_snapshot_head(1, MetadataVersion(METADATA_VERSION_MAX + 1), 1),
        b"",
    ],
    ids=["format", "level", "chunk"],
)
def test_a_snapshot_of_a_newer_release_is_refused_as_such(head: bytes) -> None:
    with pytest.raises(UnsupportedVersionError):
        decode_snapshot([framed(head)])


def test_a_snapshot_has_the_documented_chunks() -> None:
    chunk = pb.MetadataSnapshotChunk.FromString(HEAD[4:])
    assert (chunk.head.format, chunk.head.index, chunk.head.metadata_version) == (1, 5, 1)
    assert pb.MetadataSnapshotChunk.FromString(TAIL[4:]).tail.record_count == len(list(records_of(IMAGES["long"])))
