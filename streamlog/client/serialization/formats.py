"""Formats of keys and values, by Kafka's names and by types of Python.

    name       Kafka's class       type of Python   bytes
    bytes      ByteArray, Bytes    bytes            as they are
    string     String              str              UTF-8
    short      Short                                2 bytes, big-endian
    integer    Integer                              4 bytes
    long       Long                int              8 bytes
    float      Float                                4 bytes, IEEE 754
    double     Double              float            8 bytes
    boolean    Boolean             bool             1 byte, 0 or 1
    uuid       UUID                uuid.UUID        its text of 36 characters
    json       Connect's, Spring's and Confluent's JsonSerializer           JSON in UTF-8; NaN and infinities are null

A null key or value stays None: it is not passed to a format. Bytes are the same as those of Kafka's classes, so the
other side of a topic may be a program in Java.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from streamlog.errors import InvalidConfigError


@runtime_checkable
class Serializer(Protocol):
    def serialize(self, topic: str, value: Any, /) -> bytes | None:
        """Any exception refuses the record."""
        ...


@runtime_checkable
class Deserializer(Protocol):
    def deserialize(self, topic: str, data: bytes, /) -> Any:
        """Any exception says that it cannot be deserialized."""
        ...


OfType: TypeAlias = type[str] | type[int] | type[float] | type[bool] | type[bytes] | type[uuid.UUID]
GivenSerializer: TypeAlias = Serializer | Callable[[Any], bytes | None] | OfType | str
"""An object with `serialize`, a function of the value, the name of a format, or a type that has one."""
GivenDeserializer: TypeAlias = Deserializer | Callable[[bytes], Any] | OfType | str

Serialize: TypeAlias = Callable[[str, Any], bytes | None]
Deserialize: TypeAlias = Callable[[str, bytes], Any]


class Format(NamedTuple):
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]


def _string(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"a str is needed, not {type(value).__name__}")
    return value.encode()


def _number(code: str, of_type: type[int] | type[float], low: int | None = None, high: int | None = None) -> Format:
    packed = struct.Struct(f">{code}")

    def serialize(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | of_type):
            raise TypeError(f"a number is needed ({of_type.__name__}), not {type(value).__name__}")
        if low is not None and high is not None and not low <= value <= high:
            raise ValueError(f"{value} is not in {low}..{high}")
        return packed.pack(value)

    def deserialize(data: bytes) -> Any:
        if len(data) != packed.size:
            raise ValueError(f"{packed.size} bytes are needed, not {len(data)}")
        return packed.unpack(data)[0]

    return Format(serialize, deserialize)


def _integer(code: str, bits: int) -> Format:
    return _number(code, int, -(1 << bits - 1), (1 << bits - 1) - 1)


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError(f"a bool is needed, not {type(value).__name__}")
    return b"\x01" if value else b"\x00"


def _boolean_of(data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise ValueError("one byte, 0 or 1, is needed")
    return data == b"\x01"


def _uuid(value: Any) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise TypeError(f"a uuid.UUID is needed, not {type(value).__name__}")
    return str(value).encode()


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"bytes are needed, not {type(value).__name__}")
    return value


_FORMATS: Final[Mapping[str, Format]] = {
    "bytes": Format(_bytes, bytes),
    "string": Format(_string, lambda data: data.decode()),
    "short": _integer("h", 16),
    "integer": _integer("i", 32),
    "long": _integer("q", 64),
    "float": _number("f", float),
    "double": _number("d", float),
    "boolean": Format(_boolean, _boolean_of),
    "uuid": Format(_uuid, lambda data: uuid.UUID(data.decode())),
    "json": Format(msgspec.json.encode, msgspec.json.decode),
}
_TYPES: Final[Mapping[object, str]] = {
    bytes: "bytes",
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    uuid.UUID: "uuid",
}
_KAFKA: Final = "org.apache.kafka.common.serialization."
_CLASSES: Final[Mapping[str, str]] = {
    **{f"{_KAFKA}{name.capitalize()}": name for name in ("short", "integer", "long", "float", "double", "boolean")},
    f"{_KAFKA}String": "string",
    f"{_KAFKA}UUID": "uuid",
    f"{_KAFKA}ByteArray": "bytes",
    f"{_KAFKA}Bytes": "bytes",
    "org.apache.kafka.connect.json.Json": "json",
    "org.springframework.kafka.support.serializer.Json": "json",
    "io.confluent.kafka.serializers.KafkaJson": "json",
}


def serializer_of(given: GivenSerializer | None, setting: str) -> Serialize | None:
    """None: bytes. `setting`: for messages. InvalidConfigError."""
    name = _name(given, "Serializer", setting)
    if name is not None:
        encode = _FORMATS[name].serialize
        return None if name == "bytes" else lambda topic, value: encode(value)
    if isinstance(given, Serializer) and not isinstance(given, type):
        return _of_role(given, setting).serialize
    function = _function(given, "serialize", setting)
    return lambda topic, value: function(value)


def deserializer_of(given: GivenDeserializer | None, setting: str) -> Deserialize | None:
    """As `serializer_of`."""
    name = _name(given, "Deserializer", setting)
    if name is not None:
        decode = _FORMATS[name].deserialize
        return None if name == "bytes" else lambda topic, data: decode(data)
    if isinstance(given, Deserializer) and not isinstance(given, type):
        return given.deserialize
    function = _function(given, "deserialize", setting)
    return lambda topic, data: function(data)


def _of_role(given: Serializer, setting: str) -> Serializer:
    """A serializer that differs for keys (`for_key`) gives that one."""
    for_key = getattr(given, "for_key", None)
    if not setting.startswith("key") or not callable(for_key):
        return given
    found = for_key()
    assert isinstance(found, Serializer)
    return found


def _name(given: object, suffix: str, setting: str) -> str | None:
    """Of the format; None: it is given otherwise."""
    if given is None:
        return "bytes"
    if isinstance(given, type):
        return _TYPES.get(given)
    if not isinstance(given, str):
        return None
    name = _CLASSES.get(given.removesuffix(suffix), given)
    if name not in _FORMATS:
        raise InvalidConfigError(
            f"{setting}={given!r}: must be one of {', '.join(_FORMATS)}, a class {_KAFKA}*{suffix}, or a function",
            field=setting,
        )
    return name


def _function(given: object, method: str, setting: str) -> Callable[[Any], Any]:
    if isinstance(given, type) and hasattr(given, method):
        raise InvalidConfigError(f"{setting}: give an instance of {given.__name__}, not the class", field=setting)
    if not callable(given):
        raise InvalidConfigError(
            f"{setting}: must be a function, an object with the method {method}, or the name of a format, not"
            f" {type(given).__name__}",
            field=setting,
        )
    return given
