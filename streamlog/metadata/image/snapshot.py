"""An image as bytes: for a snapshot of the quorum, and for a new observer.

A snapshot is the shortest list of records that gives the image: level, cluster id, producer ids, then nodes, topics
with their partitions, configs, access control lists, users and quotas, each by rising key. Reading one is replay.

It is a stream of chunks, each preceded by its length in 4 bytes, big-endian: a head, batches of records, a tail that
counts them, so that a truncated snapshot is detected. Chunks are generated lazily, so a large image needs the memory of
one. The layer that stores or sends the stream may split it anywhere, and adds checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from streamlog.errors import CorruptMessageError, UnsupportedVersionError
from streamlog.metadata.convert import (
    decode_snapshot_chunk,
    encode_snapshot_batch,
    encode_snapshot_head,
    encode_snapshot_tail,
)
from streamlog.metadata.features import require_supported
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import EMPTY_IMAGE, MetadataImage, Topic
from streamlog.metadata.records import (
    AclRecord,
    BrokerRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    MetadataRecord,
    MetadataVersion,
    MetadataVersionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
    UserRecord,
)
from streamlog.model import PartitionId, RaftIndex

SNAPSHOT_FORMAT: Final = 1

LENGTH_BYTES: Final = 4
# Records of one chunk. At 40 to 80 bytes each a chunk is about 64 KiB, and takes 5 to 10 ms to write or read.
CHUNK_RECORDS: Final = 1_000
# A chunk ends early when its nodes and configs are long.
CHUNK_TEXT_BYTES: Final = 256 << 10
# Far above any chunk: topics have short names, and a config value has at most 128 KiB.
CHUNK_BYTES_MAX: Final = 2 << 20


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The shortest list of records that gives this image, in the one order that snapshots have."""
    if image.metadata_version == 0:
        return
    yield MetadataVersionRecord(level=image.metadata_version)
    if image.cluster_id:
        yield ClusterRecord(cluster_id=image.cluster_id)
    if image.next_producer_id:
        yield ProducerIdsRecord(next_producer_id=image.next_producer_id)
    for broker in image.brokers.values():
        yield BrokerRecord(broker=broker)
    for topic in image.topics.values():
        yield from _records_of_topic(topic)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource=resource, name=name, value=value)
    for acl in image.acls:
        yield AclRecord(acl=acl)
    for user, password in image.users.items():
        yield UserRecord(name=user, password=password)
    for entity, limits in image.quotas.items():
        for key, limit in limits.items():
            yield ClientQuotaRecord(entity=entity, key=key, value=limit)


def encode_snapshot(image: MetadataImage) -> Iterator[bytes]:
    """The stream, a chunk at a time. Equal images give equal bytes."""
    yield _framed(encode_snapshot_head(image.index, image.metadata_version, SNAPSHOT_FORMAT))
    count = text_bytes = 0
    chunk: list[MetadataRecord] = []
    for record in records_of(image):
        chunk.append(record)
        text_bytes += _text_bytes(record)
        if len(chunk) == CHUNK_RECORDS or text_bytes >= CHUNK_TEXT_BYTES:
            yield _framed(encode_snapshot_batch(chunk))
            count += len(chunk)
            chunk, text_bytes = [], 0
    if chunk:
        yield _framed(encode_snapshot_batch(chunk))
    yield _framed(encode_snapshot_tail(count + len(chunk)))


def decode_snapshot(pieces: Iterable[bytes]) -> MetadataImage:
    """The image. `pieces` are the stream, split anywhere. CorruptMessageError if it is truncated or malformed;
    UnsupportedVersionError if a newer release wrote it.
    """
    loader = SnapshotLoader()
    for piece in pieces:
        loader.feed(piece)
    return loader.image()


class SnapshotLoader:
    """Reads the stream piece by piece, so that the caller can yield to the event loop in between. One use."""

    def __init__(self) -> None:
        self._pending = bytearray()  # less than one chunk and its length
        self._delta: MetadataDelta | None = None  # none before the head
        self._index = RaftIndex(0)
        self._count = 0  # records so far
        self._ended = False  # the tail was read, and its count matches

    def feed(self, piece: bytes) -> None:
        self._pending += piece
        at = 0
        while len(self._pending) - at >= LENGTH_BYTES:
            size = int.from_bytes(self._pending[at : at + LENGTH_BYTES], "big")
            if size > CHUNK_BYTES_MAX:
                raise CorruptMessageError(f"a metadata snapshot has a chunk of {size} bytes")
            if len(self._pending) - at - LENGTH_BYTES < size:
                break
            at += LENGTH_BYTES + size
            self._take(bytes(self._pending[at - size : at]))
        del self._pending[:at]

    def image(self) -> MetadataImage:
        """After the last piece."""
        if self._delta is None or not self._ended or self._pending:
            raise CorruptMessageError("a metadata snapshot ends before its tail")
        return self._delta.apply()

    def _take(self, data: bytes) -> None:
        chunk = decode_snapshot_chunk(data)
        if self._ended or isinstance(chunk, tuple) != (self._delta is None):
            raise CorruptMessageError("a metadata snapshot's chunks are out of order")
        if isinstance(chunk, tuple):
            self._begin(*chunk)
        elif isinstance(chunk, int):
            self._end(chunk)
        elif self._delta is not None:
            self._delta.replay(chunk, self._index)
            self._count += len(chunk)

    def _begin(self, snapshot_format: int, index: int, metadata_version: MetadataVersion) -> None:
        if snapshot_format != SNAPSHOT_FORMAT:
            raise UnsupportedVersionError(
                f"a metadata snapshot of format {snapshot_format}; this release reads format {SNAPSHOT_FORMAT}",
                field="format",
                limit=SNAPSHOT_FORMAT,
            )
        if metadata_version:
            require_supported(metadata_version)
        self._index = RaftIndex(index)
        self._delta = MetadataDelta(EMPTY_IMAGE)
        self._delta.replay((), self._index)

    def _end(self, record_count: int) -> None:
        if record_count != self._count:
            raise CorruptMessageError(f"a metadata snapshot of {record_count} records holds {self._count}")
        self._ended = True


def _text_bytes(record: MetadataRecord) -> int:
    """An upper bound of what is long in some records; UTF-8 takes up to 4 bytes a character."""
    if isinstance(record, ConfigRecord):
        return 4 * len(record.value or "")
    if isinstance(record, BrokerRecord):
        broker = record.broker
        listeners = sum(4 * (len(one.name) + len(one.host)) + 16 for one in broker.listeners)
        return 4 * (len(broker.host) + len(broker.rack)) + 18 * len(broker.directory_ids) + listeners
    if isinstance(record, AclRecord):
        return 4 * (len(record.acl.name) + len(record.acl.principal))
    if isinstance(record, ClientQuotaRecord):
        return 4 * sum(len(part or "") for part in record.entity.parts())
    return 0


def _framed(chunk: bytes) -> bytes:
    return len(chunk).to_bytes(LENGTH_BYTES, "big") + chunk


def _records_of_topic(topic: Topic) -> Iterator[MetadataRecord]:
    yield TopicRecord(topic_id=topic.topic_id, name=topic.name)
    for partition_id, partition in enumerate(topic.partitions):
        yield PartitionRecord(topic_id=topic.topic_id, partition_id=PartitionId(partition_id), partition=partition)
