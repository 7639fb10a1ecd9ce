"""Protobuf messages of generated classes. After the header: the message indexes, the path to the message in its file.

    count, index ...    zigzag varints: of the message in the file, of the nested one in it ...
    0                   the file's first message

The file's descriptor is registered in base64, which registries accept, its imports as references under the names of
their files, those of google/protobuf/ excepted, which registries know.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from streamlog.client.schemas.by_schema import HEADER, BySchemaSerializer, id_of
from streamlog.client.schemas.registry import Reference, RegistrySchema, SchemaRegistry
from streamlog.client.schemas.subjects import SubjectStrategy, topic_name
from streamlog.errors import InvalidConfigError

KIND: Final = "PROTOBUF"
_NESTED_MAX: Final = 64


class ProtobufSerializer(BySchemaSerializer[bytes]):
    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Message],
        *,
        subject: SubjectStrategy = topic_name,
        auto_register: bool = True,
        use_latest: bool = False,
    ) -> None:
        """As AvroSerializer, of messages of one generated class. InvalidConfigError."""
        descriptor = _descriptor(message_type)
        self._type = message_type
        self._descriptor = descriptor
        self._indexes = message_indexes(descriptor)
        super().__init__(
            registry,
            RegistrySchema(_text(descriptor.file), KIND),
            subject=subject,
            auto_register=auto_register,
            use_latest=use_latest,
        )

    def _name(self) -> str:
        return self._descriptor.full_name

    def _registered_schema(self) -> RegistrySchema:
        return _with_imports(self._registry, self._descriptor.file, register=self._auto_register)

    def _compile(self, schema: RegistrySchema) -> bytes:
        return self._indexes

    def _encode(self, compiled: bytes, value: Any) -> bytes:
        if not isinstance(value, self._type):
            raise TypeError(f"a {self._type.__name__} is needed, not {type(value).__name__}")
        return compiled + value.SerializeToString()


class ProtobufDeserializer:
    """Into messages of one generated class, which has what a schema would say: the registry is not asked."""

    def __init__(self, message_type: type[Message]) -> None:
        """InvalidConfigError."""
        _descriptor(message_type)
        self._type = message_type

    def deserialize(self, topic: str, data: bytes, /) -> Message:
        """ValueError."""
        id_of(data)
        message = self._type()
        try:
            message.ParseFromString(data[after_indexes(data, HEADER.size) :])
        except DecodeError as error:
            raise ValueError(f"it is not a {self._type.__name__}: {error}") from None
        return message


def message_indexes(descriptor: Descriptor) -> bytes:
    names: list[str] = []
    at: Descriptor | None = descriptor
    while at is not None:
        names.insert(0, at.name)
        at = at.containing_type
    siblings = FileDescriptorProto.FromString(descriptor.file.serialized_pb).message_type
    path: list[int] = []
    for name in names:
        path.append([one.name for one in siblings].index(name))
        siblings = siblings[path[-1]].nested_type
    if path == [0]:
        return b"\x00"
    return b"".join(_varint(number << 1) for number in (len(path), *path))


def after_indexes(data: bytes, at: int) -> int:
    """Where the message begins. ValueError."""
    count, at = _read_varint(data, at)
    if count & 1 or count >> 1 > _NESTED_MAX:
        raise ValueError("its message indexes are invalid")
    for _ in range(count >> 1):
        _, at = _read_varint(data, at)
    return at


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
    raise ValueError("its message indexes are invalid")


def _descriptor(message_type: type[Message]) -> Descriptor:
    descriptor = getattr(message_type, "DESCRIPTOR", None)
    if not isinstance(message_type, type) or not isinstance(descriptor, Descriptor):
        raise InvalidConfigError("message_type must be a generated class of a Protobuf message", field="message_type")
    return descriptor


def _text(file: FileDescriptor) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _with_imports(registry: SchemaRegistry, file: FileDescriptor, *, register: bool) -> RegistrySchema:
    references = []
    for imported in file.dependencies:
        if imported.name.startswith("google/protobuf/"):
            continue
        schema = _with_imports(registry, imported, register=register)
        if register:
            registry.register(imported.name, schema)
        references.append(Reference(imported.name, imported.name, registry.version_of(imported.name, schema)))
    return RegistrySchema(_text(file), KIND, tuple(references))
