"""The error tree over the wire and back, whole and complete."""

from __future__ import annotations

from typing import TypeVar

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus
from hypothesis import given
from hypothesis import strategies as st

from streamlog.api.errors import TOO_LATE, from_message, from_rpc, to_message, to_rpc
from streamlog.errors import (
    CorruptMessageError,
    DamagedFileError,
    FencedLeaderEpochError,
    InvalidRequestError,
    NotLeaderError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    Status,
    StreamlogError,
    ThrottledError,
    UnknownServerError,
    all_errors,
    grpc_status,
)
from streamlog.ports import RpcError

M = TypeVar("M", ErrorInfo, BadRequest, RetryInfo)
ALL = sorted(all_errors().values(), key=lambda error: error.code)
TRAILERS_BYTES_MAX = 8 << 10  # what gRPC's peers take by default


def details(error: RpcError) -> dict[str, AnyMessage]:
    status = RpcStatus.FromString(error.details_bin)
    assert status.code == error.status.value
    assert status.message == error.message
    return {detail.TypeName(): detail for detail in status.details}


def unpacked(error: RpcError, message: M) -> M:
    assert details(error)[message.DESCRIPTOR.full_name].Unpack(message)
    return message


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.code)
def test_every_error_comes_back_as_its_own_class(kind: type[StreamlogError]) -> None:
    error = kind.restored("what happened", {"field": "topic", "limit": 249, "leader": 3})
    sent = to_rpc(error)
    assert sent.status is grpc_status(kind)
    for back in (from_rpc(sent), from_message(to_message(error))):
        assert type(back) is kind
        assert isinstance(back, StreamlogError)
        assert back.message == "what happened"
        assert back.details == {"field": "topic", "limit": 249, "leader": 3}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.code)
def test_details_follow_the_error(kind: type[StreamlogError]) -> None:
    sent = to_rpc(kind.restored("why", {"field": "topic", "limit": 1}))
    info = unpacked(sent, ErrorInfo())
    assert (info.reason, info.domain) == (kind.code, "streamlog")
    assert dict(info.metadata) == {"field": "topic", "limit": "1"}
    assert ("google.rpc.RetryInfo" in details(sent)) == kind.retriable
    assert ("google.rpc.BadRequest" in details(sent)) == (grpc_status(kind) is Status.INVALID_ARGUMENT)


def test_the_table_is_complete() -> None:
    """Every class has a code and a status; a client that knows the codes knows the classes."""
    for kind in ALL:
        assert kind.code
        assert kind.code == kind.code.upper()
        assert grpc_status(kind) not in (Status.OK, Status.INTERNAL, Status.UNIMPLEMENTED)
    assert all_errors() == {kind.code: kind for kind in ALL}


def test_the_field_at_fault_is_a_violation() -> None:
    sent = to_rpc(InvalidRequestError("partition is -1", field="partitions[3].partition", limit=0))
    (violation,) = unpacked(sent, BadRequest()).field_violations
    assert violation.field == "partitions[3].partition"
    assert violation.description == "partition is -1"
    assert violation.reason == "INVALID_REQUEST"


def test_a_retry_has_its_delay() -> None:
    assert unpacked(to_rpc(FencedLeaderEpochError("old")), RetryInfo()).retry_delay.ToMilliseconds() == 100
    slow = ThrottledError("full", retry_after_ms=2_500)
    assert unpacked(to_rpc(slow), RetryInfo()).retry_delay.ToMilliseconds() == 2_500


def test_errors_with_constructors_of_their_own_come_back() -> None:
    corrupt = from_rpc(to_rpc(CorruptMessageError("bad CRC", path="t-0/1.log", position=77)))
    assert isinstance(corrupt, CorruptMessageError)
    assert (corrupt.reason, corrupt.path, corrupt.position) == ("bad CRC", "t-0/1.log", 77)
    damaged = from_rpc(to_rpc(DamagedFileError("a/b", 5, "torn", "remove it")))
    assert isinstance(damaged, DamagedFileError)
    assert (damaged.path, damaged.position, damaged.reason) == ("a/b", 5, "torn")
    assert str(damaged) == "a/b: position 5: torn; remove it"


