"""The messages of a replication stream as bytes (streamlog.internal.v1.Replication). Protobuf ends here.

Followers' messages are small and use generated code, but for positions alone: there is one such message for each group
commit. Leaders' messages are mostly record batches, which protobuf's library would copy twice more when encoding and
once more when decoding. So the frame around them is encoded and decoded here: the join is the only copy on the leader,
and on the follower batches are views of the message. The frame is the fields' order and wire types of ReplicateResponse
and ReplicaBatches; all other fields (an error, a divergence, a field of a newer release) use generated code, with which
the tests compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from streamlog.api.errors import from_message, to_message
from streamlog.api.pb import replication_pb2 as pb
from streamlog.api.service import parse
from streamlog.api.wire_format import LENGTH_DELIMITED, VARINT, read_varint, tag, varint
from streamlog.errors import CorruptMessageError, InvalidRequestError, StreamlogError
from streamlog.model import (
    INT32_MAX,
    INT64_MAX,
    NO_LEADER_EPOCH,
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionId,
    TopicId,
)
from streamlog.ports import Buffer
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.joining import UnprovenEpochs

METHOD: Final = "/streamlog.internal.v1.Replication/Replicate"
REQUEST_BYTES_MAX: Final = 1 << 20
"""The largest message of a follower."""
TOPIC_ID_SIZE: Final = 16
HELD_MAX: Final = 1024
"""Batches that a follower names of one log: 30 bytes each."""

EPOCHS_MAX: Final = 64
"""Leader epochs that a follower names of one log: at most 16 bytes each."""

CREDIT_MAX: Final = 2**63 - 1
"""Credit without a limit."""

TRACES_MAX: Final = 64
"""Contexts of one partition in a message; further ones are ignored."""

_PARTITIONS: Final = tag(1, LENGTH_DELIMITED)
_SLOT: Final = tag(1, VARINT)
_HIGH_WATERMARK: Final = tag(2, VARINT)
_LOG_START: Final = tag(3, VARINT)
_BATCHES: Final = tag(15, LENGTH_DELIMITED)
_POSITIONS: Final = tag(3, LENGTH_DELIMITED)
_POSITION_SLOT: Final = tag(1, VARINT)
_POSITION_END: Final = tag(2, VARINT)
_PARTITIONS_TAG: Final = bytes((_PARTITIONS,))
_SLOT_TAG: Final = bytes((_SLOT,))
_HIGH_WATERMARK_TAG: Final = bytes((_HIGH_WATERMARK,))
_LOG_START_TAG: Final = bytes((_LOG_START,))
_BATCHES_TAG: Final = bytes((_BATCHES,))


class FollowerHello(NamedTuple):
    cluster_id: str
    node_id: BrokerId
    broker_epoch: BrokerEpoch
    leader_id: BrokerId


class Follow(NamedTuple):
    slot: int
    topic_id: TopicId
    partition: PartitionId
    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_epoch: LeaderEpoch  # -1: the follower's log is empty
    ackable_end: Offset
    log_start: Offset
    credit_bytes: int | None  # since the slot began; None: without limit
    held: Sequence[HeldBatch] = ()  # the last batches of the follower's log, up to fetch_offset
    saved_log_start: Offset | None = None  # in the follower's checkpoint; None: an earlier release, unknown
    unproven: UnprovenEpochs | None = None
    incomplete: bool = False  # the follower cannot lead before it has left the ISR and joined it again


class Position(NamedTuple):
    slot: int
    ackable_end: Offset
    credit_bytes: int | None = None  # None: as before
    saved_log_start: Offset | None = None  # None: as before


class Request(NamedTuple):
    """From follower to leader."""

    hello: FollowerHello | None = None
    follows: Sequence[Follow] = ()
    positions: Sequence[Position] = ()
    unfollow: Sequence[int] = ()


class Divergence(NamedTuple):
    """Where the leader's log diverges from the follower's: an epoch of the leader's (-1: none), and its end there."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


