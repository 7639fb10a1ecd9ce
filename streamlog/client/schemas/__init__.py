"""Keys and values by the schemas of a registry, in Confluent's wire format: `pip install 'streamlog[schema]'`.

    registry = SchemaRegistry("http://registry:8081")
    producer = Producer(bootstrap_servers=..., value_serializer=AvroSerializer(registry, schema))
    consumer = Consumer(bootstrap_servers=..., value_deserializer=AvroDeserializer(registry))

    0 | schema id, 4 bytes, big-endian | Avro, JSON, or message indexes and Protobuf

The registry is any that has Confluent's HTTP API (Karapace, Apicurio and others). Each schema is looked up once. A
lookup that is needed first is a `serialization.pending.Pending`: the client waits for it, in a thread where it has an
event loop.

registry        the HTTP API, and what is cached of it
subjects        strategies: the name under which a schema is registered
by_schema       what all formats have in common
avro, json_schema, protobuf
"""

from streamlog.client.schemas.avro import AvroDeserializer, AvroSerializer
from streamlog.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from streamlog.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from streamlog.client.schemas.registry import Reference, RegistrySchema, SchemaRegistry
from streamlog.client.schemas.subjects import record_name, topic_name, topic_record_name

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegistrySchema",
    "SchemaRegistry",
    "record_name",
    "topic_name",
    "topic_record_name",
]
