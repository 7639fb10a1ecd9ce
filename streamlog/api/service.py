"""A gRPC service as typed asynchronous methods, over the network port's handlers of bytes.

    Service(admin_pb2.DESCRIPTOR.services_by_name["Admin"], clock, [
        unary("CreateTopics", pb.CreateTopicsRequest, pb.CreateTopicsResponse, admin.create_topics),
        ...
    ])

Three kinds: `unary`, `downstream` (one request, a stream of responses) and `duplex` (streams both ways). A service is
checked against its descriptor when it is constructed: it has every method of the proto file, with its messages and
kind, and no other. So a missing method fails at start, not when it is called.

Common to all methods:

- A request above the method's limit is refused before it is parsed (parsing may take thirty times its bytes), and a
  large one with too many entries in its lists (`entry_counts`).
  Unparsable messages, text that is not UTF-8, and numbers out of bounds (`bounds`) are INVALID_REQUEST.
- A call with a guard (`CallInfo.guard`): each message is admitted before the handler gets it, and what the caller may
  not see is removed from responses. A call with an audit (`CallInfo.audit`): it gets each message before that.
- A call whose deadline passed before it begins is dropped. The port handles cancellation: it cancels the handler.
- A StreamlogError, also one from a TaskGroup, ends the call with its status and google.rpc.Status
  (streamlog.api.errors). An RpcError ends it unchanged. Anything else is a bug, and raised to the port's owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar, cast

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from streamlog.api.bounds import check_bounds
from streamlog.api.entry_counts import COUNTED_BYTES_MIN, check_entry_counts
from streamlog.api.errors import TOO_LATE, to_rpc
from streamlog.errors import (
    CorruptMessageError,
    InvalidRequestError,
    InvariantError,
    RequestTimedOutError,
    RequestTooLargeError,
    StreamlogError,
)
from streamlog.ports import CallAudit, CallGuard, CallInfo, Clock, RpcError, Stream, StreamHandler, UnaryHandler

# Default limit of a request, in bytes. Parsed, 1 MiB of the smallest submessages takes some 30 MiB of memory until the
# call ends.
REQUEST_BYTES_MAX: Final = 1 << 20

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Input = TypeVar("Input")
Answer = TypeVar("Answer")


class Call(Struct, frozen=True):
    """What a method may know about its call."""

    info: CallInfo
    clock: Clock

    def remaining_s(self) -> float | None:
        """Seconds until the deadline, not below 0; None: no deadline."""
        return None if self.info.deadline is None else max(0.0, self.info.deadline - self.clock.monotonic())

    def check_deadline(self) -> None:
        """RpcError once the deadline has passed."""
        if self.remaining_s() == 0:
            message = "the deadline passed before the call began: nothing was done"
            raise to_rpc(RequestTimedOutError(message, **{TOO_LATE: "dropped"}))


class Requests(Generic[Request]):
    """Received from the caller."""

    def __init__(
        self,
        stream: Stream,
        request_type: type[Request],
        bytes_max: int,
        guard: CallGuard | None = None,
        audit: CallAudit | None = None,
    ) -> None:
        self._stream = stream
        self._guard = guard
        self._audit = audit
        self._type = request_type
        self._bytes_max = bytes_max

    async def recv(self) -> Request | None:
        """The next one; None after the last one. InvalidRequestError, RequestTooLargeError, RpcError."""
        data = await self._stream.recv()
        if data is None:
            return None
        message = parse(self._type, data, self._bytes_max)
        if self._audit is not None:
            self._audit.request(message)
        if self._guard is not None:
            self._guard.admit(message)
        if self._audit is not None:
            self._audit.admitted(message)
        return message


class Responses(Generic[Response]):
    """Sent to the caller."""

    def __init__(self, stream: Stream, guard: CallGuard | None = None) -> None:
        self._stream = stream
        self._guard = guard

    async def send(self, message: Response) -> None:
        """Waits while the caller does not read. RpcError once it has disconnected."""
        if self._guard is not None:
            self._guard.reveal(message)
        await self._stream.send(message.SerializeToString())

    async def send_encoded(self, data: bytes) -> None:
        """As `send`, of an encoded message."""
        await self._stream.send(data)


UnaryMethod: TypeAlias = Callable[[Request, Call], Awaitable[Response]]
EncodedMethod: TypeAlias = Callable[[Request, Call], Awaitable[bytes]]  # returns an encoded response
DownstreamMethod: TypeAlias = Callable[[Request, Responses[Response], Call], Awaitable[None]]
DuplexMethod: TypeAlias = Callable[[Requests[Request], Responses[Response], Call], Awaitable[None]]


class Method(Struct, frozen=True, kw_only=True):
    """One method, made by the functions below."""

    name: str  # as in the proto file
    request_type: type[Message]
    response_type: type[Message]
    client_streaming: bool
    server_streaming: bool
    on_unary: Callable[[bytes, Call], Awaitable[bytes]] | None  # one of the two
    on_stream: Callable[[Stream, Call], Awaitable[None]] | None

    def matches(self, method: MethodDescriptor) -> bool:
        return (
            method.input_type.full_name == self.request_type.DESCRIPTOR.full_name
            and method.output_type.full_name == self.response_type.DESCRIPTOR.full_name
            and method.client_streaming == self.client_streaming
            and method.server_streaming == self.server_streaming
        )


def unary(
    name: str,
    request_type: type[Request],
    response_type: type[Response],
    handler: UnaryMethod[Request, Response] | EncodedMethod[Request],
    *,
    request_bytes_max: int = REQUEST_BYTES_MAX,
) -> Method:
    """One request, one response."""

    async def serve(data: bytes, call: Call) -> bytes:
        guard, audit = call.info.guard, call.info.audit
        request = parse(request_type, data, request_bytes_max)
        if audit is not None:
            audit.request(request)
        if guard is not None:
            guard.admit(request)
        answer = await handler(request, call)
        if isinstance(answer, bytes):
            return answer
        if guard is not None:
            guard.reveal(answer)
        return answer.SerializeToString()

    return Method(
        name=name,
        request_type=request_type,
        response_type=response_type,
        client_streaming=False,
        server_streaming=False,
        on_unary=serve,
        on_stream=None,
    )


def downstream(
    name: str,
    request_type: type[Request],
    response_type: type[Response],
    handler: DownstreamMethod[Request, Response],
    *,
    request_bytes_max: int = REQUEST_BYTES_MAX,
) -> Method:
    """One request, then responses until the handler returns."""

    async def serve(stream: Stream, call: Call) -> None:
        guard = call.info.guard
        request = await Requests(stream, request_type, request_bytes_max, guard, call.info.audit).recv()
        if request is None:
            raise InvalidRequestError("the call ended without a request", field="request")
        await handler(request, Responses(stream, guard), call)

    return Method(
        name=name,
        request_type=request_type,
        response_type=response_type,
        client_streaming=False,
        server_streaming=True,
        on_unary=None,
        on_stream=serve,
    )


def duplex(
    name: str,
    request_type: type[Request],
    response_type: type[Response],
    handler: DuplexMethod[Request, Response],
    *,
    request_bytes_max: int = REQUEST_BYTES_MAX,
) -> Method:
    """Requests and responses until the handler returns."""

    async def serve(stream: Stream, call: Call) -> None:
        guard = call.info.guard
        requests = Requests(stream, request_type, request_bytes_max, guard, call.info.audit)
        await handler(requests, Responses(stream, guard), call)

    return Method(
        name=name,
        request_type=request_type,
        response_type=response_type,
        client_streaming=True,
        server_streaming=True,
        on_unary=None,
        on_stream=serve,
    )


class Service:
    """One service of one server: its handlers for `Network.listen`."""

    def __init__(
        self, descriptor: ServiceDescriptor, clock: Clock, methods: Iterable[Method], *, name: str | None = None
    ) -> None:
        """InvariantError if the methods are not those of the proto file. `name`: under which it is served, if not the
        descriptor's.
        """
        self.name = name or descriptor.full_name
        self.file: FileDescriptor = descriptor.file  # the proto file that declares it
        self._clock = clock
        self._methods = {method.name: method for method in methods}
        self._check(descriptor)

    def _check(self, descriptor: ServiceDescriptor) -> None:
        declared = {method.name: method for method in descriptor.methods}
        both = declared.keys() & self._methods.keys()
        differing = sorted(declared.keys() ^ self._methods.keys())
        differing += sorted(name for name in both if not self._methods[name].matches(declared[name]))
        if differing:
            names = ", ".join(differing)
            raise InvariantError(f"methods of {descriptor.full_name} differ from its proto file: {names}")

    def unary(self) -> Mapping[str, UnaryHandler]:
        """Full name of the method -> handler."""
        served = {name: method.on_unary for name, method in self._methods.items()}
        return {f"/{self.name}/{name}": self._guarded(work) for name, work in served.items() if work is not None}

    def streaming(self) -> Mapping[str, StreamHandler]:
        served = {name: method.on_stream for name, method in self._methods.items()}
        return {f"/{self.name}/{name}": self._guarded(work) for name, work in served.items() if work is not None}

    def _guarded(
        self, work: Callable[[Input, Call], Awaitable[Answer]]
    ) -> Callable[[Input, CallInfo], Awaitable[Answer]]:
        async def handle(request: Input, info: CallInfo) -> Answer:
            call = Call(info, self._clock)
            call.check_deadline()
            try:
                return await work(request, call)
            except StreamlogError as error:
                raise to_rpc(error) from error
            except ExceptionGroup as group:
                answer = _answer_of(group)
                if answer is None:
                    raise
                raise answer from group

        return handle


def parse(message_type: type[Request], data: bytes, bytes_max: int) -> Request:
    """RequestTooLargeError, InvalidRequestError."""
    if len(data) > bytes_max:
        raise RequestTooLargeError(
            f"the request has {len(data)} bytes, this method accepts at most {bytes_max}",
            field="request",
            limit=bytes_max,
        )
    message = message_type()
    try:
        if len(data) >= COUNTED_BYTES_MIN:
            check_entry_counts(message_type, data)
        message.ParseFromString(data)
    except (DecodeError, CorruptMessageError):
        raise InvalidRequestError(
            f"the request cannot be parsed as {message_type.DESCRIPTOR.full_name}, or has text that is not UTF-8",
            field="request",
        ) from None
    check_bounds(message)
    return message


def _answer_of(group: ExceptionGroup[Exception]) -> RpcError | None:
    """The status of a call whose TaskGroup failed: of the first error if all are StreamlogError or RpcError; None: a
    bug.
    """
    _, bugs = group.split((StreamlogError, RpcError))
    if bugs is not None:
        return None
    first: Exception = group
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    return to_rpc(first) if isinstance(first, StreamlogError) else cast(RpcError, first)


def unary_handlers(services: Iterable[Service]) -> dict[str, UnaryHandler]:
    """Of all services, for `Network.listen`."""
    return {name: handler for service in services for name, handler in service.unary().items()}


def stream_handlers(services: Iterable[Service]) -> dict[str, StreamHandler]:
    return {name: handler for service in services for name, handler in service.streaming().items()}