class AppendTrace(NamedTuple):
    """The span of the replication of one append."""

    end_offset: Offset  # one past its last record
    traceparent: str  # W3C; from the wire it may be anything


class SlotUpdate(NamedTuple):
    """From leader to follower, for one slot. A divergence, a difference or an error ends the slot."""

    slot: int
    high_watermark: Offset
    log_start: Offset
    batches: Sequence[Buffer] = ()  # whole batches; when decoded one view of the message, or nothing
    divergence: Divergence | None = None
    error: StreamlogError | None = None
    differs_from: Offset | None = None  # ends the slot: from here on the follower's log differs from the leader's
    has_gaps: bool = False  # in the first update of a slot
    traces: Sequence[AppendTrace] = ()  # of appends among `batches`


# -- from follower to leader


def encode_request(request: Request) -> bytes:
    message = pb.ReplicateRequest(unfollow=request.unfollow)
    if request.hello is not None:
        hello = request.hello
        message.hello.cluster_id = hello.cluster_id
        message.hello.node_id = hello.node_id
        message.hello.broker_epoch = hello.broker_epoch
        message.hello.leader_id = hello.leader_id
    for follow in request.follows:
        message.follow.add(
            slot=follow.slot,
            topic_id=follow.topic_id,
            partition=follow.partition,
            leader_epoch=follow.leader_epoch,
            fetch_offset=follow.fetch_offset,
            last_epoch=None if follow.last_epoch == NO_LEADER_EPOCH else follow.last_epoch,
            log_end_offset=follow.ackable_end,
            log_start=follow.log_start,
            credit_bytes=follow.credit_bytes,
            held=[pb.HeldBatch(**held._asdict()) for held in follow.held],
            saved_log_start=follow.saved_log_start,
            unproven=None if follow.unproven is None else _unproven_message(follow.unproven),
            incomplete=follow.incomplete,
        )
    for position in request.positions:
        message.positions.add(
            slot=position.slot,
            log_end_offset=position.ackable_end,
            credit_bytes=position.credit_bytes,
            saved_log_start=position.saved_log_start,
        )
    return message.SerializeToString()


def decode_request(data: bytes) -> Request:
    """InvalidRequestError, RequestTooLargeError."""
    positions = _positions_alone(data)
    if positions is not None:
        return Request(follows=[], positions=positions, unfollow=[])
    message = parse(pb.ReplicateRequest, data, REQUEST_BYTES_MAX)
    return Request(
        hello=_hello(message.hello) if message.HasField("hello") else None,
        follows=[_follow(follow) for follow in message.follow],
        positions=[
            Position(
                p.slot,
                Offset(p.log_end_offset),
                p.credit_bytes if p.HasField("credit_bytes") else None,
                _saved_log_start(p),
            )
            for p in message.positions
        ],
        unfollow=list(message.unfollow),
    )


def _saved_log_start(message: pb.Follow | pb.Position) -> Offset | None:
    if not message.HasField("saved_log_start"):
        return None
    if message.saved_log_start > INT64_MAX:
        raise InvalidRequestError(
            f"saved_log_start is {message.saved_log_start}, but must be at most {INT64_MAX}",
            field="saved_log_start",
            limit=INT64_MAX,
        )
    return Offset(message.saved_log_start)


def _positions_alone(data: bytes) -> list[Position] | None:
    """Of a message that has nothing else, without credit and log starts, as nearly all have. None: generated code
    decides.
    """
    found: list[Position] = []
    position, stop = 0, len(data)
    if stop > REQUEST_BYTES_MAX:
        return None
    try:
        while position < stop:
            if data[position] != _POSITIONS:
                return None
            size, position = read_varint(data, position + 1, stop)
            end = position + size
            if end > stop:
                return None
            slot = ackable_end = 0
            while position < end:
                what = data[position]
                if what == _POSITION_SLOT:
                    slot, position = read_varint(data, position + 1, end)
                elif what == _POSITION_END:
                    ackable_end, position = read_varint(data, position + 1, end)
                else:
                    return None
            if slot > INT32_MAX or ackable_end > INT64_MAX:
                return None
            found.append(Position(slot, Offset(ackable_end)))
    except CorruptMessageError:
        return None
    return found


