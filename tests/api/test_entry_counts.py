"""Large requests with too many entries are refused before they are parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from streamlog.api import entry_counts
from streamlog.api.convert.records import publish_transactions
from streamlog.api.convert.records.produce import produce_request, produce_stream_request
from streamlog.api.convert.records.publish import check_record_count
from streamlog.api.entry_counts import COUNTED_BYTES_MIN, OTHER_FIELDS_MAX, check_entry_counts
from streamlog.api.pb import batches_pb2, records_pb2
from streamlog.api.service import parse
from streamlog.api.wire_format import LENGTH_DELIMITED, VARINT, tag, varint
from streamlog.errors import CorruptMessageError, InvalidRequestError

LARGE = COUNTED_BYTES_MIN + 1
UNPARSABLE = b"\x07"


def entry(number: int, body: bytes = b"") -> bytes:
    return varint(tag(number, LENGTH_DELIMITED)) + varint(len(body)) + body


def refusal(message_type: Any, data: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse(message_type, data, len(data))
    return caught.value


PUBLISHED = (records_pb2.PublishRequest, records_pb2.PublishStreamRequest)
LISTS = {
    "partitions": (batches_pb2.ProduceRequest, entry(4), 10_000, produce_request),
    "partitions in a stream": (batches_pb2.ProduceStreamRequest, entry(4), 10_000, produce_stream_request),
    "records": (PUBLISHED[0], entry(2), 10_000, lambda message: check_record_count(message.records)),
    "records in a stream": (PUBLISHED[1], entry(2), 10_000, lambda message: check_record_count(message.records)),
    "groups": (PUBLISHED[1], entry(6), 100, publish_transactions.offsets),
}


@pytest.mark.parametrize(("message_type", "one", "most", "convert"), LISTS.values(), ids=LISTS)
def test_too_many_entries_are_refused_unparsed_as_they_are_when_parsed(
    message_type: Any, one: bytes, most: int, convert: Callable[[Any], object]
) -> None:
    early = refusal(message_type, one * (most + 1) + UNPARSABLE * LARGE)
    with pytest.raises(InvalidRequestError) as caught:
        convert(message_type.FromString(one * (most + 1)))
    assert early.message == caught.value.message.replace(f"{most + 1}", f"more than {most}")
    assert early.details == caught.value.details
    options = entry(3, bytes(LARGE)) if message_type is batches_pb2.ProduceRequest else entry(1, b"t" * LARGE)
    assert parse(message_type, options + one * most, 2 * LARGE) is not None


def test_offsets_of_all_groups_are_counted_together() -> None:
    group = entry(6, entry(3) * 5_000)
    early = refusal(PUBLISHED[1], group * 2 + entry(6, entry(3)) + UNPARSABLE * LARGE)
    with pytest.raises(InvalidRequestError) as caught:
        publish_transactions.offsets(PUBLISHED[1].FromString(group * 2 + entry(6, entry(3))))
    assert early.message == caught.value.message.replace("10001", "more than 10000")
    assert early.details == caught.value.details
    parse(PUBLISHED[1], entry(1, b"t" * LARGE) + group * 2, 2 * LARGE)


def test_headers_of_all_records_are_counted_together() -> None:
    one = entry(2, entry(1, b"key") + entry(3) * 500)
    early = refusal(PUBLISHED[0], one * 101 + UNPARSABLE * LARGE)
    with pytest.raises(InvalidRequestError) as caught:
        check_record_count(PUBLISHED[0].FromString(one * 101).records)
    assert early.message == caught.value.message.replace("50500", "more than 50000")
    assert early.details == caught.value.details
    check_record_count(parse(PUBLISHED[0], entry(1, b"t" * LARGE) + one * 100, 2 * LARGE).records)


def test_links_of_all_partitions_are_counted_together() -> None:
    for message_type in (batches_pb2.ProduceRequest, batches_pb2.ProduceStreamRequest):
        early = refusal(message_type, entry(4, entry(7) * 1_001) * 100 + UNPARSABLE * LARGE)
        assert "linked_traceparents has more than 100000 entries in all" in str(early)
        parse(message_type, entry(3, bytes(LARGE)) + entry(4, entry(7) * 1_000) * 100, 2 * LARGE)


def test_requests_with_as_many_entries_as_they_may_have_are_parsed() -> None:
    """Each with all of its fields."""
    record = records_pb2.PublishRecord(key=b"k", value=b"v", timestamp_ms=1, partition=1)
    for _ in range(5):
        record.headers.add(key="h", value=b"x")
    publish = records_pb2.PublishRequest(topic="t", records=[record] * 10_000)
    part = batches_pb2.PartitionBatches(
        topic="t", topic_id=bytes(16), partition=1, leader_epoch=1, correlation_id=1, traceparent="t", batches=b"b"
    )
    part.linked_traceparents.extend(["t"] * 10)
    produce = batches_pb2.ProduceStreamRequest(partitions=[part] * 10_000, timeout_ms=1)
    for message in (publish, produce):
        data = message.SerializeToString()
        assert len(data) > LARGE
        assert parse(type(message), data, len(data)) == message


@pytest.mark.parametrize("number", [1, 99])
def test_thousands_of_other_fields_are_not_walked(number: int) -> None:
    """A walk in Python over a million of them would itself hold up the node."""
    early = refusal(PUBLISHED[0], entry(number) * (OTHER_FIELDS_MAX + 1) + UNPARSABLE * LARGE)
    assert "thousands of fields beside the entries" in str(early)
    parse(PUBLISHED[0], entry(number) * (OTHER_FIELDS_MAX - 1) + entry(1, b"t" * LARGE), 2 * LARGE)


def test_what_is_no_message_is_refused_as_such() -> None:
    for data in (UNPARSABLE * LARGE, bytes(LARGE), entry(2, bytes(LARGE))[:-1], entry(1, bytes(LARGE)) + b"\x80"):
        assert "cannot be parsed as streamlog.v1.PublishRequest" in str(refusal(PUBLISHED[0], data))


def wide(number: int, width: int) -> bytes:
    """A varint with so many bytes more than needed."""
    plain = varint(number)
    return plain if not width else plain[:-1] + bytes((plain[-1] | 0x80, *[0x80] * (width - 1), 0))


def field(number: int, wire_type: int, body: bytes, tag_width: int, size_width: int) -> bytes:
    begin = wide(tag(number, wire_type), tag_width)
    if wire_type == VARINT:
        return begin + wide(len(body), size_width)
    if wire_type == LENGTH_DELIMITED:
        return begin + wide(len(body), size_width) + body
    return begin + bytes(8 if wire_type == 1 else 4)


bodies = st.one_of(st.just(b""), st.builds(bytes, st.integers(0, 300)), st.builds(entry, st.sampled_from([3, 9])))
fields = st.builds(
    field, st.sampled_from([2, 2, 6, 6, 9]), st.sampled_from([0, 1, 2, 2, 2, 2, 5]), bodies, *[st.integers(0, 3)] * 2
)


@given(st.lists(fields, max_size=12), st.integers(0, 40))
def test_the_count_is_that_of_the_parsed_message(parts: list[bytes], cut: int) -> None:
    data = b"".join(parts)
    data = data[: len(data) - cut] if cut < 3 else data
    known = {one.field: one for one in entry_counts._LISTS[PUBLISHED[1]].values()}
    groups = entry_counts._List("groups", 2, "groups", {tag(3, 2): entry_counts._List("offsets", 1, "in all")})
    small = {tag(2, 2): entry_counts._List("records", 3, "records"), tag(6, 2): groups}
    assert known.keys() == {"records", "offsets"}
    problems: set[str] = set()
    try:
        message = PUBLISHED[1].FromString(data)
    except DecodeError:
        problems = {"no message"}
    else:
        in_all = sum(len(one.offsets) for one in message.offsets)
        counts = {"records": (len(message.records), 3), "groups": (len(message.offsets), 2), "in all": (in_all, 1)}
        problems = {problem for problem, (count, most) in counts.items() if count > most}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_counts, "_LISTS", {PUBLISHED[1]: small})
        found = ""
        try:
            check_entry_counts(PUBLISHED[1], data)
        except CorruptMessageError:
            found = "no message"
        except InvalidRequestError as error:
            found = error.message
    if problems != {"no message"}:  # otherwise entries may be too many before the end, or only their contents be wrong
        assert found in (problems or {""})
