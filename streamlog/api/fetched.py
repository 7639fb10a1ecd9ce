"""Encodes and decodes FetchResponse and FetchStreamResponse, which are the same on the wire.

    Fetched ... --encode--> message --decode--> Fetched ...

Encoding copies the batches once, in the join. Decoded batches are views of the message if they are at least half of it,
so that keeping them keeps at most twice as many bytes; otherwise they are copied. The rest of a partition is a
generated message without its batches, which are last (field 15), as the library writes them. Messages of other programs
may have them anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.wire_format import LENGTH_DELIMITED, VARINT, read_varint, skip, tag, varint
from streamlog.errors import CorruptMessageError
from streamlog.ports import Buffer

_PARTITIONS: Final = tag(pb.FetchResponse.PARTITIONS_FIELD_NUMBER, LENGTH_DELIMITED)
_THROTTLE_TIME: Final = tag(pb.FetchResponse.THROTTLE_TIME_MS_FIELD_NUMBER, VARINT)
PARTITIONS_MAX: Final = 100_000
"""Of one message: ten times as many as a request may name."""
_BATCHES: Final = tag(pb.FetchedPartition.BATCHES_FIELD_NUMBER, LENGTH_DELIMITED)


class Fetched(NamedTuple):
    """One partition of a response."""

    part: pb.FetchedPartition  # without its batches
    batches: Buffer = b""

    @property
    def size_bytes(self) -> int:
        return self.part.ByteSize() + len(self.batches)


def encode(answer: Iterable[Fetched]) -> bytes:
    pieces: list[Buffer] = []
    for part, batches in answer:
        head = part.SerializeToString()
        if batches:
            head += varint(_BATCHES) + varint(len(batches))
        pieces += (varint(_PARTITIONS), varint(len(head) + len(batches)), head, batches)
    return b"".join(pieces)


def decode(data: bytes, on_throttled: Callable[[int], object] | None = None) -> list[Fetched]:
    """CorruptMessageError if it is not a valid message. `on_throttled`: gets its throttle_time_ms, if it has one."""
    found: list[Fetched] = []
    view, position = memoryview(data), 0
    while position < len(data):
        what, position = read_varint(data, position, len(data))
        end = skip(data, position, len(data), what)
        if what == _PARTITIONS:
            if len(found) == PARTITIONS_MAX:
                raise CorruptMessageError(f"a response has more than {PARTITIONS_MAX} partitions")
            _, start = read_varint(data, position, end)
            part, batches = _partition(view[start:end])
            found.append(Fetched(part, batches if 2 * len(batches) >= len(data) else bytes(batches)))
        elif what == _THROTTLE_TIME and on_throttled is not None:
            on_throttled(read_varint(data, position, end)[0])
        position = end
    return found


def _partition(data: memoryview) -> Fetched:
    position, end = 0, len(data)
    while position < end:
        what, at = read_varint(data, position, end)
        after = skip(data, at, end, what)
        if what == _BATCHES and after == end:
            _, start = read_varint(data, at, end)
            return Fetched(_parsed(data[:position]), data[start:])
        position = after
    part = _parsed(data)
    batches = part.batches
    part.ClearField("batches")
    return Fetched(part, batches)


def _parsed(data: memoryview) -> pb.FetchedPartition:
    try:
        return pb.FetchedPartition.FromString(bytes(data))
    except DecodeError:
        raise CorruptMessageError("a FetchedPartition cannot be parsed") from None
