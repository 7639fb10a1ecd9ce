"""Values of any kind as text: by schemas, and without."""

from __future__ import annotations

import io
import json
from collections import deque

import pytest
from google.protobuf import descriptor_pb2, struct_pb2

from streamlog.client import ConsumerRecord
from streamlog.console.browse import RecordFilter, drop_beyond
from streamlog.console.decoding.schemas import (
    MESSAGES_MAX,
    SCHEMA_BYTES_MAX,
    ProtobufSchema,
    SchemaError,
    avro_decoder,
    messages_of,
)
from streamlog.console.decoding.text import (
    HEADERS_SHOWN,
    SHOWN_BYTES,
    Shown,
    as_json_line,
    as_text,
    document_text,
    headers_as_text,
)
from streamlog.console.decoding.worker import Load, SchemaLoaded, SchemaWorker, ShownValue, Value
from streamlog.model import Offset

fastavro = pytest.importorskip("fastavro", reason="streamlog[console] is not installed")
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "data", "type": "bytes"}],
}


def record(value: bytes | None = b"v", headers: tuple[tuple[str, bytes | None], ...] = ()) -> ConsumerRecord:
    return ConsumerRecord("t", 0, Offset(0), 0, b"key", value, headers)


def descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    return files.SerializeToString()


def test_terminal_commands_and_direction_marks_are_escaped_and_lines_are_kept() -> None:
    assert as_text(b"\x1b[31m\xff\x00", "text").text == "\\x1b[31m\\xff\\x00"
    assert as_text("a\n\tb\u202e".encode(), "text").text == "a\n\tb\\u202e"
    assert as_text(None, "json").text == "null"


def test_a_large_value_is_cut_and_its_size_shown() -> None:
    shown = as_text(b"x" * 1_000_000, "text").text
    assert len(shown) < 20_000
    assert shown.endswith("(1,000,000 bytes in total)")
    assert len(as_text(b"\xff" * 1_000_000, "hex").text) < 60_000


def test_what_is_not_json_is_shown_as_text_with_the_reason() -> None:
    assert json.loads(as_text(b'{"a":1}', "json").text) == {"a": 1}
    for bad in (b"{", b"[" * 100_000, b"\xff"):
        shown = as_text(bad, "json")
        assert shown.problem.startswith("not JSON")
        assert shown.text


def test_a_document_that_is_gigabytes_when_indented_is_written_up_to_the_limit() -> None:
    """900 lists in each other: each number of the innermost one is indented by 1,800 blanks."""
    shown = as_text(b"[" * 900 + b"0," * 500_000 + b"0" + b"]" * 900, "json")
    assert not shown.problem
    assert SHOWN_BYTES < len(shown.text) < SHOWN_BYTES + 100
    assert shown.text.endswith("(1,001,801 bytes in total)")
    assert document_text({"a": [b"\xff"]}, 1) == Shown('{\n  "a": [\n    "\\\\xff"\n  ]\n}')


def by_schema(schema: bytes, data: bytes, message: str = "") -> Shown:
    worker = SchemaWorker()
    assert worker.answer(Load(schema, message)) == SchemaLoaded()
    answer = worker.answer(Value(data))
    assert isinstance(answer, ShownValue)
    return Shown(answer.text, answer.problem)


def test_avro_alone_and_after_the_id_of_a_registry() -> None:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), {"id": 7, "data": b"\x00\xff"})
    schema = json.dumps(ORDER).encode()
    for data in (stream.getvalue(), b"\0\0\0\0\x09" + stream.getvalue()):
        assert json.loads(by_schema(schema, data).text) == {"id": 7, "data": "\x00\\xff"}
    for bad in (b"", stream.getvalue()[:-1], stream.getvalue() + b"x", b"x" * 3_000_000):
        assert by_schema(schema, bad).problem.startswith("not of the schema")


def test_protobuf_by_a_descriptor_set() -> None:
    schema = descriptors()
    assert "google.protobuf.Struct" in messages_of(schema)
    value = struct_pb2.Struct()
    value.update({"item": "<b>tea</b>"})
    data = value.SerializeToString()
    assert json.loads(by_schema(schema, data, "google.protobuf.Struct").text) == {"item": "<b>tea</b>"}
    assert by_schema(schema, b"\xff\xff", "google.protobuf.Struct").problem.startswith("not of the schema")


def test_a_descriptor_set_with_too_many_messages_is_refused() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="many.proto")
    for number in range(MESSAGES_MAX + 1):
        file.message_type.add(name=f"M{number}")
    with pytest.raises(SchemaError, match="the limit is 5,000"):
        messages_of(files.SerializeToString())


@pytest.mark.parametrize("schema", [b"{", b"[1]", b'{"type": "record"}', b'"unknown"', b"{" + b" " * SCHEMA_BYTES_MAX])
def test_what_is_no_avro_schema_is_refused(schema: bytes) -> None:
    with pytest.raises(SchemaError):
        avro_decoder(schema)


@pytest.mark.parametrize("schema", [b"", b"syntax = 'proto3';", b"\xff" * 100, b"\x0a" + b" " * SCHEMA_BYTES_MAX])
def test_what_is_no_descriptor_set_is_refused(schema: bytes) -> None:
    with pytest.raises(SchemaError):
        ProtobufSchema(schema)


def test_a_line_of_a_download_is_text_whatever_the_record_has() -> None:
    line = as_json_line(record(headers=(("\udcff", b"\xff"),)))
    assert json.loads(line.encode())["headers"] == [["\\xff", "\\xff"]]


def test_thousands_of_headers_are_not_all_shown() -> None:
    shown = headers_as_text(record(headers=(("h" * 10_000, b"\x1b"),) * 5_000), "text")
    assert shown.endswith(f"and {5_000 - HEADERS_SHOWN} more")
    assert "\x1b" not in shown
    assert len(shown) < 100_000


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (RecordFilter(), True),
        (RecordFilter(text="v"), True),
        (RecordFilter(text="ke"), True),
        (RecordFilter(text="tenant"), True),
        (RecordFilter(text="x"), False),
        (RecordFilter(key="k"), True),
        (RecordFilter(key="v"), False),
        (RecordFilter(header="tenant"), True),
        (RecordFilter(header="tenant=b"), True),
        (RecordFilter(header="tenant=x"), False),
        (RecordFilter(header="other"), False),
        (RecordFilter(text="v", key="k", header="tenant=blue"), True),
        (RecordFilter(text="v", key="k", header="tenant=red"), False),
    ],
)
def test_filters(wanted: RecordFilter, found: bool) -> None:
    assert wanted.matches(record(headers=(("tenant", b"blue"), ("null", None)))) is found


def test_the_last_records_of_a_page_are_dropped_above_its_bytes() -> None:
    records = deque(record(bytes(1_000)) for _ in range(10))
    drop_beyond(records, 5_020)
    assert len(records) == 5
    drop_beyond(records, 10)
    assert len(records) == 1, "one is shown, however large"
