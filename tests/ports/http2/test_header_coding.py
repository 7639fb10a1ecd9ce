"""Header blocks that are remembered, against a library that remembers none: any fields and tables in any order."""

from __future__ import annotations

from typing import Final

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ports.grpc_adapter.frames import Code, ConnectionFault
from streamlog.ports.grpc_adapter.header_coding import HeaderDecoder, HeaderEncoder
from streamlog.ports.grpc_adapter.metadata import REMEMBERED_MAX, HeaderFields, Pairs

BYTES_MAX: Final = 1 << 16
NAMES: Final = ["te", "x-a", "x-b", ":path", "content-type", "grpc-timeout", "grpc-message", "grpc-status-details-bin"]
VALUES: Final = ["", "0", "trailers", "a" * 50, "b" * 1_500, "c" * 5_000]
FIELDS: Final = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)),
    max_size=4,
).map(tuple)
SIZES: Final = st.sampled_from([0, 40, 100, 4_096, 1 << 20])
STEPS: Final = st.lists(st.one_of(FIELDS, FIELDS, FIELDS, SIZES), max_size=30)


def pairs(decoder: hpack.Decoder, block: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in decoder.decode(block)]


@given(STEPS)
@settings(max_examples=300)
def test_what_is_encoded_is_read_by_the_library(steps: list[Pairs | int]) -> None:
    encoder, decoder = HeaderEncoder(), hpack.Decoder()
    for step in steps:
        if isinstance(step, int):
            encoder.limit_table(step)
        else:
            assert pairs(decoder, encoder.encode(step)) == list(step)


@given(STEPS, st.integers(0, 1), st.booleans())
@settings(max_examples=300)
def test_what_the_library_encodes_is_read(steps: list[Pairs | int], never_indexed: int, huffman: bool) -> None:
    """`never_indexed`: fields that the caller wants in no table."""
    encoder, decoder = hpack.Encoder(), HeaderDecoder(BYTES_MAX)
    for step in steps:
        if isinstance(step, int):
            if (size := min(step, 4_096)) != encoder.header_table_size:  # else the library forgets those before
                encoder.header_table_size = size
        else:
            given = [(name, value, never_indexed == at % 2) for at, (name, value) in enumerate(step)]
            expected = [(name.encode(), value.encode()) for name, value in step]
            if len(encoder.table_size_changes) <= 2:
                assert list(decoder.decode(encoder.encode(given, huffman=huffman))) == expected
            else:
                with pytest.raises(ConnectionFault):
                    decoder.decode(encoder.encode(given, huffman=huffman))
                return


PARTS: Final = st.one_of(
    st.binary(max_size=6),
    st.integers(0x80, 0xFF).map(lambda first: bytes((first,))),
    st.sampled_from([b"\x20", b"\x3f\x0b", b"\x3f\xe1\x1f", b"\x40\x01a\x01b", b"\x00\x01a\x00", b"\x10\x01a\x81\x1f"]),
    st.builds(lambda first, size: bytes((first, size)) + b"v" * size, st.integers(0x40, 0x7F), st.integers(0, 0x7F)),
    st.builds(lambda first, size: bytes((first, size)) + b"v" * size, st.integers(0, 0x1F), st.integers(0, 0x7F)),
)


@given(st.lists(st.lists(PARTS, max_size=6).map(b"".join), max_size=6), st.sampled_from([100, BYTES_MAX]))
@settings(max_examples=1_000)
def test_any_bytes_are_read_as_by_the_library(blocks: list[bytes], bytes_max: int) -> None:
    library, decoder = hpack.Decoder(max_header_list_size=bytes_max), HeaderDecoder(bytes_max)
    for block in [one for one in blocks for _ in range(2)]:
        try:
            expected = [(bytes(name), bytes(value)) for name, value in library.decode(block, raw=True)]
        except hpack.HPACKError:
            with pytest.raises(ConnectionFault):
                decoder.decode(block)
            return
        found = _read(decoder, block)
        if isinstance(found, str):
            assert "too often" in found, "changes of the table's size, which the library does not bound"
            return
        assert list(found) == expected


