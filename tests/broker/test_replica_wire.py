"""The replication stream's messages against protobuf's own code."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.api.pb import replication_pb2 as pb
from streamlog.broker import replica_wire
from streamlog.broker.replica_wire import (
    TRACES_MAX,
    AppendTrace,
    Divergence,
    Follow,
    FollowerHello,
    Position,
    Request,
    SlotUpdate,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from streamlog.errors import CorruptMessageError, InvalidRequestError, OffsetOutOfRangeError, RequestTooLargeError
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionId, TopicId
from streamlog.records.held_batch import HeldBatch
from streamlog.replication.joining import UnprovenEpochs

uint32 = st.integers(0, 2**31 - 1)
uint64 = st.integers(0, 2**63 - 1)
offsets = uint64.map(Offset)
batches = st.lists(st.binary(min_size=1), max_size=3)
plain_news = st.builds(lambda *fields: SlotUpdate(*fields), uint32, offsets, offsets, batches)
divergences = st.builds(Divergence, st.integers(-1, 2**31 - 1).map(LeaderEpoch), offsets)
ended_news = st.builds(lambda *fields: SlotUpdate(*fields), uint32, offsets, offsets, st.just(()), divergences)
credit = st.none() | uint64
saved = st.none() | offsets
held = st.builds(
    HeldBatch,
    st.integers(0, 2**62).map(Offset),
    st.integers(2**62 + 1, 2**63 - 1).map(Offset),
    st.integers(-1, 2**31 - 1).map(LeaderEpoch),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)
epochs = st.builds(
    lambda starts: UnprovenEpochs(
        Offset(starts[0]), [(LeaderEpoch(i), Offset(start)) for i, start in enumerate(starts)]
    ),
    st.lists(offsets, min_size=1, max_size=4, unique=True).map(sorted),
)
follows = st.builds(
    Follow,
    slot=uint32,
    topic_id=st.binary(min_size=16, max_size=16).map(TopicId),
    partition=uint32.map(PartitionId),
    leader_epoch=uint32.map(LeaderEpoch),
    fetch_offset=offsets,
    last_epoch=st.integers(-1, 2**31 - 1).map(LeaderEpoch),
    ackable_end=offsets,
    log_start=offsets,
    credit_bytes=credit,
    saved_log_start=saved,
    held=st.lists(held, max_size=1),
    unproven=st.none() | epochs,
    incomplete=st.booleans(),
)
hellos = st.builds(
    FollowerHello, st.text(max_size=20), uint32.map(BrokerId), uint64.map(BrokerEpoch), uint32.map(BrokerId)
)
requests = st.builds(
    Request,
    hello=st.none() | hellos,
    follows=st.lists(follows, max_size=3),
    positions=st.lists(st.builds(Position, uint32, offsets, credit, saved), max_size=3),
    unfollow=st.lists(uint32, max_size=3),
)


def joined(news: SlotUpdate) -> tuple[object, ...]:
    return (*news[:3], b"".join(news.batches), news.divergence)


def generated(items: list[SlotUpdate]) -> bytes:
    message = pb.ReplicateResponse()
    for item in items:
        one = message.partitions.add(
            slot=item.slot,
            high_watermark=item.high_watermark,
            log_start=item.log_start,
            batches=b"".join(item.batches),
        )
        if item.divergence is not None:
            one.diverging_epoch.leader_epoch, one.diverging_epoch.end_offset = item.divergence
    return message.SerializeToString(deterministic=True)


@given(st.lists(plain_news | ended_news, max_size=4))
def test_responses_are_what_generated_code_writes_and_reads(items: list[SlotUpdate]) -> None:
    ours = encode_response(items)
    assert ours == generated(items)
    assert [joined(news) for news in decode_response(ours)] == [joined(news) for news in items]


@given(st.lists(plain_news, min_size=1, max_size=3), st.data())
def test_damaged_responses_are_refused_or_read_never_worse(items: list[SlotUpdate], data: st.DataObject) -> None:
    whole = encode_response(items)
    cut = data.draw(st.integers(0, len(whole) - 1)) if whole else 0
    flipped = bytearray(whole)
    if flipped:
        flipped[cut] ^= data.draw(st.integers(1, 255))
    for damaged in (whole[:cut], bytes(flipped)):
        try:
            found = decode_response(damaged)
        except CorruptMessageError:
            continue
        assert sum(len(batch) for news in found for batch in news.batches) <= len(damaged)


def test_an_error_ends_a_slot_with_its_details() -> None:
    error = OffsetOutOfRangeError("not there", field="offset", log_start=3, log_end=9)
    (news,) = decode_response(encode_response([SlotUpdate(7, Offset(5), Offset(3), error=error)]))
    assert news.slot == 7
    assert isinstance(news.error, OffsetOutOfRangeError)
    assert (news.error.details["log_start"], news.error.details["log_end"]) == (3, 9)


def test_a_field_of_a_newer_release_is_passed_over() -> None:
    inner = pb.ReplicaBatches(slot=3, high_watermark=4, batches=b"abc").SerializeToString() + b"\xa0\x06\x01"
    (news,) = decode_response(bytes((1 << 3 | 2, len(inner))) + inner)
    assert joined(news) == (3, 4, 0, b"abc", None)


def test_contexts_of_traced_appends_come_with_the_bytes_and_are_bounded() -> None:
    traces = tuple(AppendTrace(Offset(end), "00-a-b-01") for end in (7, 9))
    sent = SlotUpdate(3, Offset(5), Offset(1), (b"abc", b"def"), traces=traces)
    (received,) = decode_response(encode_response([sent]))
    assert joined(received) == joined(sent)
    assert received.traces == traces
    many = pb.ReplicaBatches(traces=[pb.AppendTrace(end_offset=2**63 - 1, traceparent="x" * 9)] * 1_000)
    hostile = pb.ReplicateResponse(partitions=[many]).SerializeToString()
    assert decode_response(hostile)[0].traces == (AppendTrace(Offset(2**63 - 1), "x" * 9),) * TRACES_MAX


def test_a_missing_batch_field_and_an_empty_one_are_the_same() -> None:
    assert encode_response([SlotUpdate(0, Offset(0), Offset(0))]) == b"\x0a\x00"
    assert decode_response(b"\x0a\x02\x7a\x00") == [SlotUpdate(0, Offset(0), Offset(0))]


@given(requests)
def test_requests_come_back(request: Request) -> None:
    assert decode_request(encode_request(request)) == request


reported = st.builds(pb.Position, slot=st.integers(0, 2**32 - 1), log_end_offset=st.integers(0, 2**63 - 1))


def outcome(data: bytes) -> Request | str:
    try:
        return decode_request(data)
    except (InvalidRequestError, RequestTooLargeError) as error:
        return repr(error)


@given(st.lists(reported, max_size=3), st.binary(max_size=12), st.data())
def test_positions_alone_are_read_as_generated_code_reads_them(
    positions: list[pb.Position], other: bytes, data: st.DataObject
) -> None:
    """Whole, cut off, with one byte changed, and with other bytes in between."""
    whole = pb.ReplicateRequest(positions=positions).SerializeToString()
    at = data.draw(st.integers(0, len(whole)))
    changed = bytearray(whole)
    if at < len(whole):
        changed[at] ^= data.draw(st.integers(1, 255))
    for message in (whole, whole[:at], bytes(changed), whole[:at] + other + whole[at:]):
        ours = outcome(message)
        with patch.object(replica_wire, "_positions_alone", lambda data: None):
            assert ours == outcome(message)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(InvalidRequestError):
        decode_request(b"\xff")
    with pytest.raises(InvalidRequestError, match="16 bytes"):
        decode_request(pb.ReplicateRequest(follow=[pb.Follow(topic_id=b"x")]).SerializeToString())
    with pytest.raises(RequestTooLargeError):
        decode_request(bytes(2 << 20))
