"""Avro, JSON Schema and Protobuf: bytes of the wire format, lookups, subjects, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.type_pb2 import Field, Option, Type

from streamlog.api.pb import admin_pb2, common_pb2
from streamlog.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    SchemaRegistry,
    record_name,
    topic_record_name,
)
from streamlog.client.schemas.protobuf import after_indexes, message_indexes
from streamlog.client.serialization.formats import serializer_of
from streamlog.client.serialization.pending import Pending
from streamlog.errors import InvalidConfigError, InvalidRequestError, SerializationError

from .registry_server import FakeRegistry, serving

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "drink", "type": "string"}, {"name": "count", "type": "int", "default": 1}],
}
ORDER_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"drink": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["drink"],
}
TEA = {"drink": "tea", "count": 2}


@pytest.fixture
def served() -> Iterator[FakeRegistry]:
    with serving() as registry:
        yield registry


def done(step: Callable[..., Any], *arguments: Any) -> Any:
    """As a client that may wait."""
    for _ in range(4):
        try:
            return step(*arguments)
        except Pending as pending:
            pending.load()
    raise AssertionError("it waits for ever")


def test_avro_has_the_wire_format_and_is_looked_up_once(served: FakeRegistry) -> None:
    served.add("other", {"schema": '"int"'})
    registry = SchemaRegistry(served.url)
    writer, reader = AvroSerializer(registry, ORDER), AvroDeserializer(registry)
    for _ in range(3):
        data = done(writer.serialize, "orders", TEA)
        assert data == b"\x00\x00\x00\x00\x02\x06tea\x04"
        assert done(reader.deserialize, "orders", data) == TEA
    assert served.requests == [("POST", "/subjects/orders-value/versions"), ("GET", "/schemas/ids/2")]
    assert done(writer.serialize, "orders", {"drink": "tea"}) == b"\x00\x00\x00\x00\x02\x06tea\x02"


def test_avro_of_bytes_has_no_length(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    data = done(AvroSerializer(registry, '"bytes"').serialize, "t", b"raw")
    assert data == b"\x00\x00\x00\x00\x01raw"
    assert done(AvroDeserializer(registry).deserialize, "t", data) == b"raw"


@pytest.mark.parametrize("value", [5, [1, 2], "text"])
def test_avro_of_bytes_refuses_what_is_not_bytes(served: FakeRegistry, value: object) -> None:
    with pytest.raises(TypeError, match=f"bytes are needed, not {type(value).__name__}"):
        done(AvroSerializer(SchemaRegistry(served.url), '"bytes"').serialize, "t", value)


def test_avro_evolves_to_the_readers_schema(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    data = done(AvroSerializer(registry, ORDER).serialize, "orders", TEA)
    wanted = {**ORDER, "fields": [ORDER["fields"][0], {"name": "sugar", "type": "boolean", "default": False}]}
    reader = AvroDeserializer(registry, wanted, from_avro=lambda value: tuple(value.items()))
    assert done(reader.deserialize, "orders", data) == (("drink", "tea"), ("sugar", False))


def test_avro_with_references(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    served.add("orders", {"schema": json.dumps(ORDER)})
    basket = {"type": "record", "name": "Basket", "fields": [{"name": "first", "type": "shop.Order"}]}
    writer = AvroSerializer(registry, basket, references=[Reference("shop.Order", "orders", 1)])
    data = done(writer.serialize, "baskets", {"first": TEA})
    assert done(AvroDeserializer(SchemaRegistry(served.url)).deserialize, "baskets", data) == {"first": TEA}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('["null", "shop.Basket"]', {"first": TEA}),
        ('["null", {"type": "array", "items": "shop.Basket"}]', [{"first": TEA}]),
        ('["shop.Order", "shop.Basket"]', {"first": TEA}),
        ('["shop.Order", "shop.Basket"]', TEA),
        ('{"type": "array", "items": "shop.Basket"}', [{"first": TEA}, {"first": TEA}]),
        ('{"type": "map", "values": ["int", "shop.Basket"]}', {"a": {"first": TEA}, "b": 1}),
        ('"shop.Basket"', {"first": TEA}),
    ],
)
def test_avro_with_references_outside_of_a_record(served: FakeRegistry, schema: str, value: Any) -> None:
    served.add("orders", {"schema": json.dumps(ORDER)})
    fields = [{"name": "first", "type": "shop.Order"}]
    basket = {"type": "record", "name": "shop.Basket", "fields": fields}
    order = {"name": "shop.Order", "subject": "orders", "version": 1}
    served.add("baskets", {"schema": json.dumps(basket), "references": [order]})
    registry = SchemaRegistry(served.url)
    writer = AvroSerializer(registry, schema, references=[Reference("shop.Basket", "baskets", 1)])
    data = done(writer.serialize, "t", value)
    assert done(writer.serialize, "t", value) == data
    reader = AvroDeserializer(registry)
    assert [done(reader.deserialize, "t", data) for _ in range(2)] == [value] * 2


def test_json_is_validated_on_both_sides(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    writer, reader = JsonSchemaSerializer(registry, ORDER_JSON), JsonSchemaDeserializer(registry)
    data = done(writer.serialize, "orders", TEA)
    assert data == b'\x00\x00\x00\x00\x01{"drink":"tea","count":2}'
    assert done(reader.deserialize, "orders", data) == TEA
    with pytest.raises(ValueError, match="drink' is a required property"):
        done(writer.serialize, "orders", {"count": 1})
    with pytest.raises(ValueError, match=r"\$\.count: 'x' is not of type 'integer'"):
        done(reader.deserialize, "orders", b'\x00\x00\x00\x00\x01{"drink":"tea","count":"x"}')


def test_json_references_come_from_the_registry_alone(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    served.add("orders", {"schema": json.dumps(ORDER_JSON), "schemaType": "JSON"})
    basket = {"type": "array", "items": {"$ref": "order.json"}}
    writer = JsonSchemaSerializer(registry, basket, references=[Reference("order.json", "orders", 1)])
    data = done(writer.serialize, "baskets", [TEA])
    assert done(JsonSchemaDeserializer(registry).deserialize, "baskets", data) == [TEA]
    served.requests.clear()
    remote = JsonSchemaSerializer(registry, {"items": {"$ref": f"{served.url}/schemas/ids/1"}})
    with pytest.raises(ValueError, match="which the registry does not give"):
        done(remote.serialize, "remote", [TEA])
    assert served.requests == [("POST", "/subjects/remote-value/versions")]


def test_protobuf_has_message_indexes_and_asks_nothing_to_read(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    writer, reader = ProtobufSerializer(registry, Timestamp), ProtobufDeserializer(Timestamp)
    data = done(writer.serialize, "times", Timestamp(seconds=7))
    assert data == b"\x00\x00\x00\x00\x01\x00\x08\x07"
    served.requests.clear()
    assert reader.deserialize("times", data) == Timestamp(seconds=7)
    assert served.requests == []
    assert served.schemas[0]["schemaType"] == "PROTOBUF"
    with pytest.raises(TypeError, match="a Timestamp is needed, not dict"):
        writer.serialize("times", {})


@pytest.mark.parametrize(
    ("kind", "indexes"),
    [(Type, b"\x00"), (Field, b"\x02\x02"), (Option, b"\x02\x08")],
)
def test_message_indexes_are_zigzag_varints(kind: Any, indexes: bytes) -> None:
    assert message_indexes(kind.DESCRIPTOR) == indexes
    assert after_indexes(b"12345" + indexes + b"rest", 5) == 5 + len(indexes)


def test_message_indexes_of_a_nested_message() -> None:
    outer = next(one for one in admin_pb2.DESCRIPTOR.message_types_by_name.values() if one.nested_types)
    assert message_indexes(outer.nested_types[0])[0] == 4  # two indexes


@pytest.mark.parametrize("bad", [b"", b"\x01", b"\x04\x00", b"\xff\xff\xff\xff\xff\xff", b"\x80\x02", b"\x80"])
def test_message_indexes_that_are_invalid(bad: bytes) -> None:
    with pytest.raises(ValueError, match="message indexes are invalid"):
        after_indexes(b"12345" + bad, 5)


def test_protobuf_imports_are_registered_as_references(served: FakeRegistry) -> None:
    kind = GetMessageClass(next(iter(admin_pb2.DESCRIPTOR.message_types_by_name.values())))
    writer = ProtobufSerializer(SchemaRegistry(served.url), kind)
    done(writer.serialize, "t", kind())
    references = served.schemas[-1]["references"]
    assert {one["name"] for one in references} >= {common_pb2.DESCRIPTOR.name}
    for one in references:
        assert one["subject"] == one["name"]
        assert one["version"] == 1
        assert one["name"] in served.versions
    requests = len(served.requests)
    done(writer.serialize, "t", kind())
    assert len(served.requests) == requests


def test_subjects_of_keys_and_by_strategy(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    done(AvroSerializer(registry, ORDER, subject=record_name).serialize, "t", TEA)
    done(AvroSerializer(registry, ORDER, subject=topic_record_name).serialize, "t", TEA)
    for setting in ("key_serializer", "value_serializer"):
        serialize = serializer_of(AvroSerializer(registry, ORDER), setting)
        assert serialize is not None
        done(serialize, "t", TEA)
    done(JsonSchemaSerializer(registry, ORDER_JSON, subject=record_name).serialize, "t", TEA)
    done(ProtobufSerializer(registry, Timestamp, subject=record_name).serialize, "t", Timestamp())
    expected = ["shop.Order", "t-shop.Order", "t-key", "t-value", "Order", "google.protobuf.Timestamp"]
    assert [path.split("/")[2] for _, path in served.requests] == expected
    with pytest.raises(SerializationError, match="the schema has no name"):
        done(AvroSerializer(registry, '"int"', subject=record_name).serialize, "t", 1)


def test_without_auto_register_it_must_be_there(served: FakeRegistry) -> None:
    registry = SchemaRegistry(served.url)
    writer = AvroSerializer(registry, ORDER, auto_register=False)
    with pytest.raises(InvalidRequestError, match="40403: Schema not found"):
        done(writer.serialize, "orders", TEA)
    number = registry.register("orders-value", AvroSerializer(registry, ORDER)._schema)
    assert done(writer.serialize, "orders", TEA)[4] == number


def test_the_latest_version_is_what_is_written(served: FakeRegistry) -> None:
    served.add(
        "orders-value",
        {"schema": json.dumps({**ORDER, "fields": [{"name": "count", "type": "int"}, *ORDER["fields"][:1]]})},
    )
    writer = AvroSerializer(SchemaRegistry(served.url), ORDER, use_latest=True)
    assert done(writer.serialize, "orders", TEA) == b"\x00\x00\x00\x00\x01\x04\x06tea"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it begins with nothing"),
        (b"\x00\x00\x00", "it begins with 00 00 00"),
        (b"\x01\x00\x00\x00\x01x", "it begins with 01 00 00 00 01"),
        (b"{}     ", "was not written with a schema registry"),
        (b"\x00\x00\x00\x00\x01\x06tea\x04\x00", "1 bytes are left after the value"),
    ],
)
def test_values_that_are_none(served: FakeRegistry, data: bytes, message: str) -> None:
    served.add("orders-value", {"schema": json.dumps(ORDER)})
    with pytest.raises(ValueError, match=message):
        done(AvroDeserializer(SchemaRegistry(served.url)).deserialize, "t", data)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"schema": "{}", "schemaType": "JSON"}, "the schema is of type JSON, not AVRO"),
        ({"schema": "{"}, "the Avro schema is invalid"),
        ({"schema": '"nope"'}, "the Avro schema is invalid"),
        ({"schema": '{"type": "record"}'}, "the Avro schema is invalid"),
    ],
)
def test_schemas_that_are_none(served: FakeRegistry, schema: dict[str, str], message: str) -> None:
    served.add("s", schema)
    with pytest.raises(InvalidRequestError, match=message):
        done(AvroDeserializer(SchemaRegistry(served.url)).deserialize, "t", b"\x00\x00\x00\x00\x01x")


def test_a_schema_at_fault_is_refused_at_once() -> None:
    registry = SchemaRegistry("http://127.0.0.1:1")
    for make, message in (
        (lambda: AvroSerializer(registry, "{"), "the Avro schema is not JSON"),
        (lambda: AvroSerializer(registry, {"type": "record"}), "the Avro schema is invalid"),
        (lambda: AvroDeserializer(registry, '"nope"'), "the reader's Avro schema is invalid"),
        (lambda: JsonSchemaSerializer(registry, "{"), "the JSON schema is invalid"),
        (lambda: JsonSchemaSerializer(registry, {"type": 7}), "the JSON schema is invalid"),
        (lambda: ProtobufSerializer(registry, dict), "must be a generated class"),  # type: ignore[arg-type]
        (lambda: ProtobufDeserializer(Timestamp()), "must be a generated class"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidConfigError, match=message):
            make()
