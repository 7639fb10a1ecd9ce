"""Pages are bounded in bytes, whatever the topics are called and however many replicas they have."""

from __future__ import annotations

from streamlog.api.convert import view
from streamlog.api.pb import batches_pb2 as pb
from streamlog.metadata.image.delta import replay
from streamlog.metadata.image.image import EMPTY_IMAGE, MetadataImage
from streamlog.metadata.records import (
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    Partition,
    PartitionRecord,
    TopicRecord,
)
from streamlog.model import BrokerId, PartitionId, RaftIndex, TopicId
from streamlog.services.common.paging import BEGINNING, PAGE_BYTES, TopicNames, TopicPart, parse_token, take, to_token
from streamlog.services.common.topics import all_entries


def image_of(topics: int, partitions: int, replicas: int, name_length: int) -> MetadataImage:
    nodes = tuple(BrokerId(2**31 - 1 - index) for index in range(replicas))  # as long as ids get
    state = Partition(replicas=nodes, isr=nodes, adding=nodes, removing=nodes, offline=nodes, leader=nodes[0])
    records: list[MetadataRecord] = [MetadataVersionRecord(level=MetadataVersion(1))]
    for topic in range(topics):
        topic_id = TopicId(topic.to_bytes(16, "big"))
        records.append(TopicRecord(topic_id=topic_id, name=f"{topic:03}".ljust(name_length, "x")))
        records += [
            PartitionRecord(topic_id=topic_id, partition_id=PartitionId(index), partition=state)
            for index in range(partitions)
        ]
    return replay(EMPTY_IMAGE, records, RaftIndex(1))


def pages(image: MetadataImage, size: int) -> list[list[TopicPart]]:
    names, begin, found = TopicNames(), BEGINNING, []
    while True:
        parts, following = take(all_entries(image, names), begin, size)
        found.append(parts)
        if following is None:
            return found
        begin = parse_token(to_token(following))


def check(image: MetadataImage, size: int) -> int:
    """How many pages it takes."""
    found = pages(image, size)
    seen = []
    for parts in found:
        message = pb.MetadataResponse()
        for part in parts:
            assert part.entry.topic is not None
            message.topics.append(view.topic_metadata(part.entry.topic, image, part.partitions))
            seen += [(part.entry.name, index) for index in part.partitions]
        assert message.ByteSize() <= PAGE_BYTES
    assert seen == [(name, i) for name, at in TopicNames().of(image) for i in range(len(image.topics[at].partitions))]
    return len(found)


def test_large_topics_are_cut() -> None:
    assert check(image_of(topics=2, partitions=3_000, replicas=8, name_length=249), 10_000) > 1


def test_many_topics_of_long_names_are_cut() -> None:
    assert check(image_of(topics=5_000, partitions=1, replicas=1, name_length=249), 10_000) > 1


def test_the_names_are_sorted_again_only_when_topics_change() -> None:
    image, names = image_of(topics=3, partitions=1, replicas=1, name_length=5), TopicNames()
    assert names.of(image) is names.of(image)
