"""Header blocks of one connection (HPACK, RFC 7541), with a memory for those that repeat.

    fields --HeaderEncoder--> block --the other end's--> fields

Both ends keep a table, and a block may change it. A program calls the same few methods with the same metadata, so
soon its blocks are indexes into the table and nothing else. Such a block stands for the same fields until the table
changes: both are remembered until then, since field by field a block takes longer than all other work on its frame.

Values that differ from call to call (deadlines, error messages) are sent in a form that the table does not take.
"""

from __future__ import annotations

from typing import Final, TypeVar

from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError, OversizedHeaderListError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from streamlog.ports.grpc_adapter.frames import Code, ConnectionFault
from streamlog.ports.grpc_adapter.metadata import (
    DETAILS,
    MESSAGE,
    REMEMBERED_BYTES_MAX,
    REMEMBERED_MAX,
    TIMEOUT,
    HeaderFields,
    Pairs,
    field_size,
    fields_size,
)

TABLE_BYTES_MAX: Final = 4096
TABLE_CHANGES_MAX: Final = 2
"""Of the size of the table, at the begin of a block (RFC 7541, 4.2)."""
_DIFFERENT: Final = frozenset({TIMEOUT, MESSAGE, DETAILS})
# The first byte of a field (RFC 7541, 6), and that of a text's length.
_INDEX: Final = 0x80
_LONG_INDEX: Final = 0xFF
_IS_ADDED: Final = 0x40  # to the table
_INDEXED_NAME: Final = 0x3F
_NAME: Final = 0x0F
_LENGTH: Final = 0x7F
_TABLE_CHANGE: Final = 0x20
_TABLE_CHANGE_MASK: Final = 0xE0
_LONG_NUMBER: Final = 0x1F

K = TypeVar("K", bytes, Pairs)
V = TypeVar("V", bytes, HeaderFields)


class _Table(HeaderTable):
    def __init__(self) -> None:
        super().__init__()
        self.added = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.added += 1
        super().add(name, value)


class HeaderEncoder:
    def __init__(self) -> None:
        self._table = _Table()
        self._encoder = Encoder()
        self._encoder.header_table = self._table
        self._sizes: tuple[int, int] | None = None  # smallest and last that the peer has asked for, not yet in effect
        self._known: dict[Pairs, bytes] = {}

    def limit_table(self, size: int) -> None:
        """To the bytes that the peer has asked for. The next block says so."""
        size = min(size, TABLE_BYTES_MAX)
        self._sizes = (size if self._sizes is None else min(size, self._sizes[0]), size)

    def encode(self, fields: Pairs) -> bytes:
        """To be written before the next block is made: the peer decodes them in this order."""
        if self._sizes is not None:
            self._change_table(*self._sizes)
        known = self._known.get(fields)
        if known is not None:
            return known
        added, says_sizes = self._table.added, self._table.resized
        block = self._encoder.encode([(name, value, name in _DIFFERENT) for name, value in fields])
        if self._table.added != added or says_sizes:
            self._known.clear()
        else:
            _remember(self._known, fields, block, fields)
        return block

    def _change_table(self, smallest: int, last: int) -> None:
        self._sizes = None
        for size in (smallest, last):
            if size != self._encoder.header_table_size:
                self._encoder.header_table_size = size
                self._known.clear()


