"""The calling side of a gRPC service over the network port: messages instead of bytes, our errors instead of statuses.

    METADATA = unary("streamlog.v1.Batches/Metadata", pb.MetadataResponse)
    response = await METADATA(channel, request, timeout_s=5)

    async with stream(channel, "streamlog.v1.Batches/ProduceStream", pb.ProduceStreamResponse) as calls:
        await calls.send(message); answer = await calls.recv()

Callers get StreamlogError only. An error that a node raised has its own class. Errors of the transport (connection
refused or lost, deadline exceeded) are NetworkError or RequestTimedOutError; for both the outcome is unknown: the
request may have been carried out. `was_sent` is False where that is impossible.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from streamlog.api.errors import from_rpc
from streamlog.errors import (
    CorruptMessageError,
    NetworkError,
    RequestTimedOutError,
    RequestTooLargeError,
    SslAuthenticationError,
    Status,
    StreamlogError,
    UnknownServerError,
    UnsupportedVersionError,
)
from streamlog.ports import Channel, HandshakeError, NotSentError, RpcError, Stream

__all__ = [
    "CallStream",
    "Message",
    "Response",
    "UnaryCall",
    "call_error",
    "decoded_stream",
    "stream",
    "too_large",
    "unary",
    "was_sent",
]

Response = TypeVar("Response", bound=Message)
Answer = TypeVar("Answer")

_BROKEN: Final = frozenset({Status.UNAVAILABLE, Status.CANCELLED})
_TOO_LARGE: Final = re.compile(r"(CLIENT: )?Received message larger than max \((\d+) vs\. (\d+)\)")
"""The port's refusal of a message, in gRPC's words, at the side that received it; it has no details."""


def call_error(error: RpcError, method: str) -> StreamlogError:
    """The error of a failed call, for its caller."""
    raised = from_rpc(error)
    if isinstance(raised, StreamlogError):
        return raised
    if isinstance(error, HandshakeError):
        failure = SslAuthenticationError(error.message)
        return failure.permanent() if error.is_refused_here else failure
    if error.status in _BROKEN:
        return NetworkError(f"{method}: {error.message or 'the connection was lost'}")
    if error.status is Status.DEADLINE_EXCEEDED:
        return RequestTimedOutError(f"{method} got no response within its timeout")
    if error.status is Status.UNIMPLEMENTED:
        return UnsupportedVersionError(
            f"the server does not implement {method}: it runs another release, or it is not a streamlog node"
        )
    return too_large(error, method) or UnknownServerError(f"{method}: {error}", code=error.status.name)


def too_large(error: RpcError, method: str, caller: str = "this client") -> RequestTooLargeError | None:
    """Of a message that its receiver refused for its size; None: another error."""
    found = _TOO_LARGE.search(error.message) if error.status is Status.RESOURCE_EXHAUSTED else None
    if found is None:
        return None
    size, limit = int(found[2]), int(found[3])
    if found[1] is not None:
        return RequestTooLargeError(
            f"{method}: the response has {size:,} bytes, and {caller} accepts {limit:,}; request less at once",
            limit=limit,
        )
    return RequestTooLargeError(
        f"{method}: the request has {size:,} bytes, and the node accepts {limit:,} (socket.request.max.bytes); send "
        "less at once: a producer's max.request.size must not be larger",
        limit=limit,
    )


def was_sent(error: StreamlogError) -> bool:
    """Whether the request of a call that failed with this error may have left this process."""
    return not isinstance(error.__cause__, NotSentError)


class UnaryCall(Generic[Response]):
    """One method: a request, a response."""

    def __init__(self, method: str, response_type: type[Response]) -> None:
        self._method = method
        self._response_type = response_type

    @property
    def method(self) -> str:
        """Such as `streamlog.v1.Batches/Metadata`."""
        return self._method

    async def __call__(
        self, channel: Channel, request: Message, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> Response:
        """StreamlogError."""
        data = request.SerializeToString()
        try:
            answer = await channel.unary(f"/{self._method}", data, timeout_s=timeout_s, metadata=metadata)
        except RpcError as error:
            raise call_error(error, self._method) from error
        return _decoded(self._response_type.FromString, answer, self._method)


def unary(method: str, response_type: type[Response]) -> UnaryCall[Response]:
    return UnaryCall(method, response_type)


class CallStream(Generic[Answer]):
    """The calling end of a stream."""

    def __init__(self, stream: Stream, method: str, decode: Callable[[bytes], Answer]) -> None:
        """`decode`: raises DecodeError or CorruptMessageError for invalid responses."""
        self._stream = stream
        self._method = method
        self._decode = decode

    async def send(self, request: Message) -> None:
        """Waits while the node does not read. StreamlogError once the call has ended."""
        try:
            await self._stream.send(request.SerializeToString())
        except RpcError as error:
            raise call_error(error, self._method) from error

    async def recv(self) -> Answer | None:
        """None once the node has ended the call. StreamlogError if it failed."""
        try:
            data = await self._stream.recv()
        except RpcError as error:
            raise call_error(error, self._method) from error
        return None if data is None else _decoded(self._decode, data, self._method)

    async def done_sending(self) -> None:
        await self._stream.done_sending()


def stream(
    channel: Channel, method: str, response_type: type[Response], *, metadata: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[CallStream[Response]]:
    """Leaving the block ends the call. StreamlogError if it cannot be made."""
    return decoded_stream(channel, method, response_type.FromString, metadata=metadata)


@asynccontextmanager
async def decoded_stream(
    channel: Channel, method: str, decode: Callable[[bytes], Answer], *, metadata: Mapping[str, str] | None = None
) -> AsyncIterator[CallStream[Answer]]:
    """As `stream`, with `decode` for responses; it raises DecodeError or CorruptMessageError for invalid ones."""
    try:
        async with channel.stream(f"/{method}", metadata=metadata) as calls:
            yield CallStream(calls, method, decode)
    except RpcError as error:
        raise call_error(error, method) from error


def _decoded(decode: Callable[[bytes], Answer], data: bytes, method: str) -> Answer:
    try:
        return decode(data)
    except (DecodeError, CorruptMessageError):
        raise UnsupportedVersionError(
            f"{method}: the response cannot be parsed; the server may not be a streamlog node"
        ) from None