def _hello(message: pb.ReplicaHello) -> FollowerHello:
    return FollowerHello(
        cluster_id=message.cluster_id,
        node_id=BrokerId(message.node_id),
        broker_epoch=BrokerEpoch(message.broker_epoch),
        leader_id=BrokerId(message.leader_id),
    )


def _follow(message: pb.Follow) -> Follow:
    if len(message.topic_id) != TOPIC_ID_SIZE:
        raise InvalidRequestError(f"a topic id has {TOPIC_ID_SIZE} bytes", field="topic_id", limit=TOPIC_ID_SIZE)
    return Follow(
        slot=message.slot,
        topic_id=TopicId(message.topic_id),
        partition=PartitionId(message.partition),
        leader_epoch=LeaderEpoch(message.leader_epoch),
        fetch_offset=Offset(message.fetch_offset),
        last_epoch=LeaderEpoch(message.last_epoch) if message.HasField("last_epoch") else NO_LEADER_EPOCH,
        ackable_end=Offset(message.log_end_offset),
        log_start=Offset(message.log_start),
        credit_bytes=message.credit_bytes if message.HasField("credit_bytes") else None,
        held=_held(message),
        saved_log_start=_saved_log_start(message),
        unproven=_unproven(message.unproven) if message.HasField("unproven") else None,
        incomplete=message.incomplete,
    )


def _unproven_message(unproven: UnprovenEpochs) -> pb.UnprovenEpochs:
    rows = [pb.EpochStart(leader_epoch=epoch, start_offset=start) for epoch, start in unproven.epochs]
    return pb.UnprovenEpochs(start_offset=unproven.start_offset, epochs=rows)


def _unproven(message: pb.UnprovenEpochs) -> UnprovenEpochs:
    rows = message.epochs
    if len(rows) > EPOCHS_MAX:
        raise InvalidRequestError(f"{len(rows)} epochs are named", field="unproven.epochs", limit=EPOCHS_MAX)
    if any(two.leader_epoch <= one.leader_epoch or two.start_offset <= one.start_offset for one, two in pairwise(rows)):
        raise InvalidRequestError("epochs do not follow one another", field="unproven.epochs")
    return UnprovenEpochs(
        Offset(message.start_offset), [(LeaderEpoch(one.leader_epoch), Offset(one.start_offset)) for one in rows]
    )


def _held(message: pb.Follow) -> list[HeldBatch]:
    if len(message.held) > HELD_MAX:
        raise InvalidRequestError(f"{len(message.held)} batches are named", field="held", limit=HELD_MAX)
    found = [
        HeldBatch(Offset(one.base_offset), Offset(one.next_offset), LeaderEpoch(one.leader_epoch), one.crc, one.origin)
        for one in message.held
    ]
    if any(one.next_offset <= one.base_offset for one in found) or any(
        two.base_offset < one.next_offset for one, two in pairwise(found)
    ):
        raise InvalidRequestError("batches do not follow one another", field="held")
    return found


# -- from leader to follower


def encode_response(updates: Iterable[SlotUpdate]) -> bytes:
    """One ReplicateResponse. The batches are copied once, into the result."""
    parts: list[Buffer] = []
    for item in updates:
        head, size = _head(item), 0
        if item.batches:
            size = sum(map(len, item.batches))
            head += _BATCHES_TAG + varint(size)
        parts += (_PARTITIONS_TAG + varint(len(head) + size) + head, *item.batches)
    return b"".join(parts)


