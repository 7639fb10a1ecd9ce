"""Records of `__transaction_state` as bytes: Kafka's schemas (TransactionLogKey 0, TransactionLogValue 1).

A time-out of -1, two-phase commit, is written as Kafka writes it: INT32_MAX.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from streamlog.errors import InvalidRecordError, UnsupportedVersionError
from streamlog.model import (
    INT32_MAX,
    NO_PRODUCER_ID,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from streamlog.records.message_reader import MessageReader
from streamlog.records.message_writer import MessageWriter
from streamlog.transactions.records import TWO_PHASE, Record, TransactionState, TransactionValue

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1  # flexible; 0 is not, and is read
_PREVIOUS_ID_TAG: Final = 0
_CLIENT_VERSION_TAG: Final = 2
_CLIENT_VERSION: Final = (2).to_bytes(2, "big")  # every transaction raises the epoch (KIP-890)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Key and value."""
    key = MessageWriter()
    key.int16(_KEY_VERSION)
    key.string(record.transactional_id)
    return key.content(), None if record.value is None else _encode_value(record.value)


def _encode_value(value: TransactionValue) -> bytes:
    writer = MessageWriter(flexible=True)
    writer.int16(_VALUE_VERSION)
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(INT32_MAX if value.timeout_ms == TWO_PHASE else value.timeout_ms)
    writer.int8(value.state)
    topics = [(topic, list(some)) for topic, some in groupby(sorted(value.partitions), lambda p: p.topic)]

    def topic_of(entry: tuple[str, list[TopicPartition]]) -> None:
        topic, some = entry
        writer.string(topic)
        writer.array(some, lambda p: writer.int32(p.partition))
        writer.tagged_fields()

    writer.array(topics, topic_of)
    writer.int64(value.updated_ms)
    writer.int64(value.started_ms)
    tagged = [(_CLIENT_VERSION_TAG, _CLIENT_VERSION)]
    if value.previous_producer_id != NO_PRODUCER_ID:
        tagged.insert(0, (_PREVIOUS_ID_TAG, value.previous_producer_id.to_bytes(8, "big", signed=True)))
    writer.tagged_fields(tagged)
    return writer.content()


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Raises UnsupportedVersionError, InvalidRecordError."""
    if key is None:
        raise InvalidRecordError("a record of __transaction_state must have a key")
    reader = MessageReader(key)
    version = reader.int16()
    if version != _KEY_VERSION:
        raise UnsupportedVersionError(f"records of kind {version} are not known here", field="type", version=version)
    transactional_id = reader.string()
    return Record(transactional_id, None if value is None else _decode_value(MessageReader(value)))


def _decode_value(reader: MessageReader) -> TransactionValue:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION:
        raise UnsupportedVersionError(
            f"version {version} of a transaction's state is not known here", field="version", version=version
        )
    reader.flexible = version == _VALUE_VERSION
    producer_id, producer_epoch = ProducerId(reader.int64()), ProducerEpoch(reader.int16())
    timeout_ms, state = reader.int32(), reader.int8()
    if state not in TransactionState.__members__.values():
        raise InvalidRecordError(f"a transaction cannot be in state {state}")

    def topic() -> list[TopicPartition]:
        name = reader.string()
        indexes = reader.array(reader.int32)
        reader.skip_tagged_fields()
        return [TopicPartition(name, PartitionId(index)) for index in indexes]

    partitions = frozenset(partition for some in reader.array(topic) for partition in some)
    updated_ms, started_ms = reader.int64(), reader.int64()
    previous = NO_PRODUCER_ID
    for tag, content in reader.tagged_fields():
        if tag == _PREVIOUS_ID_TAG:
            previous = ProducerId(content.int64())
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=previous,
        timeout_ms=TWO_PHASE if timeout_ms == INT32_MAX else timeout_ms,
        state=TransactionState(state),
        partitions=partitions,
        started_ms=started_ms,
        updated_ms=updated_ms,
    )
