"""Serializers and deserializers by schema: the header with the schema's id, and what is known of each schema.

A format subclasses both: it compiles a schema once (`_compile`), and encodes or decodes with what that has returned.
Compiled schemas are kept by subject or by id. What is not there yet is a Pending, whose `load` asks the registry.
"""

from __future__ import annotations

import copy
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from streamlog.client.schemas.registry import SCHEMAS_MAX, NumberedSchema, RegistrySchema, SchemaRegistry
from streamlog.client.schemas.subjects import SubjectStrategy
from streamlog.client.serialization.pending import Pending
from streamlog.errors import InvalidRequestError

HEADER: Final = struct.Struct(">BI")
MAGIC: Final = 0

C = TypeVar("C")  # a compiled schema


class _Known(NamedTuple, Generic[C]):
    header: bytes
    compiled: C


class BySchemaSerializer(ABC, Generic[C]):
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: RegistrySchema,
        *,
        subject: SubjectStrategy,
        auto_register: bool,
        use_latest: bool,
    ) -> None:
        self._registry = registry
        self._schema = schema
        self._subject = subject
        self._auto_register = auto_register
        self._use_latest = use_latest
        self._is_key = False
        self._known: dict[str, _Known[C]] = {}  # by subject

    def for_key(self) -> Self:
        """Of keys: their subjects are others."""
        same = copy.copy(self)
        same._is_key, same._known = True, {}
        return same

    def serialize(self, topic: str, value: Any, /) -> bytes | None:
        """Pending; what the format raises."""
        subject = self._subject(topic, self._name(), is_key=self._is_key)
        known = self._known.get(subject)
        if known is None:
            raise Pending(partial(self._load, subject), f"the schema of subject {subject}")
        return known.header + self._encode(known.compiled, value)

    def _load(self, subject: str) -> None:
        if self._use_latest:
            found = self._registry.latest(subject)
        else:
            schema = self._registered_schema()
            way = self._registry.register if self._auto_register else self._registry.look_up
            found = NumberedSchema(way(subject, schema), schema)
        _check_kind(found.schema, self._schema.kind)
        if len(self._known) >= SCHEMAS_MAX:
            self._known.clear()
        self._known[subject] = _Known(HEADER.pack(MAGIC, found.schema_id), self._compile(found.schema))

    def _registered_schema(self) -> RegistrySchema:
        """As it is registered; may ask the registry."""
        return self._schema

    @abstractmethod
    def _name(self) -> str:
        """The schema's full name; empty where it has none."""

    @abstractmethod
    def _compile(self, schema: RegistrySchema) -> C: ...

    @abstractmethod
    def _encode(self, compiled: C, value: Any) -> bytes: ...


class BySchemaDeserializer(ABC, Generic[C]):
    kind: str

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._known: dict[int, C] = {}  # by id

    def deserialize(self, topic: str, data: bytes, /) -> Any:
        """Pending; what the format raises."""
        schema_id = id_of(data)
        compiled = self._known.get(schema_id)
        if compiled is None:
            raise Pending(partial(self._load, schema_id), f"schema {schema_id}")
        return self._decode(compiled, data)

    def _load(self, schema_id: int) -> None:
        schema = self._registry.by_id(schema_id)
        _check_kind(schema, self.kind)
        if len(self._known) >= SCHEMAS_MAX:
            self._known.clear()
        self._known[schema_id] = self._compile(schema)

    @abstractmethod
    def _compile(self, schema: RegistrySchema) -> C: ...

    @abstractmethod
    def _decode(self, compiled: C, data: bytes) -> Any:
        """`data`: with the header."""


def id_of(data: bytes) -> int:
    """ValueError."""
    if len(data) < HEADER.size or data[0] != MAGIC:
        begin = data[: HEADER.size].hex(" ") or "nothing"
        raise ValueError(
            f"it was not written with a schema registry: it begins with {begin}, not with 00 and a schema id"
        )
    schema_id: int = HEADER.unpack_from(data)[1]
    return schema_id


def _check_kind(schema: RegistrySchema, kind: str) -> None:
    if schema.kind != kind:
        raise InvalidRequestError(f"the schema is of type {schema.kind}, not {kind}")


def plain(value: Any) -> Any:
    return value


Convert = Callable[[Any], Any]
