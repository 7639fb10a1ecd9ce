"""JSON <-> protobuf messages, by protobuf's own mapping (google.protobuf.json_format).

64-bit numbers are texts, bytes are base64, enums names, field names camelCase; those of the proto files are accepted
too. Fields without presence are always written, so that an offset 0 is seen. An unknown field is refused.

Parsing takes up to a hundred times the memory and some 5 µs for each element of a request, so elements are counted
before it. What is large is converted in a worker thread, one at a time, so that metrics and other calls go on.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message

from streamlog.errors import InvalidRequestError, RequestTooLargeError

T = TypeVar("T")

ELEMENTS_MAX: Final = 200_000
"""Objects, lists and commas in a request."""
AT_ONCE_BYTES_MAX: Final = 16 << 10
"""Larger ones are converted in a worker thread."""
DEPTH_MAX: Final = 20
_DETAIL_LENGTH_MAX: Final = 300


class JsonMessages:
    """Used on the listener's loop."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(1)

    async def parsed(self, request_type: type[Message], text: bytes) -> bytes:
        """The serialized message. InvalidRequestError, RequestTooLargeError."""
        return await self.converted(len(text), lambda: parse_json(request_type, text))

    async def formatted(self, response_type: type[Message], data: bytes) -> bytes:
        """JSON of a serialized message."""
        return await self.converted(len(data), lambda: format_json(response_type.FromString(data)))

    async def converted(self, size: int, work: Callable[[], T]) -> T:
        """`work`, on so many bytes."""
        if size <= AT_ONCE_BYTES_MAX:
            return work()
        async with self._large:
            return await asyncio.to_thread(work)


def parse_json(request_type: type[Message], text: bytes) -> bytes:
    """The serialized message. InvalidRequestError, RequestTooLargeError."""
    name = request_type.DESCRIPTOR.full_name
    if text.count(b",") + text.count(b"{") + text.count(b"[") > ELEMENTS_MAX:
        raise RequestTooLargeError(
            f"the request has more than {ELEMENTS_MAX:,} elements; send several requests",
            field="request",
            limit=ELEMENTS_MAX,
        )
    try:
        document = json.loads(text.decode(), object_pairs_hook=checked_object)
    except RecursionError:
        raise _invalid(name, "it is nested too deeply") from None
    except ValueError as error:  # of the syntax, of UTF-8, of a number with thousands of digits
        raise _invalid(name, f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise _invalid(name, "it is not an object: the smallest request is {}")
    try:
        return ParseDict(document, request_type(), max_recursion_depth=DEPTH_MAX).SerializeToString()
    except ParseError as error:
        raise _invalid(name, str(error)) from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # values of other kinds than the field's
        raise _invalid(name, "a field has a value of another kind than it should") from None


def format_json(message: Message) -> bytes:
    document = MessageToDict(message, always_print_fields_with_no_presence=True)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def checked_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """ValueError for a field that stands twice: which of the two is meant is unknown."""
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return found


def _invalid(name: str, why: str) -> InvalidRequestError:
    one_line = " ".join(why.split())
    shown = one_line if len(one_line) <= _DETAIL_LENGTH_MAX else f"{one_line[:_DETAIL_LENGTH_MAX]}…"
    return InvalidRequestError(f"the request cannot be read as {name}: {shown}", field="request")
