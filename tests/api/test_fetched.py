"""Answers to fetches by hand, held against protobuf's own library."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from streamlog.api.fetched import PARTITIONS_MAX, Fetched, decode, encode
from streamlog.api.pb import batches_pb2 as pb
from streamlog.errors import CorruptMessageError

parts = st.builds(
    pb.FetchedPartition,
    topic=st.text(max_size=5),
    partition=st.integers(0, 2**31 - 1),
    correlation_id=st.integers(0, 2**64 - 1),
    high_watermark=st.integers(-1, 2**63 - 1),
    aborted_transactions=st.lists(st.builds(pb.AbortedTransaction, producer_id=st.integers(0, 2**63 - 1)), max_size=2),
)
answers = st.lists(st.builds(Fetched, parts, st.binary(max_size=300)), max_size=3)


def message_of(answer: Sequence[Fetched]) -> pb.FetchStreamResponse:
    message = pb.FetchStreamResponse()
    for part, batches in answer:
        added = message.partitions.add()
        added.CopyFrom(part)
        added.batches = bytes(batches)
    return message


def plain(answer: Sequence[Fetched]) -> list[tuple[pb.FetchedPartition, bytes]]:
    return [(part, bytes(batches)) for part, batches in answer]


@given(answers)
def test_the_library_reads_what_we_write(answer: list[Fetched]) -> None:
    data = encode(answer)
    assert pb.FetchStreamResponse.FromString(data) == message_of(answer)
    assert pb.FetchResponse.FromString(data).SerializeToString() == message_of(answer).SerializeToString()


@given(answers)
def test_we_read_what_the_library_writes(answer: list[Fetched]) -> None:
    assert plain(decode(message_of(answer).SerializeToString())) == plain(answer)


def test_batches_are_views_of_the_message_where_they_are_most_of_it() -> None:
    """Keeping a small batch does not keep a large message in memory."""
    data = encode([Fetched(pb.FetchedPartition(topic=name), size * b"x") for name, size in (("a", 90), ("b", 20))])
    [(first, large), (second, small)] = decode(data)
    assert (first.topic, second.topic) == ("a", "b")
    assert (bytes(large), small) == (90 * b"x", 20 * b"x")
    assert isinstance(large, memoryview)
    assert large.obj is data
    assert isinstance(small, bytes)


def test_fields_in_another_order_and_fields_that_we_do_not_know() -> None:
    """A newer release, or another program's library."""
    head = pb.FetchedPartition(topic="t", high_watermark=300).SerializeToString()
    unknown = b"\xa0\x06\x05" + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4) + b"\xa2\x06\x02xy"  # field 100
    for inner in (b"\x7a\x03abc" + head, unknown + head + b"\x7a\x03abc", head + b"\x7a\x03abc" + unknown):
        [(part, batches)] = decode(unknown + b"\x0a" + bytes((len(inner),)) + inner)
        assert (part.topic, part.high_watermark, bytes(batches)) == ("t", 300, b"abc")
        assert not part.batches


@given(answers, st.data())
def test_what_is_cut_off_or_damaged_is_an_error_or_read_as_the_library_does(
    answer: list[Fetched], draw: st.DataObject
) -> None:
    data = bytearray(encode(answer))
    if data:
        at = draw.draw(st.integers(0, len(data) - 1))
        if draw.draw(st.booleans()):
            del data[at:]
        else:
            data[at] ^= draw.draw(st.integers(1, 255))
    try:
        wanted = pb.FetchStreamResponse.FromString(bytes(data))
    except DecodeError:
        wanted = None
    try:
        found = decode(bytes(data))
    except CorruptMessageError:
        found = None
    if wanted is not None and found is not None:
        assert [bytes(batches) for _, batches in found] == [one.batches for one in wanted.partitions]
    elif wanted is None:
        assert found is None


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x0f\x00", b"\x0d\x00", b"\x80" * 11, b"\x00\x00", b"\x88\x80\x80\x80\x10\x00"],
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(CorruptMessageError):
        decode(data)


def test_the_partitions_of_a_response_are_bounded() -> None:
    """Two bytes for each empty one: a response of 1 MB became 300 MB at its client."""
    assert len(decode(b"\x0a\x00" * PARTITIONS_MAX)) == PARTITIONS_MAX
    with pytest.raises(CorruptMessageError, match="more than 100000 partitions"):
        decode(b"\x0a\x00" * (PARTITIONS_MAX + 1))
