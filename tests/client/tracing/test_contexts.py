"""Contexts in headers: what strangers write there is ignored, or bounded."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanContext, TraceFlags, get_current_span
from opentelemetry.trace.span import TraceState

from streamlog.client.tracing.contexts import LINKS_MAX, links, record_context, span_context, with_context
from streamlog.model import Offset
from streamlog.records import Headers, Record

VALID = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
INVALID = [
    None,
    b"",
    b"00",
    VALID[:-1],
    VALID + b"0",
    VALID + b"\n",
    VALID.upper(),
    b"ff" + VALID[2:],
    VALID.replace(b"a", b"0"),
    VALID.replace(b"b", b"0"),
    VALID.replace(b"-", b"_"),
    b"\xff" * 55,
    "００".encode() + VALID[2:],
    b"0" * 2_000_000,
]


def record(*headers: tuple[str, bytes | None]) -> Record:
    return Record(Offset(0), 0, None, b"v", headers)


@pytest.mark.parametrize("value", INVALID, ids=range(len(INVALID)))
def test_an_invalid_traceparent_is_ignored(value: bytes | None) -> None:
    bad = record(("traceparent", value))
    assert span_context(bad.headers) is None
    assert not get_current_span(record_context(bad)).get_span_context().is_valid
    assert links([bad]) == []


def test_the_last_header_counts() -> None:
    other = VALID.replace(b"b", b"c")
    found = span_context((("traceparent", VALID), ("traceparent", other)))
    assert found is not None
    assert found.span_id == int("c" * 16, 16)
    assert found.is_remote
    assert found.trace_flags.sampled


@pytest.mark.parametrize(
    ("state", "kept"), [(b"a=1,b=2", "a=1,b=2"), (b"a=" + b"x" * 600, ""), (b"\xff\x00=,,", ""), (None, "")]
)
def test_tracestate_is_bounded(state: bytes | None, kept: str) -> None:
    found = span_context((("traceparent", VALID), ("tracestate", state)))
    assert found is not None
    assert found.trace_state.to_header() == kept


def test_headers_are_replaced_and_bounded() -> None:
    mine: Headers = (("traceparent", b"old"), ("k", b"1"), ("tracestate", b"old=1"))
    small = TraceState([("a", "1")])
    context = SpanContext(0xA, 0xB, False, TraceFlags(1), small)
    assert with_context(mine, context) == (
        ("k", b"1"),
        ("traceparent", b"00-%032x-%016x-01" % (0xA, 0xB)),
        ("tracestate", b"a=1"),
    )
    large = TraceState([(f"key{number}", "x" * 200) for number in range(5)])
    assert dict(with_context((), SpanContext(0xA, 0xB, False, TraceFlags(0), large))) == {
        "traceparent": b"00-%032x-%016x-00" % (0xA, 0xB)
    }
    assert with_context(mine, SpanContext(0, 0, False)) == mine


def test_links_are_bounded_and_each_is_there_once() -> None:
    many = [record(("traceparent", b"00-%032x-%016x-01" % (1, number // 2 + 1))) for number in range(1_000)]
    found = links(many)
    assert [link.context.span_id for link in found] == list(range(1, LINKS_MAX + 1))
