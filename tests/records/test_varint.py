"""Varints: known bytes, the column against the one, and the limits of both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRecordError
from streamlog.records.varint import (
    TABLE_SIZE,
    VarintTable,
    encode_varint,
    read_varint,
    read_varints,
    read_varlong,
    read_varlongs,
    varint_widths,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# The protocol buffers documentation's zigzag examples, and the ends of each width.
KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    -2: "03",
    63: "7e",
    -64: "7f",
    64: "8001",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("number", "encoded"), KNOWN.items())
def test_known_bytes(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert read_varlong(bytes.fromhex(encoded), 0) == (number, len(encoded) // 2)


@given(st.lists(st.one_of(INT64, st.integers(-2, TABLE_SIZE + 1)), max_size=40))
def test_a_column_is_encoded_and_read_as_one_by_one(numbers: list[int]) -> None:
    column = np.array(numbers, np.int64)
    encoded = VarintTable().encode(column)
    assert encoded == [encode_varint(number) for number in numbers]
    assert VarintTable(b"<", b">").encode(column) == [b"<" + each + b">" for each in encoded]
    starts = np.cumsum([0, *map(len, encoded)])
    values, after = read_varlongs(np.frombuffer(b"".join(encoded), np.uint8), starts[:-1])
    assert values.tolist() == numbers
    assert after.tolist() == starts[1:].tolist()


@given(st.lists(INT32, min_size=1, max_size=40))
def test_numbers_of_32_bits(numbers: list[int]) -> None:
    raw = b"".join(map(encode_varint, numbers))
    position, back = 0, []
    for _ in numbers:
        number, position = read_varint(raw, position)
        back.append(number)
    assert back == numbers
    starts = np.cumsum([0, *(len(encode_varint(number)) for number in numbers)])[:-1]
    assert read_varints(np.frombuffer(raw, np.uint8), starts)[0].tolist() == numbers
    small = np.array([number for number in numbers if number >= -1], np.int64)
    assert varint_widths(small).tolist() == [len(encode_varint(number)) for number in small.tolist()]


@given(st.binary(min_size=1, max_size=12), st.booleans())
def test_any_bytes_are_read_alike_by_both(raw: bytes, long: bool) -> None:
    one, many = (read_varlong, read_varlongs) if long else (read_varint, read_varints)
    data = np.frombuffer(raw, np.uint8)
    at = np.zeros(3, np.int64)
    try:
        value, after = one(raw, 0)
    except IndexError:
        with pytest.raises((IndexError, InvalidRecordError)):
            many(data, at)
    except InvalidRecordError:
        with pytest.raises(InvalidRecordError):
            many(data, at)
    else:
        values, afters = many(data, at)
        assert (values.tolist(), afters.tolist()) == ([value] * 3, [after] * 3)


@pytest.mark.parametrize("raw", ["ffffffff1f", "ffffffffff01", "8080808080808080808000", "ffffffffffffffffff02"])
def test_too_many_bits_are_refused(raw: str) -> None:
    with pytest.raises(InvalidRecordError, match="too many bits"):
        read_varint(bytes.fromhex(raw), 0)
    if len(raw) > 12:
        with pytest.raises(InvalidRecordError, match="too many bits"):
            read_varlong(bytes.fromhex(raw), 0)


def test_a_number_may_be_spelled_longer_than_need_be() -> None:
    assert read_varint(b"\x80\x80\x80\x80\x00", 0) == (0, 5)
    assert read_varints(np.frombuffer(b"\x80\x80\x80\x80\x00", np.uint8), np.zeros(1, np.int64))[0].tolist() == [0]