def _read(decoder: HeaderDecoder, block: bytes) -> HeaderFields | str:
    """Or why it is refused."""
    try:
        return decoder.decode(block)
    except ConnectionFault as fault:
        return fault.reason


REQUEST: Final = ((":path", "/p.S/M"), ("x-a", "a"))


def test_a_block_that_repeats_is_remembered_until_the_table_changes() -> None:
    encoder, decoder = HeaderEncoder(), HeaderDecoder(BYTES_MAX)
    decoder.decode(encoder.encode(REQUEST))  # fills the tables
    block = encoder.encode(REQUEST)
    fields = decoder.decode(block)
    assert encoder.encode(REQUEST) is block
    assert decoder.decode(bytes(block)) is fields
    decoder.decode(encoder.encode((("x-new", "1"),)))
    again = encoder.encode(REQUEST)
    assert again != block, "its fields have other places in the table"
    assert decoder.decode(again) == fields
    assert decoder.decode(again) is not fields


ADD_A: Final = b"\x40\x01a\x011"
ADD_B: Final = b"\x40\x01b\x012"
NEWEST: Final = b"\xbe"
EMPTY_THE_TABLE: Final = b"\x20\x3f\xe1\x1f"


def test_the_same_bytes_mean_what_the_table_says_now() -> None:
    decoder = HeaderDecoder(BYTES_MAX)
    decoder.decode(ADD_A)
    assert [decoder.decode(NEWEST) for _ in range(2)] == [((b"a", b"1"),)] * 2
    decoder.decode(ADD_B)
    assert decoder.decode(NEWEST) == ((b"b", b"2"),)
    decoder.decode(EMPTY_THE_TABLE)
    with pytest.raises(ConnectionFault):
        decoder.decode(NEWEST)


def test_a_change_of_the_table_is_said_once() -> None:
    encoder, decoder = HeaderEncoder(), hpack.Decoder()
    for _ in range(2):
        decoder.decode(encoder.encode(REQUEST))
    encoder.limit_table(2_000)
    says, then = encoder.encode(REQUEST), encoder.encode(REQUEST)
    assert says.endswith(then)
    assert len(says) > len(then)
    assert [pairs(decoder, block) for block in (says, then)] == [list(REQUEST)] * 2


@pytest.mark.parametrize("name", ["grpc-timeout", "grpc-message", "grpc-status-details-bin"])
def test_values_that_differ_change_no_table(name: str) -> None:
    encoder = HeaderEncoder()
    encoder.encode(REQUEST)
    block = encoder.encode(REQUEST)
    for value in range(REMEMBERED_MAX - 1):
        encoder.encode((*REQUEST, (name, str(value))))
    assert encoder.encode(REQUEST) is block


def test_few_blocks_are_remembered_and_no_large_ones() -> None:
    decoder, encoder = HeaderDecoder(BYTES_MAX), HeaderEncoder()
    decoder.decode(encoder.encode(REQUEST))
    first = encoder.encode(REQUEST)
    fields = decoder.decode(first)
    for value in range(REMEMBERED_MAX):
        decoder.decode(encoder.encode((*REQUEST, ("grpc-timeout", str(value)))))
    assert decoder.decode(first) is not fields
    large = encoder.encode((("grpc-message", "m" * 4_096),))
    assert decoder.decode(large) is not decoder.decode(large)


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (b"\x20\x20\x20", Code.COMPRESSION_ERROR),
        (b"\xff\x80", Code.COMPRESSION_ERROR),
        (b"\xbe", Code.COMPRESSION_ERROR),
        (b"\x00\x01a" + bytes(hpack.hpack.encode_integer(BYTES_MAX, 7)) + b"b" * BYTES_MAX, Code.ENHANCE_YOUR_CALM),
    ],
    ids=["sizes", "number", "index", "large"],
)
def test_what_is_refused_is_refused_again(block: bytes, code: Code) -> None:
    for _ in range(2):
        with pytest.raises(ConnectionFault) as found:
            HeaderDecoder(BYTES_MAX).decode(block)
        assert found.value.code is code