def test_facts_are_numbers_again_and_names_stay_names() -> None:
    back = from_rpc(to_rpc(OffsetOutOfRangeError("no", log_start=-1, log_end=2**63 - 1, topic="42", note="007")))
    assert isinstance(back, OffsetOutOfRangeError)
    assert back.details == {"log_start": -1, "log_end": 2**63 - 1, "topic": "42", "note": "007"}
    leader = from_message(to_message(NotLeaderError("no", leader=0, address="10.0.0.1:9092", leader_epoch=None)))
    assert leader.details == {"leader": 0, "address": "10.0.0.1:9092"}


def test_a_code_of_a_newer_node_is_an_error_all_the_same() -> None:
    message = to_message(NotLeaderError("gone", leader=2))
    message.code = "GROUP_IS_ASLEEP"
    error = from_message(message)
    assert type(error) is UnknownServerError
    assert str(error) == "GROUP_IS_ASLEEP: gone"
    assert error.details == {"leader": 2, "code": "GROUP_IS_ASLEEP", "retriable": True}


@pytest.mark.parametrize("details_bin", [b"", b"\xff", b"\x08\x03", RpcStatus(code=3).SerializeToString()])
def test_what_is_not_ours_stays_what_it_is(details_bin: bytes) -> None:
    error = RpcError(Status.UNAVAILABLE, "connection refused", details_bin=details_bin)
    assert from_rpc(error) is error


def test_a_call_that_began_too_late_was_not_answered() -> None:
    """To the caller it is as its own timeout, which comes at the same time."""
    late = to_rpc(RequestTimedOutError("the deadline passed before the call began", **{TOO_LATE: "dropped"}))
    assert from_rpc(late) is late
    assert late.status is Status.DEADLINE_EXCEEDED


def test_another_servers_error_info_is_not_taken_for_ours() -> None:
    status = RpcStatus(code=14)
    status.details.add().Pack(ErrorInfo(reason="NOT_LEADER", domain="example.com"))
    error = RpcError(Status.UNAVAILABLE, "", details_bin=status.SerializeToString())
    assert from_rpc(error) is error


@given(st.text(max_size=3_000), st.dictionaries(st.text(max_size=80), st.text(max_size=400), max_size=40))
def test_errors_fit_into_trailers_whatever_they_quote(message: str, facts: dict[str, str]) -> None:
    error = InvalidRequestError.restored(message, facts)
    sent = to_rpc(error)
    percent_encoded = 3 * len(sent.message.encode())
    assert percent_encoded + len(sent.details_bin) < TRAILERS_BYTES_MAX
    assert len(to_message(error).SerializeToString()) < TRAILERS_BYTES_MAX
    assert type(from_rpc(sent)) is InvalidRequestError


def test_the_longest_error_fits_into_trailers() -> None:
    facts = {f"{index:02}" * 40: "…" * 400 for index in range(40)} | {"field": "…" * 400}
    sent = to_rpc(ThrottledError.restored("…" * 3_000, facts))
    assert 3 * len(sent.message.encode()) + len(sent.details_bin) < TRAILERS_BYTES_MAX
    invalid = to_rpc(CorruptMessageError.restored("…" * 3_000, {"field": "…" * 400, **facts}))
    assert 3 * len(invalid.message.encode()) + len(invalid.details_bin) < TRAILERS_BYTES_MAX


def test_file_names_that_are_not_utf8_do_not_lose_the_error() -> None:
    sent = to_rpc(DamagedFileError(b"\xff.log".decode("utf-8", "surrogateescape"), 0, "torn"))
    back = from_rpc(sent)
    assert isinstance(back, DamagedFileError)
    assert back.path == "?.log"
