"""The OpenAPI 3.1 document of this API, from the descriptors; the comments of the proto files are its descriptions.

`comments.json` has them by full name (`streamlog.v1.PublishRequest.topic`); `make proto` writes it. Schemas are those
of protobuf's JSON mapping: JSON Schema 2020-12, which is OpenAPI 3.1's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from streamlog.daemon.http.api.methods import SERVED_METHODS, ServedMethod
from streamlog.release import RELEASE

Document = dict[str, Any]

_SCALARS: Final[dict[int, Document]] = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0},
    FieldDescriptor.CPPTYPE_INT64: {"type": "string", "format": "int64"},
    FieldDescriptor.CPPTYPE_UINT64: {"type": "string", "format": "uint64"},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "number"},
    FieldDescriptor.CPPTYPE_FLOAT: {"type": "number"},
}
_ERROR: Final[Document] = {
    "type": "object",
    "description": "Connect's error. In details, google.rpc.ErrorInfo has the reason, RetryInfo whether to retry.",
    "properties": {
        "code": {"type": "string", "description": "gRPC's status in lower case, such as not_found."},
        "message": {"type": "string"},
        "details": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"type": "string"},
                    "value": {"type": "string", "contentEncoding": "base64"},
                    "debug": {"type": "object"},
                },
            },
        },
    },
    "required": ["code", "message"],
}
_DESCRIPTION: Final = (
    "The API of clients as JSON over HTTP/1.1, by the Connect protocol. 64-bit numbers are strings, bytes are base64. "
    "Methods with many responses are server-sent events with Accept: text/event-stream; else the first response is "
    "returned. Methods with many requests need gRPC."
)
_LOGINS: Final[Document] = {
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
}
_JSON: Final = "application/json"


@cache
def openapi_document() -> Document:
    methods = list(SERVED_METHODS.values())
    schemas: Document = {"Error": _ERROR}
    for message in _messages(methods):
        schemas[message.full_name] = _schema(message)
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamlog", "version": RELEASE, "description": _DESCRIPTION},
        "paths": {method.path: _path(method) for method in methods},
        "components": {"schemas": schemas, "securitySchemes": _LOGINS},
        "security": [{}, {"basic": []}, {"bearer": []}],
        "tags": [{"name": name} for name in dict.fromkeys(map(_service, methods))],
    }


@cache
def openapi_text() -> bytes:
    return json.dumps(openapi_document(), ensure_ascii=False, separators=(",", ":")).encode()


@cache
def comments() -> dict[str, str]:
    """Full name -> text."""
    text = (files("streamlog.daemon.http.api") / "comments.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found


def _service(method: ServedMethod) -> str:
    return str(method.descriptor.containing_service.name)


def _path(method: ServedMethod) -> Document:
    responses: Document = {
        "200": {"description": "The response.", "content": {_JSON: {"schema": _ref(method.descriptor.output_type)}}},
        "default": {"description": "An error.", "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}},
    }
    common: Document = {
        "tags": [_service(method)],
        "description": comments().get(method.descriptor.full_name, ""),
        "responses": responses,
    }
    body = {"required": True, "content": {_JSON: {"schema": _ref(method.descriptor.input_type)}}}
    operation = method.descriptor.full_name.removeprefix("streamlog.v1.")
    found: Document = {"post": {"operationId": operation, **common, "requestBody": body}}
    if method.is_stream:
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
        message = {"name": "message", "in": "query", "required": True, "content": body["content"]}
        events = {**responses, "200": {"description": "Events.", "content": {"text/event-stream": {}}}}
        found["get"] = {"operationId": f"{operation}.events", **common, "parameters": [message], "responses": events}
    return found


def _messages(methods: list[ServedMethod]) -> list[Descriptor]:
    """Those of requests and responses, and those in them; by name."""
    found: dict[str, Descriptor] = {}
    pending = [one for method in methods for one in (method.descriptor.input_type, method.descriptor.output_type)]
    while pending:
        message: Any = pending.pop()
        if message.full_name not in found:
            found[message.full_name] = message
            pending += [field.message_type for field in _values(message) if field.message_type is not None]
    return [found[name] for name in sorted(found)]


def _values(message: Any) -> Iterator[Any]:
    """Its fields; of a map the value's."""
    for field in message.fields:
        yield field.message_type.fields_by_name["value"] if _is_map(field) else field


def _schema(message: Descriptor) -> Document:
    found: Document = {
        "type": "object",
        "properties": {field.json_name: _property(field) for field in message.fields},
        "additionalProperties": False,
    }
    return _described(found, message.full_name)


def _property(field: Any) -> Document:
    if _is_map(field):
        found: Document = {"type": "object", "additionalProperties": _value(field.message_type.fields_by_name["value"])}
    elif field.is_repeated:
        found = {"type": "array", "items": _value(field)}
    else:
        found = _value(field)
    return _described(found, field.full_name)


def _value(field: Any) -> Document:
    if field.message_type is not None:
        return _ref(field.message_type)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    return dict(_SCALARS.get(field.cpp_type, {"type": "string"}))


def _enum(enum: EnumDescriptor) -> Document:
    lines = [f"{one.name}: {comments().get(f'{enum.full_name}.{one.name}', '')}" for one in enum.values]
    return {"type": "string", "enum": [one.name for one in enum.values], "description": "\n".join(lines)}


def _described(schema: Document, name: str) -> Document:
    own = comments().get(name, "")
    text = "\n".join(part for part in (own, schema.get("description", "")) if part)
    return {**schema, "description": text} if text else schema


def _ref(message: Descriptor) -> Document:
    return {"$ref": f"#/components/schemas/{message.full_name}"}


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
