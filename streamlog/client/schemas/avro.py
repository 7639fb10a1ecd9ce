"""Avro by fastavro. A schema of type bytes is written without Avro's length, as Confluent's serializer does.

Values are decoded in this process: who writes a topic can make its consumers busy (arrays of nulls), as with any Avro.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro

from streamlog.client.schemas.by_schema import HEADER, BySchemaDeserializer, BySchemaSerializer, Convert, plain
from streamlog.client.schemas.registry import Reference, RegistrySchema, SchemaRegistry
from streamlog.client.schemas.subjects import SubjectStrategy, topic_name
from streamlog.errors import InvalidConfigError, InvalidRequestError

KIND: Final = "AVRO"


class AvroSerializer(BySchemaSerializer[Any]):
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Sequence[Any],
        *,
        to_avro: Convert = plain,
        references: Sequence[Reference] = (),
        subject: SubjectStrategy = topic_name,
        auto_register: bool = True,
        use_latest: bool = False,
    ) -> None:
        """`schema`: JSON, or as json.loads returns it. `to_avro`: from the program's value to dicts and plain values.
        `auto_register`: False: it must be registered already. `use_latest`: write by the subject's latest version.
        InvalidConfigError.
        """
        text, parsed = _text(schema)
        self._to_avro = to_avro
        self._full_name = _full_name(parsed)
        super().__init__(
            registry,
            RegistrySchema(text, KIND, tuple(references)),
            subject=subject,
            auto_register=auto_register,
            use_latest=use_latest,
        )
        if not references:
            try:
                fastavro.parse_schema(json.loads(text))
            except Exception as error:
                raise InvalidConfigError(f"the Avro schema is invalid: {error}", field="schema") from error

    def _name(self) -> str:
        return self._full_name

    def _compile(self, schema: RegistrySchema) -> Any:
        return compiled(self._registry, schema)

    def _encode(self, compiled: Any, value: Any) -> bytes:
        value = self._to_avro(value)
        if _is_bytes(compiled):
            if not isinstance(value, bytes | bytearray | memoryview):
                raise TypeError(f"bytes are needed, not {type(value).__name__}")
            return bytes(value)
        out = BytesIO()
        fastavro.schemaless_writer(out, compiled, value, strict_allow_default=True)
        return out.getvalue()


class AvroDeserializer(BySchemaDeserializer[Any]):
    kind = KIND

    def __init__(
        self,
        registry: SchemaRegistry,
        reader_schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        *,
        from_avro: Convert = plain,
    ) -> None:
        """`reader_schema`: what the program wants: written records are resolved to it; None: as they were written.
        InvalidConfigError.
        """
        super().__init__(registry)
        self._from_avro = from_avro
        self._reader: Any = None
        if reader_schema is not None:
            try:
                self._reader = fastavro.parse_schema(_text(reader_schema)[1])
            except Exception as error:
                raise InvalidConfigError(
                    f"the reader's Avro schema is invalid: {error}", field="reader_schema"
                ) from error

    def _compile(self, schema: RegistrySchema) -> Any:
        return compiled(self._registry, schema)

    def _decode(self, compiled: Any, data: bytes) -> Any:
        if _is_bytes(compiled):
            return self._from_avro(data[HEADER.size :])
        source = BytesIO(data)
        source.seek(HEADER.size)
        value = fastavro.schemaless_reader(source, compiled, self._reader)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes are left after the value")
        return self._from_avro(value)


def compiled(registry: SchemaRegistry, schema: RegistrySchema) -> Any:
    """InvalidRequestError."""
    named: dict[str, Any] = {}
    try:
        for one in registry.referenced(schema.references).values():
            fastavro.parse_schema(json.loads(one.text), named_schemas=named)
        return _with_named(fastavro.parse_schema(json.loads(schema.text), named_schemas=named), named)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        fastavro.schema.SchemaParseException,
    ) as error:
        raise InvalidRequestError(f"the Avro schema is invalid: {type(error).__name__}: {error}") from error


def _with_named(parsed: Any, named: Mapping[str, Any]) -> Any:
    """fastavro looks the referenced schemas up in the dict of the schema that it reads or writes with. parse_schema
    stores them only in that of a record: here they are added to those of arrays, maps and members of a union, and of a
    schema that is only a name.
    """
    if isinstance(parsed, list):
        return [_with_named(one, named) for one in parsed]
    found = named.get(parsed) if isinstance(parsed, str) else parsed
    return {**found, "__fastavro_parsed": True, "__named_schemas": named} if isinstance(found, dict) else parsed


def _is_bytes(schema: Any) -> bool:
    return schema == "bytes" or (
        isinstance(schema, dict) and schema.get("type") == "bytes" and "logicalType" not in schema
    )


def _text(schema: str | Mapping[str, Any] | Sequence[Any]) -> tuple[str, Any]:
    """InvalidConfigError."""
    try:
        parsed = json.loads(schema) if isinstance(schema, str) else schema
        return json.dumps(parsed), parsed
    except (ValueError, TypeError) as error:
        raise InvalidConfigError(f"the Avro schema is not JSON: {error}", field="schema") from None


def _full_name(parsed: Any) -> str:
    if not isinstance(parsed, Mapping) or not isinstance(parsed.get("name"), str):
        return ""
    name, space = parsed["name"], parsed.get("namespace")
    return name if "." in name or not space else f"{space}.{name}"