class HeaderDecoder:
    def __init__(self, fields_bytes_max: int) -> None:
        """Bytes of one block's fields, as HTTP/2 counts them."""
        self._fields_bytes_max = fields_bytes_max
        self._table = _Table()
        self._decoder = Decoder(max_header_list_size=fields_bytes_max)
        self._decoder.header_table = self._table
        self._known: dict[bytes, HeaderFields] = {}

    def decode(self, block: bytes) -> HeaderFields:
        """ConnectionFault."""
        known = self._known.get(block)
        if known is not None:
            return known
        changes, added = _table_changes(block), self._table.added
        if changes > TABLE_CHANGES_MAX:
            raise ConnectionFault(Code.COMPRESSION_ERROR, "a header block changes the table's size too often")
        try:
            fields = HeaderFields(self._decode(block))
        except HPACKError as error:
            reason = str(error)[:100]  # it may have the whole block
            raise ConnectionFault(Code.COMPRESSION_ERROR, f"a header block cannot be decoded: {reason}") from None
        if self._table.added != added or changes:
            self._known.clear()
        else:
            _remember(self._known, block, fields, fields)
        return fields

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """Indexes of one byte, which most fields are, and short values of names that have one, as deadlines are; the
        others by the library, which is not made for speed.
        """
        fields: list[tuple[bytes, bytes]] = []
        at = size = 0
        while at < len(block):
            first = block[at]
            if _INDEX < first < _LONG_INDEX:
                at += 1
                fields.append(self._table.get_by_index(first & ~_INDEX))
                size += field_size(fields[-1])
            elif fields and first & _TABLE_CHANGE_MASK == _TABLE_CHANGE:
                raise ConnectionFault(Code.COMPRESSION_ERROR, "a header block changes the table's size after its begin")
            elif (end := _value_end(block, at)) is not None:
                fields.append(self._read_value(block, at, end))
                size += field_size(fields[-1])
                at = end
            else:
                end = _literal_end(block, at)
                for field in self._read(block[at:end]):
                    fields.append(field)
                    size += field_size(field)
                at = end
            if size > self._fields_bytes_max:
                raise _too_large(self._fields_bytes_max)
        return fields

    def _read_value(self, block: bytes, at: int, end: int) -> tuple[bytes, bytes]:
        """By `_value_end`. HPACKError."""
        first, value = block[at], block[at + 2 : end]
        is_added = first & _IS_ADDED
        name, _ = self._table.get_by_index(first & (_INDEXED_NAME if is_added else _NAME))
        if block[at + 1] > _LENGTH:
            value = decode_huffman(value)
        if is_added:
            self._table.add(name, value)
        return name, value

    def _read(self, part: bytes) -> list[tuple[bytes, bytes]]:
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(part, raw=True)]
        except OversizedHeaderListError:
            raise _too_large(self._fields_bytes_max) from None


def _value_end(block: bytes, begin: int) -> int | None:
    """Where a field ends whose name has an index of one byte, and whose value is short; None: it is another one."""
    first = block[begin]
    mask = _INDEXED_NAME if first & _IS_ADDED else _NAME
    if first >= _INDEX or first & _TABLE_CHANGE_MASK == _TABLE_CHANGE or not 0 < first & mask < mask:
        return None
    length = block[begin + 1] & _LENGTH if begin + 1 < len(block) else _LENGTH
    end = begin + 2 + length
    return end if length < _LENGTH and end <= len(block) else None


def _literal_end(block: bytes, begin: int) -> int:
    """Where a field with short texts ends; the end of the block for all others."""
    first, at = block[begin], begin + 1
    mask = _INDEXED_NAME if first & _IS_ADDED else _NAME
    if first >= _INDEX or first & _TABLE_CHANGE_MASK == _TABLE_CHANGE or first & mask == mask:
        return len(block)
    for _ in range(1 if first & mask else 2):
        if at >= len(block) or block[at] & _LENGTH == _LENGTH:
            return len(block)
        at += 1 + (block[at] & _LENGTH)
    return min(at, len(block))


def _too_large(limit: int) -> ConnectionFault:
    return ConnectionFault(Code.ENHANCE_YOUR_CALM, f"a header block is too large: more than {limit} bytes of fields")


def _remember(known: dict[K, V], key: K, value: V, fields: HeaderFields | Pairs) -> None:
    if fields_size(fields) <= REMEMBERED_BYTES_MAX:
        if len(known) >= REMEMBERED_MAX:
            known.clear()
        known[key] = value


def _table_changes(block: bytes) -> int:
    """How many a header block begins with; no more than one above the limit."""
    count = at = 0
    while at < len(block) and block[at] & _TABLE_CHANGE_MASK == _TABLE_CHANGE and count <= TABLE_CHANGES_MAX:
        is_long = block[at] & _LONG_NUMBER == _LONG_NUMBER
        at += 1
        while is_long and at < len(block):
            is_long = block[at] >= 0x80
            at += 1
        count += 1
    return count
