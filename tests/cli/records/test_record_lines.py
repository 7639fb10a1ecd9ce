"""LineSplitter of text as records, and records as lines: the properties of Kafka's console tools."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.cli.records.input_format import InputFormat, InputRecord, LineSplitter, Parser
from streamlog.cli.records.output_format import OutputFormat, json_lines
from streamlog.errors import InvalidRecordError, InvalidRequestError
from streamlog.model import Offset
from streamlog.records import Headers, TimestampType
from streamlog.records.decode import Fields


def parsed(properties: dict[str, str], *lines: bytes) -> list[InputRecord]:
    parser = Parser(InputFormat.of(properties))
    found = parser.records(list(lines))
    if parser.problem is not None:
        raise parser.problem
    return found


def test_a_line_is_a_value() -> None:
    assert parsed({}, b"a\tb", b"") == [InputRecord(None, b"a\tb"), InputRecord(None, b"")]


def test_a_key_before_the_first_separator() -> None:
    assert parsed({"parse.key": "true"}, b"k\tv\tw") == [InputRecord(b"k", b"v\tw")]
    assert parsed({"parse.key": "true", "key.separator": ":"}, b":v") == [InputRecord(b"", b"v")]
    assert parsed({"parse.key": "true", "key.separator": "\\t"}, b"k\tv") == [InputRecord(b"k", b"v")]


def test_a_line_without_its_separator() -> None:
    with pytest.raises(InvalidRecordError, match="line 2 has no key"):
        parsed({"parse.key": "true"}, b"k\tv", b"kv")
    assert parsed({"parse.key": "true", "ignore.error": "true"}, b"kv") == [InputRecord(None, b"kv")]


def test_the_lines_before_one_without_its_separator_are_given() -> None:
    parser = Parser(InputFormat.of({"parse.key": "true"}))
    assert parser.records([b"a\tb", b"c", b"d\te"]) == [InputRecord(b"a", b"b")]
    assert "line 2 has no key" in str(parser.problem)


def test_headers_and_nulls() -> None:
    properties = {"parse.headers": "true", "parse.key": "true", "null.marker": "NULL"}
    assert parsed(properties, b"a:1,b:NULL\tk\tNULL") == [InputRecord(b"k", None, (("a", b"1"), ("b", None)))]
    assert parsed(properties, b"\tNULL\tv") == [InputRecord(None, b"v")]
    with pytest.raises(InvalidRecordError, match="value of a header"):
        parsed(properties, b"a\tk\tv")
    lenient = properties | {"ignore.error": "true"}
    assert parsed(lenient, b"a,b:1\tk\tv") == [InputRecord(b"k", b"v", (("a", None), ("b", b"1")))]
    assert parsed(lenient, b"a:1,,b:2,\tk\tv") == [InputRecord(b"k", b"v", (("a", b"1"), ("b", b"2")))]


@pytest.mark.parametrize("properties", [{"parse.keys": "true"}, {"parse.key": "yes"}, {"key.separator": ""}])
def test_properties_that_cannot_be(properties: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        InputFormat.of(properties)


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))), st.data())
def test_lines_come_whole_however_the_bytes_come(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + data.draw(st.sampled_from([b"\n", b"\r\n"])) for line in lines)
    cutter, found = LineSplitter(1 << 20), []
    while text:
        size = data.draw(st.integers(1, len(text)))
        found += cutter.feed(text[:size])
        text = text[size:]
    assert found + cutter.end() == lines


def test_the_last_line_needs_no_end() -> None:
    lines = LineSplitter(100)
    assert lines.feed(b"a\nb") == [b"a"]
    assert lines.end() == [b"b"]
    assert lines.end() == []


def test_a_line_is_bounded_before_its_end_comes() -> None:
    lines = LineSplitter(10)
    lines.feed(b"a\n")
    lines.feed(b"x" * 10)
    assert lines.problem is None
    assert lines.feed(b"x") == []
    assert str(lines.problem) == "Line 2 exceeds max.request.size (10 bytes)"


def test_the_lines_before_one_that_is_too_long_are_given() -> None:
    lines = LineSplitter(3)
    assert lines.feed(b"a\nb\nlong\nc\n") == [b"a", b"b"]
    assert str(lines.problem) == "Line 3 exceeds max.request.size (3 bytes)"


def record(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Fields:
    return (Offset(5), 17, key, value, headers)


CREATE = TimestampType.CREATE_TIME


def test_the_value_alone() -> None:
    assert OutputFormat.of({}).lines(0, CREATE, [record(b"k", b"\xff"), record(None, None)]) == b"\xff\nnull\n"


def test_everything_in_kafkas_order() -> None:
    names = ("timestamp", "partition", "offset", "headers", "key", "value")
    form = OutputFormat.of({f"print.{name}": "true" for name in names})
    one = record(b"k", b"v", (("h", b"1"), ("i", None)))
    assert form.lines(3, CREATE, [one]) == b"CreateTime:17\tPartition:3\tOffset:5\th:1,i:null\tk\tv\n"
    other = form.lines(3, TimestampType.LOG_APPEND_TIME, [record(None, None)])
    assert other == b"LogAppendTime:17\tPartition:3\tOffset:5\tNO_HEADERS\tnull\tnull\n"


def test_separators_and_what_a_null_is_shown_as() -> None:
    form = OutputFormat.of(
        {"print.key": "true", "key.separator": "=", "line.separator": ";", "null.literal": "-", "print.value": "true"}
    )
    assert form.lines(0, CREATE, [record(None, b"v"), record(b"k", None)]) == b"-=v;k=-;"
    assert (
        OutputFormat.of({"print.key": "true", "print.value": "false"}).lines(0, CREATE, [record(b"k", b"v")]) == b"k\n"
    )
    with pytest.raises(InvalidRequestError):
        OutputFormat.of({"print.keys": "true"})


def test_json_keeps_every_byte() -> None:
    [line] = json_lines("t", 3, CREATE, [record(None, b"\xff", (("h", b"x"),))]).splitlines()
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 5,
        "timestamp_type": "CreateTime",
        "timestamp_ms": 17,
        "key": None,
        "value": {"base64": "/w=="},
        "headers": [[{"base64": "aA==", "text": "h"}, {"base64": "eA==", "text": "x"}]],
    }
