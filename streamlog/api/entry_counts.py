"""How many entries the lists of a large request have, before it is parsed.

Parsed, two bytes of an empty entry take up to 130 bytes of memory, and a node may accept requests of a gigabyte. So in
the requests that may be large the entries are counted first, in the encoded message, and too many are refused as they
would be afterwards. Nothing else is looked at: an entry is skipped by its size, so this takes as long for a batch of a
mebibyte as for one of a byte, and ends with the first entry, or field of any other kind, beyond what is allowed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from google.protobuf.message import Message
from msgspec import Struct

from streamlog.api.convert.groups import PARTITIONS_MAX
from streamlog.api.convert.records.publish import HEADERS_PER_REQUEST_MAX, RECORDS_PER_REQUEST_MAX, too_many_headers
from streamlog.api.convert.records.publish_transactions import GROUPS_MAX
from streamlog.api.pb import batches_pb2, records_pb2
from streamlog.api.requests import PARTITIONS_PER_REQUEST_MAX
from streamlog.api.wire_format import LENGTH_DELIMITED, VARINT, read_varint, skip, tag
from streamlog.errors import CorruptMessageError, InvalidRequestError

COUNTED_BYTES_MIN: Final = 256 << 10
"""Smaller requests are parsed as they are: that takes at most some 16 MiB."""
OTHER_FIELDS_MAX: Final = 1_000
"""Fields of a request that are no entries. Each is there once, except where a caller wants this to take long."""
ENTRY_FIELDS: Final = 10
"""Allowed besides for each entry that has lists itself."""
LINKS_MAX: Final = 100_000
"""Of all partitions of a request; clients send some 30 for each."""


class _List(Struct, frozen=True):
    field: str
    count_max: int
    problem: str  # with more than `count_max`
    below: Mapping[int, _List] = {}  # the lists of its entries, counted over all entries; by tag


def _tag(message_type: type[Message], field: str) -> int:
    return tag(message_type.DESCRIPTOR.fields_by_name[field].number, LENGTH_DELIMITED)


_LINKS: Final = _List(
    "partitions",
    LINKS_MAX,
    f"linked_traceparents has more than {LINKS_MAX} entries in all, but may have at most {LINKS_MAX}",
)
_PARTITIONS: Final = _List(
    "partitions",
    PARTITIONS_PER_REQUEST_MAX,
    f"partitions has more than {PARTITIONS_PER_REQUEST_MAX} entries, but 1 to {PARTITIONS_PER_REQUEST_MAX} are allowed",
    {_tag(batches_pb2.PartitionBatches, "linked_traceparents"): _LINKS},
)
_HEADERS: Final = _List("records", HEADERS_PER_REQUEST_MAX, too_many_headers(f"more than {HEADERS_PER_REQUEST_MAX}"))
_RECORDS: Final = _List(
    "records",
    RECORDS_PER_REQUEST_MAX,
    f"the request has more than {RECORDS_PER_REQUEST_MAX} records, but 1 to {RECORDS_PER_REQUEST_MAX} are allowed",
    {_tag(records_pb2.PublishRecord, "headers"): _HEADERS},
)
_OFFSETS: Final = _List(
    "offsets",
    PARTITIONS_MAX,
    f"offsets has more than {PARTITIONS_MAX} entries in all, but may have at most {PARTITIONS_MAX}",
)
_GROUPS: Final = _List(
    "offsets",
    GROUPS_MAX,
    f"offsets has more than {GROUPS_MAX} entries, but 0 to {GROUPS_MAX} are allowed",
    {_tag(records_pb2.TransactionOffsets, "offsets"): _OFFSETS},
)
_LISTS: Final[Mapping[type[Message], Mapping[int, _List]]] = {
    one: {_tag(one, lists.field): lists for lists in known}
    for one, known in (
        (batches_pb2.ProduceRequest, [_PARTITIONS]),
        (batches_pb2.ProduceStreamRequest, [_PARTITIONS]),
        (records_pb2.PublishRequest, [_RECORDS]),
        (records_pb2.PublishStreamRequest, [_RECORDS, _GROUPS]),
    )
}


def check_entry_counts(message_type: type[Message], data: bytes) -> None:
    """InvalidRequestError for too many; CorruptMessageError where `data` is no message."""
    lists = _LISTS.get(message_type)
    if lists is not None:
        _Counts(data).check(lists, 0, len(data))


_SHORT_TEXTS: Final = frozenset(tag(number, LENGTH_DELIMITED) for number in range(1, 16))
_SHORT_NUMBERS: Final = frozenset(tag(number, VARINT) for number in range(1, 16))


class _Counts:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._counts: defaultdict[str, int] = defaultdict(int)  # of entries, by the problem with too many
        self._others_left = OTHER_FIELDS_MAX

    def check(self, lists: Mapping[int, _List], position: int, end: int) -> None:
        """The fields between these positions."""
        data, counts = self._data, self._counts
        while position < end:
            what, position = data[position], position + 1
            if what > 0x7F:
                what, position = read_varint(data, position - 1, end)
            known = lists.get(what)
            if known is None:
                # Most fields of thousands of entries without a call.
                if what in _SHORT_TEXTS and position < end and data[position] < min(0x80, end - position):
                    position += 1 + data[position]
                elif what in _SHORT_NUMBERS and position < end and data[position] < 0x80:
                    position += 1
                else:
                    position = skip(data, position, end, what)
                self._others_left -= 1
                if self._others_left < 0:
                    raise InvalidRequestError(
                        "the request has thousands of fields beside the entries of its lists", field="request"
                    )
                continue
            # As `read_varint`, for nearly all of thousands of entries without a call.
            size = data[position] if position + 1 < end else 0x80
            if size < 0x80:
                position += 1
            elif position + 1 < end and data[position + 1] < 0x80:
                size += (data[position + 1] - 1) << 7
                position += 2
            else:
                size, position = read_varint(data, position, end)
            if size > end - position:
                raise CorruptMessageError("a field is truncated", position=position)
            counts[known.problem] += 1
            if counts[known.problem] > known.count_max:
                raise InvalidRequestError(known.problem, field=known.field, limit=known.count_max)
            if known.below:
                self._others_left += ENTRY_FIELDS
                self.check(known.below, position, position + size)
            position += size
