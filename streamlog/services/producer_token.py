"""The token that makes a repeated Publish exact: who writes, and where each partition's sequence stands.

    byte  0  version           u8      1
          1  CRC-32C           u32     of all that follows, so that a token that was cut or changed is refused
          5  producer id       i64  \\
         13  producer epoch    i16   |
         15  partitions        u32   |  then for each
             topic id          16 B  |
             partition         u32   |
             next sequence     i32  /

Big-endian. A request begins at the sequences of its token and places its records on partitions by the token and
nothing else; so the same records with the same token make the same batches, and the leaders find those that they have
already (SEMANTICS 6). Nobody keeps the token but the client: any node goes on where another one died.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from crc32c import crc32c

from streamlog.errors import InvalidRequestError
from streamlog.model import PartitionId, ProducerEpoch, ProducerId, TopicId

TOKEN_BYTES_MAX: Final = 64 << 10
_VERSION: Final = 1
_BEFORE: Final = struct.Struct(">BI")
_HEAD: Final = struct.Struct(">qhI")
_PARTITION: Final = struct.Struct(">16sIi")
PARTITIONS_MAX: Final = (TOKEN_BYTES_MAX - _BEFORE.size - _HEAD.size) // _PARTITION.size
_SEQUENCES: Final = 1 << 31  # 2^31-1 is followed by 0

PartitionKey: TypeAlias = tuple[TopicId, PartitionId]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerToken:
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    sequences: Mapping[PartitionKey, int] = field(default_factory=dict)  # the next one, where it is not 0

    def sequence_of(self, partition: PartitionKey) -> int:
        return self.sequences.get(partition, 0)

    def after(self, written: Mapping[PartitionKey, int]) -> ProducerToken:
        """Once so many records have gone to each partition. InvalidRequestError where they are too many for a token."""
        sequences = dict(self.sequences)
        for partition, count in written.items():
            sequences[partition] = (self.sequence_of(partition) + count) % _SEQUENCES
        if len(sequences) > PARTITIONS_MAX:
            raise InvalidRequestError(
                f"one producer writes to {len(sequences)} partitions, a token holds {PARTITIONS_MAX}",
                field="producer_token",
                limit=PARTITIONS_MAX,
            )
        return ProducerToken(producer_id=self.producer_id, producer_epoch=self.producer_epoch, sequences=sequences)

    def encode(self) -> bytes:
        parts = [_HEAD.pack(self.producer_id, self.producer_epoch, len(self.sequences))]
        parts += [_PARTITION.pack(*partition, self.sequences[partition]) for partition in sorted(self.sequences)]
        body = b"".join(parts)
        return _BEFORE.pack(_VERSION, crc32c(body)) + body


def decode_token(data: bytes) -> ProducerToken:
    """InvalidRequestError where no node has made it."""
    if len(data) > TOKEN_BYTES_MAX:
        raise InvalidRequestError(
            f"a producer_token has at most {TOKEN_BYTES_MAX} bytes, not {len(data)}",
            field="producer_token",
            limit=TOKEN_BYTES_MAX,
        )
    head = _BEFORE.size + _HEAD.size
    if len(data) >= head:
        version, checksum = _BEFORE.unpack_from(data, 0)
        producer_id, epoch, count = _HEAD.unpack_from(data, _BEFORE.size)
        whole = len(data) == head + count * _PARTITION.size
        if version == _VERSION and whole and checksum == crc32c(data[_BEFORE.size :]):
            sequences = {
                (TopicId(topic_id), PartitionId(partition)): sequence
                for topic_id, partition, sequence in _PARTITION.iter_unpack(data[head:])
            }
            return ProducerToken(
                producer_id=ProducerId(producer_id), producer_epoch=ProducerEpoch(epoch), sequences=sequences
            )
    raise InvalidRequestError("this producer_token is none that a response has given", field="producer_token")
