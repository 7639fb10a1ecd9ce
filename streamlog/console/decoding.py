"""Decodes keys and values for a page: text, JSON, hexadecimal; Avro and Protobuf by a schema file.

    Avro        a schema in JSON (.avsc); the value alone, or after the five bytes of a schema registry
    Protobuf    a FileDescriptorSet (protoc --include_imports --descriptor_set_out), and the name of a message in it

What cannot be decoded is shown as text, with the reason. Nothing that is decoded is executed, and a page shows it as
text; control characters are escaped, line ends are kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from streamlog.client import ConsumerRecord
from streamlog.printable import escaped

SHOWN_BYTES: Final = 16 << 10
"""Of one key, value or header; the rest is cut off, and the text says so."""
DECODED_BYTES_MAX: Final = 2 << 20
SCHEMA_BYTES_MAX: Final = 1 << 20
HEADERS_SHOWN: Final = 100
_REGISTRY_BYTES: Final = 5  # 0, and the schema's id

Decode = Callable[[bytes], object]
"""ValueError: the data is not of the schema."""


class SchemaError(Exception):
    """A schema file that cannot be used."""


class Shown(Struct, frozen=True):
    text: str
    problem: str = ""  # why it is not shown as it was meant to be


def as_text(data: bytes | None, how: str, decode: Decode | None = None) -> Shown:
    """`how`: text, json, hex, schema (by `decode`)."""
    if data is None:
        return Shown("null")
    if how == "hex":
        return Shown(_cut(data[:SHOWN_BYTES].hex(" "), len(data)))
    plain = Shown(_cut(printable(data[:SHOWN_BYTES].decode(errors="backslashreplace")), len(data)))
    if how == "text":
        return plain
    if len(data) > DECODED_BYTES_MAX:
        return Shown(plain.text, f"larger than {DECODED_BYTES_MAX:,} bytes")
    try:
        document = decode(data) if how == "schema" and decode is not None else json.loads(data)
        text = json.dumps(document, ensure_ascii=False, indent=2, default=_other)
    except (ValueError, RecursionError) as problem:
        return Shown(plain.text, f"not {'of the schema' if how == 'schema' else 'JSON'}: {problem}"[:300])
    return Shown(_cut(printable(text[:SHOWN_BYTES]), len(data) if len(text) > SHOWN_BYTES else 0))


def printable(text: str) -> str:
    """With line ends and tabs; other control characters and direction marks are escaped."""
    return "\n".join("\t".join(map(escaped, line.split("\t"))) for line in text.split("\n"))


def _cut(text: str, size_bytes: int) -> str:
    return f"{text} ... ({size_bytes:,} bytes in total)" if size_bytes > SHOWN_BYTES else text


def _other(value: object) -> str:
    """What JSON has no type for: bytes, dates, decimals."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def headers_as_text(record: ConsumerRecord, how: str) -> str:
    shown = [
        f"{escaped(name[:200])}: {as_text(value, 'hex' if how == 'hex' else 'text').text}"
        for name, value in record.headers[:HEADERS_SHOWN]
    ]
    more = len(record.headers) - HEADERS_SHOWN
    return "\n".join([*shown, f"... and {more} more"] if more > 0 else shown)


def as_json_line(record: ConsumerRecord) -> str:
    """For a download: a key or value that is not UTF-8 is in hexadecimal, as `key_hex` or `value_hex`."""
    document: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "headers": [
            [name, None if value is None else value.decode(errors="backslashreplace")] for name, value in record.headers
        ],
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            document[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            assert data is not None
            document[f"{name}_hex"] = data.hex()
    return json.dumps(document, ensure_ascii=False)


def avro_decoder(schema: bytes) -> Decode:
    """SchemaError."""
    try:
        import fastavro
    except ModuleNotFoundError:
        raise SchemaError("Avro needs a package that is not installed: pip install fastavro.") from None
    try:
        parsed = fastavro.parse_schema(json.loads(_bounded(schema)))
    except SchemaError:
        raise
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, *_BAD_SCHEMA) as problem:
        raise SchemaError(f"The file is not an Avro schema: {problem}"[:300]) from None

    def decode_at(data: bytes, begin: int) -> object:
        stream = io.BytesIO(data)
        stream.seek(begin)
        try:
            document = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as problem:  # noqa: BLE001  whatever the library raises for data of another schema
            raise ValueError(f"{type(problem).__name__}: {problem}") from None
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes follow the value")
        return document

    def decode(data: bytes) -> object:
        try:
            return decode_at(data, 0)
        except ValueError:
            if data[:1] != b"\0" or len(data) < _REGISTRY_BYTES:
                raise
            return decode_at(data, _REGISTRY_BYTES)

    return decode


_BAD_SCHEMA: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class ProtobufSchema:
    """The messages of a FileDescriptorSet."""

    def __init__(self, descriptors: bytes) -> None:
        """SchemaError."""
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError

        help_text = "make one with protoc --include_imports --descriptor_set_out=FILE"
        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(_bounded(descriptors))
            self._pool: Any = descriptor_pool.DescriptorPool()
            for file in found.file:
                self._pool.Add(file)
            self.messages: Sequence[str] = sorted(
                name for file in found.file for name in _message_names(file.package, file.message_type)
            )
            for name in self.messages:
                self._pool.FindMessageTypeByName(name)
        except (DecodeError, *_BAD_SCHEMA) as problem:
            raise SchemaError(f"The file is not a descriptor set ({problem}): {help_text}."[:400]) from None
        if not self.messages:
            raise SchemaError(f"The descriptor set has no message: {help_text}.")

    def decoder(self, message: str) -> Decode:
        from google.protobuf import json_format, message_factory
        from google.protobuf.message import DecodeError

        kind = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(message))

        def decode(data: bytes) -> object:
            try:
                return json_format.MessageToDict(
                    kind.FromString(data), preserving_proto_field_name=True, descriptor_pool=self._pool
                )
            except (DecodeError, TypeError, json_format.Error) as problem:
                raise ValueError(str(problem)) from None

        return decode


def _message_names(package: str, messages: Any) -> list[str]:
    found = []
    for one in messages:
        name = f"{package}.{one.name}" if package else one.name
        found += [name, *_message_names(name, one.nested_type)]
    return found


def _bounded(schema: bytes) -> bytes:
    if len(schema) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"The schema file has {len(schema):,} bytes; the limit is {SCHEMA_BYTES_MAX:,}.")
    return schema
