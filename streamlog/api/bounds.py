"""Bounds of the unsigned numbers in a message.

Protobuf's unsigned fields reach to 2^32-1 and 2^64-1. Ids, epochs, indexes and offsets are Kafka's int32 and int64: on
disk, in memory and in the metadata log. A larger number is a bug of another program, or an attack: it is refused when
the message is decoded, so that no later code has to handle it (`struct.error`, comparisons that are always true, a log
that cannot be written). For signed fields `convert` checks which may be negative, and which are int16.

Only messages that have unsigned fields, at any depth, are walked; this is determined once for each type. The unsigned
fields in requests of clients are correlation ids, which are returned unchanged.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from streamlog.errors import InvalidRequestError
from streamlog.model import INT32_MAX, INT64_MAX

_LIMITS: Final = {
    FieldDescriptor.TYPE_UINT32: INT32_MAX,
    FieldDescriptor.TYPE_FIXED32: INT32_MAX,
    FieldDescriptor.TYPE_UINT64: INT64_MAX,
    FieldDescriptor.TYPE_FIXED64: INT64_MAX,
}
ENTRIES_MAX: Final = 100_000
"""Of lists with unsigned numbers, in a request: more than any has that a node sends."""
OPAQUE: Final = frozenset({"correlation_id", "crc", "origin"})
"""Names of fields whose values are only returned or compared."""


def check_bounds(message: Message, *, entries_max: int = ENTRIES_MAX) -> None:
    """InvalidRequestError for a number out of bounds, and for more entries in lists than that: each is looked at, and
    may take two bytes.
    """
    if _is_walked(message.DESCRIPTOR):
        _Walk(entries_max).check(message, "")


@cache
def _is_walked(descriptor: Descriptor) -> bool:
    return _is_bounded(descriptor, frozenset())


@cache
def _is_walked_below(field: FieldDescriptor) -> bool:
    """The messages that the field holds are."""
    return field.message_type is not None and not _is_map(field) and _is_walked(field.message_type)


def _is_bounded(descriptor: Descriptor, above: frozenset[str]) -> bool:
    """Whether a message of this type can have a field with a limit; `above`: types that are being examined."""
    if descriptor.full_name in above:
        return False
    for field in descriptor.fields:
        if field.type in _LIMITS and field.name not in OPAQUE:
            return True
        inner = field.message_type
        if inner is not None and not _is_map(field) and _is_bounded(inner, above | {descriptor.full_name}):
            return True
    return False


def _is_map(field: FieldDescriptor) -> bool:
    """Maps in our messages have no bounded numbers."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


class _Walk:
    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._left = entries_max

    def check(self, message: Any, path: str) -> None:
        for field, value in message.ListFields():
            limit = _LIMITS.get(field.type)
            if limit is not None:
                if field.name in OPAQUE:
                    continue
                if field.is_repeated:
                    self._count(len(value), path + field.name)
                for number in value if field.is_repeated else (value,):
                    if number > limit:
                        name = path + field.name
                        raise InvalidRequestError(f"{name} is {number}, it is at most {limit}", field=name, limit=limit)
            elif _is_walked_below(field):
                if not field.is_repeated:
                    self.check(value, f"{path}{field.name}.")
                    continue
                self._count(len(value), path + field.name)
                for index, one in enumerate(value):
                    self.check(one, f"{path}{field.name}[{index}].")

    def _count(self, entries: int, name: str) -> None:
        self._left -= entries
        if self._left < 0:
            raise InvalidRequestError(
                f"the message has more than {self._entries_max} entries in its lists",
                field=name,
                limit=self._entries_max,
            )
