"""Producers and consumers with a schema registry, on real nodes: both fronts, and a registry that fails meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from streamlog.client import EARLIEST, AsyncConsumer, AsyncProducer, Consumer, Producer
from streamlog.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from streamlog.errors import DeserializationError, InvalidRequestError, NetworkError, SerializationError

from .registry_server import FakeRegistry, serving

pytestmark = pytest.mark.timeout(120)
SCHEMA = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}


@pytest.fixture
def served() -> Iterator[FakeRegistry]:
    with serving() as registry:
        yield registry


def test_three_formats_in_a_program_without_a_loop(streamlog_cluster: Any, served: FakeRegistry) -> None:
    servers, registry = streamlog_cluster.bootstrap_servers, SchemaRegistry(served.url)
    pairs: dict[str, tuple[Any, Any, Any]] = {
        "avro": (AvroSerializer(registry, SCHEMA), AvroDeserializer(registry), {"n": 1}),
        "json": (JsonSchemaSerializer(registry, {"type": "object"}), JsonSchemaDeserializer(registry), {"n": 2}),
        "proto": (ProtobufSerializer(registry, Timestamp), ProtobufDeserializer(Timestamp), Timestamp(seconds=3)),
    }
    for topic, (serializer, deserializer, value) in pairs.items():
        streamlog_cluster.create_topic(topic)
        with Producer(bootstrap_servers=servers, key_serializer=serializer, value_serializer=serializer) as producer:
            producer.send(topic, value, key=value)
            with pytest.raises(SerializationError, match=f"the value of a record for {topic} cannot be serialized"):
                producer.send(topic, object())
        assert {f"{topic}-key", f"{topic}-value"} <= set(served.versions)
        with Consumer(
            bootstrap_servers=servers, key_deserializer=deserializer, value_deserializer=deserializer
        ) as consumer:
            consumer.assign_topics([topic], start=EARLIEST)
            record = next(iter(consumer))
            assert (record.key, record.value) == (value, value)


async def test_a_registry_that_fails_loses_no_record(streamlog_cluster: Any, served: FakeRegistry) -> None:
    streamlog_cluster.create_topic("t")
    servers, registry = streamlog_cluster.bootstrap_servers, SchemaRegistry(served.url)
    async with AsyncProducer(bootstrap_servers=servers, value_serializer=AvroSerializer(registry, SCHEMA)) as producer:
        with pytest.raises(SerializationError, match="the schema of subject t-value must be loaded first"):
            producer.send("t", {"n": 0})
        served.failures = [(503, b"")]
        with pytest.raises(NetworkError, match="status 503"):
            await producer.enqueue("t", {"n": 0})
        served.failures = [(409, b'{"error_code": 409, "message": "incompatible"}')]
        with pytest.raises(InvalidRequestError, match="409: incompatible"):
            await producer.send_many("t", [{"n": 0}])
        for number in range(3):
            await producer.enqueue("t", {"n": number})
        await producer.send("t", {"n": 3})
    served.failures = [(503, b"")]
    found: list[Any] = []
    errors: list[DeserializationError] = []
    async with AsyncConsumer(
        bootstrap_servers=servers,
        value_deserializer=AvroDeserializer(SchemaRegistry(served.url)),
        on_deserialization_error="skip",
    ) as consumer:
        await consumer.assign_topics(["t"], start=EARLIEST)
        while len(found) < 4:
            try:
                found += [record.value for record in await consumer.poll(timeout_s=30)]
            except DeserializationError as error:
                errors.append(error)
        assert consumer.undecodable_records_skipped == 0
    assert found == [{"n": number} for number in range(4)]
    assert [(error.offset, error.retriable) for error in errors] == [(0, True)]


def test_a_record_of_an_unknown_schema_is_stepped_over(streamlog_cluster: Any, served: FakeRegistry) -> None:
    streamlog_cluster.create_topic("t")
    servers, registry = streamlog_cluster.bootstrap_servers, SchemaRegistry(served.url)
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"\x00\x00\x00\x00\x63x")
        producer.send("t", b"plain")
    with Producer(bootstrap_servers=servers, value_serializer=AvroSerializer(registry, SCHEMA)) as producer:
        producer.send("t", {"n": 7})
    dead: list[DeserializationError] = []
    with Consumer(
        bootstrap_servers=servers,
        value_deserializer=AvroDeserializer(registry),
        on_deserialization_error=dead.append,
    ) as consumer:
        consumer.assign_topics(["t"], start=EARLIEST)
        assert next(iter(consumer)).value == {"n": 7}
    assert ["Schema 99 not found" in dead[0].message, "not written with a schema registry" in dead[1].message] == [
        True,
        True,
    ]
