"""Schema files that values are decoded by: Avro and Protobuf.

    Avro        a schema in JSON (.avsc); the value alone, or after the five bytes of a schema registry
    Protobuf    a FileDescriptorSet (protoc --include_imports --descriptor_set_out), and the name of a message in it

A schema and a value that fit each other may take any time and memory, and may even end the process (an array of 2^40
nulls; a list of a million links, at which fastavro overruns its stack). So this runs in a process of its own: `worker`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

SCHEMA_BYTES_MAX: Final = 1 << 20
MESSAGES_MAX: Final = 5_000
_REGISTRY_BYTES: Final = 5  # 0, and the schema's id

Decode = Callable[[bytes], object]
"""ValueError: the data is not of the schema."""


class SchemaError(Exception):
    """A schema file that cannot be used."""


def is_avro(schema: bytes) -> bool:
    return schema.lstrip()[:1] in (b"{", b"[", b'"')


def messages_of(schema: bytes) -> Sequence[str]:
    """SchemaError. Of a Protobuf schema; empty: an Avro schema."""
    if is_avro(schema):
        avro_decoder(schema)
        return ()
    return ProtobufSchema(schema).messages


def decoder_of(schema: bytes, message: str) -> Decode:
    """SchemaError. `message`: of a Protobuf schema."""
    return avro_decoder(schema) if is_avro(schema) else ProtobufSchema(schema).decoder(message)


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
            self.messages: Sequence[str] = sorted(
                name for file in found.file for name in _message_names(file.package, file.message_type)
            )
            if len(self.messages) > MESSAGES_MAX:
                raise SchemaError(
                    f"The descriptor set has {len(self.messages):,} messages; the limit is {MESSAGES_MAX:,}."
                )
            for file in found.file:
                self._pool.Add(file)
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
