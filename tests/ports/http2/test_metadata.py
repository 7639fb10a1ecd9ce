"""gRPC's header fields: deadlines, statuses, messages, and what a request may have."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import Status
from streamlog.ports import RpcError
from streamlog.ports.grpc_adapter.metadata import (
    METADATA_BYTES_MAX,
    HeaderFields,
    RequestHeaders,
    fields_size,
    has_length,
    is_request,
    is_trailers,
    status_fields,
    status_of,
    texts,
    timeout_of,
    timeout_text,
)

REQUEST: Final = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/p.S/M"), (b"te", b"trailers")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"1H", 3600.0),
        (b"2M", 120.0),
        (b"3S", 3.0),
        (b"4m", 0.004),
        (b"5u", 0.000005),
        (b"6n", 6e-9),
        (b"0m", 0.0),
        (b"99999999H", 359_999_996_400.0),
        (b"100000000n", None),
        (b"", None),
        (b"S", None),
        (b"1", None),
        (b"-1S", None),
        (b"+1S", None),
        (b"1.5S", None),
        (b"1_0S", None),
        (b"1s", None),
        (b" 1S", None),
        ("\u0661S".encode(), None),
    ],
)
def test_timeouts(text: bytes, seconds: float | None) -> None:
    found = timeout_of(text)
    assert found == (None if seconds is None else pytest.approx(seconds))


@given(st.floats(-1, 1e9))
def test_a_timeout_is_said_and_read(timeout_s: float) -> None:
    found = timeout_of(timeout_text(timeout_s).encode())
    assert found is not None
    assert abs(found - min(max(0.0, timeout_s), 99_999_999)) <= (0.001 if timeout_s < 99_999 else 0.5)


def read(error: RpcError | None) -> RpcError | None:
    return status_of([(name.encode(), value.encode("ascii")) for name, value in status_fields(error)])


@given(st.sampled_from([one for one in Status if one.value]), st.text(), st.binary())
def test_a_status_is_said_and_read(status: Status, message: str, details: bytes) -> None:
    found = read(RpcError(status, message, details_bin=details))
    assert found is not None
    assert (found.status, found.message, found.details_bin) == (status, message, details)
    for _, value in status_fields(RpcError(status, message)):
        assert value.isascii()
        assert value.isprintable()


def test_a_message_that_utf_8_cannot_say() -> None:
    found = read(RpcError(Status.NOT_FOUND, "a\ud800b"))
    assert found is not None
    assert found.message == "a?b"


def test_ok() -> None:
    assert read(None) is None


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ([(b"grpc-status", b"17")], Status.UNKNOWN, ""),
        ([(b"grpc-status", b"-1")], Status.UNKNOWN, ""),
        ([(b"grpc-status", b"9" * 5_000)], Status.UNKNOWN, ""),
        ([(b"grpc-status", b"5"), (b"grpc-message", b"100%")], Status.NOT_FOUND, "100%"),
        ([(b"grpc-status", b"5"), (b"grpc-message", b"%ff%zz")], Status.NOT_FOUND, "\ufffd%zz"),
        ([(b"grpc-status", b"5"), (b"grpc-status-details-bin", b"=")], Status.NOT_FOUND, ""),
        ([(b"grpc-status", b"5"), (b"grpc-status-details-bin", b"A")], Status.NOT_FOUND, ""),
        ([(b":status", b"400")], Status.INTERNAL, "status 400"),
        ([(b":status", b"401")], Status.UNAUTHENTICATED, "status 401"),
        ([(b":status", b"403")], Status.PERMISSION_DENIED, "status 403"),
        ([(b":status", b"404")], Status.UNIMPLEMENTED, "status 404"),
        ([(b":status", b"429")], Status.UNAVAILABLE, "status 429"),
        ([(b":status", b"502")], Status.UNAVAILABLE, "status 502"),
        ([(b":status", b"500")], Status.UNKNOWN, "status 500"),
        ([(b":status", b"x")], Status.UNKNOWN, "status 0"),
        ([], Status.UNKNOWN, "status 200"),
    ],
)
def test_what_others_answer(fields: list[tuple[bytes, bytes]], status: Status, text: str) -> None:
    found = status_of(fields)
    assert found is not None
    assert found.status is status
    assert text in found.message
    assert found.details_bin == b""


def test_a_request() -> None:
    assert is_request([*REQUEST, (b":authority", b"x")][:4])
    assert is_request(REQUEST)
    assert is_request([*REQUEST, (b"x-a", b"any \xff"), (b"x-a", b""), (b"a_b.c-d", b"1")])


@pytest.mark.parametrize(
    "fields",
    [
        [],
        REQUEST[1:],
        [*REQUEST[:2], REQUEST[3]],
        [*REQUEST[:2], (b":path", b"")],
        [*REQUEST, (b":authority", b"x")],
        [REQUEST[0], *REQUEST],
        [(b":status", b"200"), *REQUEST],
        *(
            [*REQUEST, one]
            for one in [
                (b"X-A", b"a"),
                (b"", b"a"),
                (b"a b", b"a"),
                (b"a:b", b"a"),
                (b"a\n", b"a"),
                (b"\xe4", b"a"),
                (b"a", b"a\r\nb: c"),
                (b"a", b"\0"),
                (b"te", b"gzip"),
                (b"connection", b"close"),
                (b"transfer-encoding", b"chunked"),
                (b"upgrade", b"h2c"),
            ]
        ),
    ],
)
def test_what_is_no_request(fields: list[tuple[bytes, bytes]]) -> None:
    assert not is_request(fields)


def test_trailers() -> None:
    assert is_trailers([(b"x", b"y")])
    assert not is_trailers([(b":path", b"/")])
    assert not is_trailers([(b"X", b"y")])


@pytest.mark.parametrize(
    ("value", "holds"), [(b"7", True), (b"8", False), (b"", False), (b"+7", False), (b"7" * 5_000, False)]
)
def test_content_length(value: bytes, holds: bool) -> None:
    assert has_length([value], 7) is holds
    assert has_length([], 7)
    assert not has_length([b"7", b"8"], 7)


def test_metadata_of_a_call() -> None:
    given = [
        *REQUEST,
        (b"grpc-timeout", b"1S"),
        (b"user-agent", b"grpc-go"),
        (b"x-bin", b"AAA"),
        (b"x", b"1"),
        (b"y", b"\xff"),
        (b"x", b"2"),
    ]
    assert texts(given) == {"x": "1,2", "y": "\ufffd"}
    assert fields_size([(b"abc", b"de")]) == 37


def test_what_the_headers_of_a_call_say() -> None:
    given = [*REQUEST, (b"content-type", b"application/grpc+proto"), (b"grpc-timeout", b"1S"), (b"x", b"1")]
    assert HeaderFields(given).request == RequestHeaders(
        http_method=b"POST",
        path=b"/p.S/M",
        is_grpc=True,
        size=fields_size(given),
        timeout=b"1S",
        encoding=b"",
        lengths=(),
        metadata={"x": "1"},
    )
    other = HeaderFields(
        [*REQUEST, (b"content-length", b"7"), (b"grpc-encoding", b"gzip"), (b"content-type", b"text/html")]
    ).request
    assert other is not None
    assert (other.is_grpc, other.lengths, other.encoding, other.timeout) == (False, (b"7",), b"gzip", None)
    assert HeaderFields(REQUEST[1:]).request is None
    large = HeaderFields([*REQUEST, (b"x", b"v" * METADATA_BYTES_MAX)]).request
    assert large is not None
    assert large.size > METADATA_BYTES_MAX
    assert large.metadata == {}, "the call is refused: nothing is made of its text"
