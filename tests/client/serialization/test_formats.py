"""Formats of keys and values: the bytes are those of Kafka's classes; what a format does not take is refused."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from streamlog.client.serialization.formats import deserializer_of, serializer_of
from streamlog.errors import InvalidConfigError

KAFKA = "org.apache.kafka.common.serialization."
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

# As Java's ByteBuffer writes them, which Kafka's classes use.
BYTES = [
    ("string", f"{KAFKA}String", "h\u00e9", b"h\xc3\xa9"),
    ("short", f"{KAFKA}Short", -2, b"\xff\xfe"),
    ("integer", f"{KAFKA}Integer", 258, b"\x00\x00\x01\x02"),
    ("long", f"{KAFKA}Long", -1, b"\xff" * 8),
    ("float", f"{KAFKA}Float", 1.5, b"\x3f\xc0\x00\x00"),
    ("double", f"{KAFKA}Double", 1.5, b"\x3f\xf8" + bytes(6)),
    ("boolean", f"{KAFKA}Boolean", True, b"\x01"),
    ("uuid", f"{KAFKA}UUID", ID, b"12345678-1234-5678-1234-567812345678"),
    ("json", "org.apache.kafka.connect.json.Json", {"a": [1, None, "\u00e9"]}, b'{"a":[1,null,"\xc3\xa9"]}'),
]
TYPES = [(str, "x"), (int, 7), (float, 0.5), (bool, False), (uuid.UUID, ID)]


@pytest.mark.parametrize(("name", "kafka", "value", "data"), BYTES, ids=[case[0] for case in BYTES])
def test_a_format_has_kafkas_bytes(name: str, kafka: str, value: Any, data: bytes) -> None:
    for given in (name, f"{kafka}Serializer"):
        serialize = serializer_of(given, "value_serializer")
        assert serialize is not None
        assert serialize("t", value) == data
    for given in (name, f"{kafka}Deserializer"):
        deserialize = deserializer_of(given, "value_deserializer")
        assert deserialize is not None
        assert deserialize("t", data) == value
        assert type(deserialize("t", data)) is type(value)


@pytest.mark.parametrize(("of_type", "value"), TYPES)
def test_a_type_names_its_format(of_type: Any, value: object) -> None:
    serialize, deserialize = serializer_of(of_type, "s"), deserializer_of(of_type, "s")
    assert serialize is not None
    assert deserialize is not None
    assert deserialize("t", serialize("t", value) or b"") == value


@pytest.mark.parametrize("given", [None, "bytes", bytes, f"{KAFKA}ByteArraySerializer", f"{KAFKA}BytesSerializer"])
def test_bytes_cost_nothing(given: Any) -> None:
    assert serializer_of(given, "s") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("string", b"x"),
        ("integer", 1 << 31),
        ("integer", 1.5),
        ("integer", True),
        ("integer", "1"),
        ("short", -32_769),
        ("long", 1 << 63),
        ("double", "1"),
        ("float", 1e300),
        ("boolean", 1),
        ("uuid", str(ID)),
        ("json", object()),
    ],
)
def test_what_a_format_does_not_take(name: str, value: object) -> None:
    serialize = serializer_of(name, "s")
    assert serialize is not None
    with pytest.raises((TypeError, ValueError, OverflowError)):
        serialize("t", value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("string", b"\xff"),
        ("integer", b"\x00"),
        ("boolean", b"\x02"),
        ("uuid", b"x"),
        ("json", b"{"),
        ("long", bytes(9)),
    ],
)
def test_what_is_not_of_a_format(name: str, data: bytes) -> None:
    deserialize = deserializer_of(name, "s")
    assert deserialize is not None
    with pytest.raises(ValueError, match=r".+"):
        deserialize("t", data)


class Upper:
    def serialize(self, topic: str, value: str) -> bytes:
        return f"{topic}:{value}".upper().encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        return f"{topic}:{data.decode()}".lower()


def test_an_object_gets_the_topic_and_a_function_does_not() -> None:
    by_object, back = serializer_of(Upper(), "s"), deserializer_of(Upper(), "s")
    assert by_object is not None
    assert back is not None
    assert by_object("t", "x") == b"T:X"
    assert back("t", b"X") == "t:x"
    function = serializer_of(lambda value: value.encode(), "s")
    assert function is not None
    assert function("t", "x") == b"x"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("strin", r"value_serializer='strin': must be one of bytes, string, short, .*, or a function"),
        (f"{KAFKA}ListSerializer", r"must be one of bytes"),
        (Upper, "give an instance of Upper, not the class"),
        (7, "must be a function, an object with the method serialize, or the name of a format, not int"),
    ],
)
def test_what_is_no_serializer(given: Any, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message) as refused:
        serializer_of(given, "value_serializer")
    assert refused.value.details["field"] == "value_serializer"
