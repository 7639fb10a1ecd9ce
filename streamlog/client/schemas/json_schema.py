"""JSON with a JSON Schema, validated on both sides. References are those of the registry: none is fetched elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jsonschema
import msgspec
import referencing
from jsonschema.protocols import Validator
from referencing.jsonschema import DRAFT7

from streamlog.client.schemas.by_schema import HEADER, BySchemaDeserializer, BySchemaSerializer, Convert, plain
from streamlog.client.schemas.registry import Reference, RegistrySchema, SchemaRegistry
from streamlog.client.schemas.subjects import SubjectStrategy, topic_name
from streamlog.errors import InvalidConfigError, InvalidRequestError

KIND: Final = "JSON"


class JsonSchemaSerializer(BySchemaSerializer[Validator]):
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any],
        *,
        to_json: Convert = plain,
        references: Sequence[Reference] = (),
        subject: SubjectStrategy = topic_name,
        auto_register: bool = True,
        use_latest: bool = False,
    ) -> None:
        """As AvroSerializer; `to_json`: to dicts, lists and plain values. InvalidConfigError."""
        try:
            parsed = json.loads(schema) if isinstance(schema, str) else schema
            text = json.dumps(parsed)
            jsonschema.validators.validator_for(parsed, jsonschema.Draft7Validator).check_schema(parsed)
        except (ValueError, TypeError, jsonschema.SchemaError) as error:
            raise InvalidConfigError(f"the JSON schema is invalid: {_first_line(error)}", field="schema") from error
        title = parsed.get("title") if isinstance(parsed, Mapping) else None
        self._title = title if isinstance(title, str) else ""
        self._to_json = to_json
        super().__init__(
            registry,
            RegistrySchema(text, KIND, tuple(references)),
            subject=subject,
            auto_register=auto_register,
            use_latest=use_latest,
        )

    def _name(self) -> str:
        return self._title

    def _compile(self, schema: RegistrySchema) -> Validator:
        return compiled(self._registry, schema)

    def _encode(self, compiled: Validator, value: Any) -> bytes:
        data = msgspec.json.encode(self._to_json(value))
        _validate(compiled, msgspec.json.decode(data))
        return data


class JsonSchemaDeserializer(BySchemaDeserializer[Validator]):
    kind = KIND

    def __init__(self, registry: SchemaRegistry, *, from_json: Convert = plain) -> None:
        super().__init__(registry)
        self._from_json = from_json

    def _compile(self, schema: RegistrySchema) -> Validator:
        return compiled(self._registry, schema)

    def _decode(self, compiled: Validator, data: bytes) -> Any:
        value = msgspec.json.decode(memoryview(data)[HEADER.size :])
        _validate(compiled, value)
        return self._from_json(value)


def compiled(registry: SchemaRegistry, schema: RegistrySchema) -> Validator:
    """InvalidRequestError."""
    try:
        parsed = json.loads(schema.text)
        known = referencing.Registry[Any]().with_resources(
            (name, referencing.Resource.from_contents(json.loads(one.text), default_specification=DRAFT7))
            for name, one in registry.referenced(schema.references).items()
        )
        kind = jsonschema.validators.validator_for(parsed, jsonschema.Draft7Validator)
        kind.check_schema(parsed)
        validator: Validator = kind(parsed, registry=known)
    except (ValueError, TypeError, AttributeError, RecursionError, jsonschema.SchemaError) as error:
        raise InvalidRequestError(f"the JSON schema is invalid: {_first_line(error)}") from error
    return validator


def _validate(validator: Validator, value: Any) -> None:
    """ValueError."""
    try:
        error = next(validator.iter_errors(value), None)
    except referencing.exceptions.Unresolvable as unknown:
        raise ValueError(f"the schema refers to {unknown}, which the registry does not give") from None
    if error is not None:
        raise ValueError(f"{error.json_path}: {error.message[:300]}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
