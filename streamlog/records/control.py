"""Control batches: records for the readers of a log, not for their users.

A control batch has bit 5 of the attributes set, contains one record, and takes an offset like any other. The record's
key is its kind: version i16, type i16. The values that streamlog writes and understands:

    ABORT, COMMIT    version i16, coordinator epoch i32: the producer's transaction ends here (KIP-98)
    LEADER_CHANGE    version i16, leader id i32, voters and granting voters: compact arrays of i32 ids (KIP-595)

Later versions append fields, so a reader takes those that it knows. Unknown types stay bytes.
"""

from __future__ import annotations

import enum
import struct
from typing import Final, TypeAlias

from msgspec import Struct

from streamlog.errors import InvalidRecordError
from streamlog.model import BrokerId, ProducerEpoch, ProducerId
from streamlog.records.batch import BatchFields, encode_batch
from streamlog.records.record import Record

_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION: Final = struct.Struct(">hi")
_LEADER: Final = struct.Struct(">hi")
_ID: Final = struct.Struct(">i")
_VERSION: Final = 0
_NO_TAGGED_FIELDS: Final = b"\x00"


class ControlType(enum.IntEnum):
    """The kind of a control record: the second number of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(Struct, frozen=True, kw_only=True):
    """The transaction of the batch's producer id ends at this offset."""

    commit: bool
    coordinator_epoch: int  # of the coordinator that wrote it; an older one's marker is refused


class LeaderChange(Struct, frozen=True, kw_only=True):
    """A Raft leader begins its epoch."""

    leader_id: BrokerId
    voters: tuple[BrokerId, ...]
    granting_voters: tuple[BrokerId, ...]


class OtherControl(Struct, frozen=True, kw_only=True):
    """A control record of an unknown type or version: kept, not interpreted."""

    type_number: int
    version: int
    value: bytes | None


ControlRecord: TypeAlias = EndTransactionMarker | LeaderChange | OtherControl


def encode_end_transaction(
    marker: EndTransactionMarker, *, producer_id: ProducerId, producer_epoch: ProducerEpoch, timestamp_ms: int
) -> bytes:
    """The batch that ends the transaction of this producer: 78 bytes. It has no sequence number."""
    fields = BatchFields(producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True)
    kind = ControlType.COMMIT if marker.commit else ControlType.ABORT
    value = _END_TRANSACTION.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch([value], [_KEY.pack(_VERSION, kind)], timestamps=timestamp_ms, fields=fields)


def encode_leader_change(change: LeaderChange, *, timestamp_ms: int) -> bytes:
    """The batch with which a leader begins its epoch."""
    value = b"".join(
        (
            _LEADER.pack(_VERSION, change.leader_id),
            _voters(change.voters),
            _voters(change.granting_voters),
            _NO_TAGGED_FIELDS,
        )
    )
    key = _KEY.pack(_VERSION, ControlType.LEADER_CHANGE)
    return encode_batch([value], [key], timestamps=timestamp_ms, fields=BatchFields(is_control=True))


def decode_control(record: Record) -> ControlRecord:
    """The contents of a control batch's record. Raises InvalidRecordError where it is too short."""
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError("a control record without a version and a type", field="key")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"control record version {version}", field="key")
    try:
        match number:
            case ControlType.ABORT | ControlType.COMMIT:
                _, epoch = _END_TRANSACTION.unpack_from(value or b"")
                return EndTransactionMarker(commit=number == ControlType.COMMIT, coordinator_epoch=epoch)
            case ControlType.LEADER_CHANGE:
                return _read_leader_change(value or b"", version)
            case _:
                return OtherControl(type_number=number, version=version, value=value)
    except (struct.error, IndexError):
        raise InvalidRecordError(
            f"the value of a control record of type {number} is incomplete", field="value"
        ) from None


def _read_leader_change(value: bytes, version: int) -> LeaderChange | OtherControl:
    message_version, leader = _LEADER.unpack_from(value)
    if message_version != _VERSION:  # the elements of version 1 are longer
        return OtherControl(type_number=ControlType.LEADER_CHANGE, version=version, value=value)
    voters, position = _read_voters(value, _LEADER.size)
    granting, _ = _read_voters(value, position)
    return LeaderChange(leader_id=BrokerId(leader), voters=voters, granting_voters=granting)


def _voters(voters: tuple[BrokerId, ...]) -> bytes:
    if len(voters) > 126:
        raise InvalidRecordError(f"{len(voters)} voters", field="voters", limit=126)
    return bytes([len(voters) + 1]) + b"".join(_ID.pack(voter) + _NO_TAGGED_FIELDS for voter in voters)


def _read_voters(value: bytes, position: int) -> tuple[tuple[BrokerId, ...], int]:
    """A compact array: its length + 1 in one byte (at most 126 voters), then for each the id and no tags."""
    count = value[position] - 1
    if not 0 <= count <= 126:
        raise InvalidRecordError(f"{count} voters", field="voters", limit=126)
    position += 1
    voters: list[BrokerId] = []
    for _ in range(count):
        (voter,) = _ID.unpack_from(value, position)
        if value[position + _ID.size] != 0:
            raise InvalidRecordError("a voter with tagged fields", field="voters")
        voters.append(BrokerId(voter))
        position += _ID.size + 1
    return tuple(voters), position
