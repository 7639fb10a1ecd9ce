"""The token that makes retries of Publish idempotent: producer id and epoch, the next sequence of each partition, and
the partition count of each topic.

    byte  0  version           u8      1
          1  CRC-32C           u32     of the rest: truncated or changed tokens are refused
          5  producer id       i64  \\
         13  producer epoch    i16   |
         15  partitions        u32   |
         19  topics            u32   |
             topic id          16 B  |  for each partition
             partition         u32   |
             next sequence     i32   |
             topic id          16 B  |  for each topic
             partitions        u32  /

Big-endian. A request begins at the sequences of its token and chooses partitions by the token alone; so the same
records with the same token make the same batches, and leaders recognize those that they have already (SEMANTICS 6).
Only the client keeps the token, so it can retry at any other node.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, TypeAlias

from crc32c import crc32c
from msgspec import Struct, field

from streamlog.errors import InvalidRequestError
from streamlog.model import INT32_MAX, PartitionId, ProducerEpoch, ProducerId, TopicId

TOKEN_BYTES_MAX: Final = 64 << 10
_VERSION: Final = 1
_BEFORE: Final = struct.Struct(">BI")
_HEAD: Final = struct.Struct(">qhII")
_PARTITION: Final = struct.Struct(">16sIi")
_TOPIC: Final = struct.Struct(">16sI")
SEQUENCES: Final = 1 << 31  # 2^31-1 is followed by 0

PartitionKey: TypeAlias = tuple[TopicId, PartitionId]


class ProducerToken(Struct, frozen=True, kw_only=True):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    sequences: Mapping[PartitionKey, int] = field(default_factory=dict)  # the next one, where it is not 0
    counts: Mapping[TopicId, int] = field(default_factory=dict)  # partitions of a topic when it was first written to

    def sequence_of(self, partition: PartitionKey) -> int:
        return self.sequences.get(partition, 0)

    def after(self, topic_id: TopicId, count: int, written: Mapping[PartitionId, int]) -> ProducerToken:
        """The token after `written` records to each partition of a topic with `count` partitions."""
        sequences = dict(self.sequences)
        for index, records in written.items():
            partition = (topic_id, index)
            sequences[partition] = (self.sequence_of(partition) + records) % SEQUENCES
        return ProducerToken(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sequences=sequences,
            counts={**self.counts, topic_id: count},
        )

    def check_size(self) -> None:
        """Before anything is written whose response has the token. InvalidRequestError."""
        if self.size_bytes > TOKEN_BYTES_MAX:
            raise InvalidRequestError(
                f"this producer writes to {len(self.sequences)} partitions of {len(self.counts)} topics, more than a "
                f"producer_token of {TOKEN_BYTES_MAX} bytes can hold: use a producer for each topic",
                field="producer_token",
                limit=TOKEN_BYTES_MAX,
            )

    @property
    def size_bytes(self) -> int:
        fixed = _BEFORE.size + _HEAD.size
        return fixed + len(self.sequences) * _PARTITION.size + len(self.counts) * _TOPIC.size

    def encode(self) -> bytes:
        parts = [_HEAD.pack(self.producer_id, self.producer_epoch, len(self.sequences), len(self.counts))]
        parts += [_PARTITION.pack(*partition, self.sequences[partition]) for partition in sorted(self.sequences)]
        parts += [_TOPIC.pack(topic_id, self.counts[topic_id]) for topic_id in sorted(self.counts)]
        body = b"".join(parts)
        return _BEFORE.pack(_VERSION, crc32c(body)) + body


def decode_token(data: bytes) -> ProducerToken:
    """InvalidRequestError if it is not one that a node has returned."""
    if len(data) > TOKEN_BYTES_MAX:
        raise InvalidRequestError(
            f"producer_token has {len(data)} bytes, more than {TOKEN_BYTES_MAX}: pass that of the previous response "
            "unchanged",
            field="producer_token",
            limit=TOKEN_BYTES_MAX,
        )
    head = _BEFORE.size + _HEAD.size
    if len(data) >= head:
        version, checksum = _BEFORE.unpack_from(data, 0)
        producer_id, epoch, partitions, topics = _HEAD.unpack_from(data, _BEFORE.size)
        middle = head + partitions * _PARTITION.size
        whole = len(data) == middle + topics * _TOPIC.size
        if version == _VERSION and whole and checksum == crc32c(data[_BEFORE.size :]):
            token = ProducerToken(
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(epoch),
                sequences={
                    (TopicId(topic_id), PartitionId(partition)): sequence
                    for topic_id, partition, sequence in _PARTITION.iter_unpack(data[head:middle])
                },
                counts={TopicId(topic_id): count for topic_id, count in _TOPIC.iter_unpack(data[middle:])},
            )
            if _is_bounded(token):
                return token
    raise InvalidRequestError(
        "producer_token is invalid: pass that of the previous response unchanged", field="producer_token"
    )


def _is_bounded(token: ProducerToken) -> bool:
    """Anybody can compute the CRC: it is against accidents."""
    return (
        token.producer_id >= 0
        and token.producer_epoch >= 0
        and all(partition <= INT32_MAX and sequence >= 0 for (_, partition), sequence in token.sequences.items())
        and all(1 <= count <= INT32_MAX for count in token.counts.values())
    )
