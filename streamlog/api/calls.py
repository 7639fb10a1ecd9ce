"""The calling side of a gRPC service over the network port: messages instead of bytes, our errors instead of statuses.

    METADATA = unary("streamlog.v1.Batches/Metadata", pb.MetadataResponse)
    response = await METADATA(channel, request, timeout_s=5)

    async with stream(channel, "streamlog.v1.Batches/ProduceStream", pb.ProduceStreamResponse) as calls:
        await calls.send(message); answer = await calls.recv()

Whoever calls sees StreamlogError alone. What a node raised comes back as its own class. What no node said (nobody
listens, the connection broke, the time was up) becomes NetworkError or RequestTimedOutError, and for both the outcome
is unknown: the request may have been carried out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from streamlog.api.errors import from_rpc
from streamlog.errors import (
    CorruptMessageError,
    NetworkError,
    RequestTimedOutError,
    Status,
    StreamlogError,
    UnknownServerError,
    UnsupportedVersionError,
)
from streamlog.ports import Channel, RpcError, Stream

__all__ = ["CallStream", "Message", "Response", "UnaryCall", "call_error", "decoded_stream", "stream", "unary"]

Response = TypeVar("Response", bound=Message)
Answer = TypeVar("Answer")

_BROKEN: Final = frozenset({Status.UNAVAILABLE, Status.CANCELLED})


def call_error(error: RpcError, method: str) -> StreamlogError:
    """What a failed call means to whoever made it."""
    told = from_rpc(error)
    if isinstance(told, StreamlogError):
        return told
    if error.status in _BROKEN:
        return NetworkError(f"{method}: {error.message or 'the connection broke'}")
    if error.status is Status.DEADLINE_EXCEEDED:
        return RequestTimedOutError(f"{method} was not answered in time")
    if error.status is Status.UNIMPLEMENTED:
        return UnsupportedVersionError(f"the node does not know {method}: it is of another release, or no streamlog")
    return UnknownServerError(f"{method}: {error}", code=error.status.name)


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
        """`decode`: DecodeError or CorruptMessageError for what is none of its answers."""
        self._stream = stream
        self._method = method
        self._decode = decode

    async def send(self, request: Message) -> None:
        """Waits while the node does not read. StreamlogError once the call is over."""
        try:
            await self._stream.send(request.SerializeToString())
        except RpcError as error:
            raise call_error(error, self._method) from error

    async def recv(self) -> Answer | None:
        """None when the node has ended the call. StreamlogError when it failed."""
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
    """Leaving the block ends the call. StreamlogError where it cannot be made."""
    return decoded_stream(channel, method, response_type.FromString, metadata=metadata)


@asynccontextmanager
async def decoded_stream(
    channel: Channel, method: str, decode: Callable[[bytes], Answer], *, metadata: Mapping[str, str] | None = None
) -> AsyncIterator[CallStream[Answer]]:
    """As `stream`, of messages that `decode` reads; DecodeError or CorruptMessageError for what is none."""
    try:
        async with channel.stream(f"/{method}", metadata=metadata) as calls:
            yield CallStream(calls, method, decode)
    except RpcError as error:
        raise call_error(error, method) from error


def _decoded(decode: Callable[[bytes], Answer], data: bytes, method: str) -> Answer:
    try:
        return decode(data)
    except (DecodeError, CorruptMessageError):
        raise UnsupportedVersionError(f"{method}: the answer is not understood: the node is no streamlog") from None