def _head(item: SlotUpdate) -> bytes:
    """All fields but the batches, which come last."""
    common = item.error is None and item.divergence is None and item.differs_from is None
    if common and not item.has_gaps and not item.traces:
        head = _SLOT_TAG + varint(item.slot) if item.slot else b""
        if item.high_watermark:
            head += _HIGH_WATERMARK_TAG + varint(item.high_watermark)
        if item.log_start:
            head += _LOG_START_TAG + varint(item.log_start)
        return head
    message = pb.ReplicaBatches(
        slot=item.slot,
        high_watermark=item.high_watermark,
        log_start=item.log_start,
        differs_from=item.differs_from,
        has_gaps=item.has_gaps,
        traces=[pb.AppendTrace(end_offset=one.end_offset, traceparent=one.traceparent) for one in item.traces],
    )
    if item.divergence is not None:
        message.diverging_epoch.leader_epoch = item.divergence.leader_epoch
        message.diverging_epoch.end_offset = item.divergence.end_offset
    if item.error is not None:
        message.error.CopyFrom(to_message(item.error))
    return message.SerializeToString()


def decode_response(data: bytes) -> list[SlotUpdate]:
    """CorruptMessageError if `data` is not a ReplicateResponse, or has invalid offsets. Batches are views of `data`."""
    view, position, found, stop = memoryview(data), 0, [], len(data)
    while position < stop:
        what, position = read_varint(data, position, stop)
        if what != _PARTITIONS:
            raise CorruptMessageError(f"field {what >> 3} in a replication message", position=position)
        size, position = read_varint(data, position, stop)
        end = position + size
        if end > stop:
            raise CorruptMessageError("a replication message is cut off", position=position)
        update = _read_update(data, view, position, end)
        if update.high_watermark > INT64_MAX or update.log_start > INT64_MAX or update.slot > INT64_MAX:
            reason = f"high watermark {update.high_watermark}, log start {update.log_start}"
            raise CorruptMessageError(reason, position=end)
        found.append(update)
        position = end
    return found


def _read_update(data: bytes, view: memoryview, start: int, end: int) -> SlotUpdate:
    slot = high_watermark = log_start = 0
    batches: Sequence[Buffer] = ()
    position = start
    while position < end:
        what = data[position]  # the tags of these fields are one byte
        if what not in (_SLOT, _HIGH_WATERMARK, _LOG_START, _BATCHES):
            return _parsed_update(view[start:end])
        value, position = read_varint(data, position + 1, end)
        if what == _SLOT:
            slot = value
        elif what == _HIGH_WATERMARK:
            high_watermark = value
        elif what == _LOG_START:
            log_start = value
        elif position + value > end:
            raise CorruptMessageError("the batches of a replication message are cut off", position=position)
        else:
            batches = (view[position : position + value],) if value else ()
            position += value
    return SlotUpdate(slot, Offset(high_watermark), Offset(log_start), batches)


def _parsed_update(data: memoryview) -> SlotUpdate:
    """With fields beyond the frame above."""
    try:
        message = parse(pb.ReplicaBatches, bytes(data), len(data))
    except InvalidRequestError as error:
        raise CorruptMessageError(f"not a message of a replication stream: {error.message}") from None
    divergence = None
    if message.HasField("diverging_epoch"):
        end = message.diverging_epoch
        divergence = Divergence(LeaderEpoch(end.leader_epoch), Offset(end.end_offset))
    return SlotUpdate(
        slot=message.slot,
        high_watermark=Offset(message.high_watermark),
        log_start=Offset(message.log_start),
        batches=(message.batches,) if message.batches else (),
        divergence=divergence,
        error=from_message(message.error) if message.HasField("error") else None,
        differs_from=Offset(message.differs_from) if message.HasField("differs_from") else None,
        has_gaps=message.has_gaps,
        traces=tuple(AppendTrace(Offset(one.end_offset), one.traceparent) for one in message.traces[:TRACES_MAX]),
    )
