"""The network: calls of named methods that carry opaque bytes, with gRPC's semantics.

Contract
- One server an address; methods are named `/package.Service/Method`. A stock gRPC client of any language can call
  a method that is served here: the bytes are the protobuf messages themselves.
- A stream is FIFO in each direction and ends once, with a status. Nothing is resent or replayed after a break.
- `send` waits while the peer does not read (back-pressure); nothing is buffered without bound.
- A handler of streams under ANY_METHOD serves all methods without a handler; without it gRPC answers UNIMPLEMENTED.
- A client that cancels, times out or vanishes cancels the handler.
- A handler ends a call with an error by raising RpcError, or a StreamlogError, whose status and message are returned.
  Any other exception is a bug: it is passed to the server's owner (`on_crash` of the adapters), the caller gets UNKNOWN
  without the cause.
- At most one `send` and one `recv` of a stream at a time, no `send` after `done_sending`; InvariantError otherwise.
- Cancelling a `send` or `recv` (by a timeout around it, too) ends the call on the calling side and the use of the
  stream on the serving side: which message was lost would be unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, field

from streamlog.errors import Status, StreamlogError, grpc_status
from streamlog.ports.tracing import Span

CRASHED: Final = "the handler failed"
"""The whole message of a call whose handler raised an unexpected exception."""

CLIENT_ID_HEADER: Final = "client-id"
"""In the metadata of a client's calls: its client.id, with what is not ASCII percent-encoded."""
NODE_HEADER: Final = "streamlog-node"
"""In the metadata of a node's calls: its id."""

ANY_METHOD: Final = "*"
"""In the place of a method's name: every method that has no handler of its own."""


class RpcError(Exception):
    """The end of a call that was not OK, on either side. A handler raises it to answer with that status.

    `details_bin` is a serialized google.rpc.Status (trailer `grpc-status-details-bin`), or empty.
    """

    def __init__(self, status: Status, message: str = "", *, details_bin: bytes = b"") -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.details_bin = details_bin

    def __str__(self) -> str:
        return f"{self.status.name}: {self.message}"

    @classmethod
    def of(cls, error: StreamlogError) -> RpcError:
        return cls(grpc_status(error), error.message)


class NotSentError(RpcError):
    """UNAVAILABLE: there was no connection, so nothing of the call has left this process."""


class NoListenerError(NotSentError):
    """UNAVAILABLE: the host has refused the connection, so no process listens at the address."""


class HandshakeError(NotSentError):
    """UNAVAILABLE: a process listens at the address, but no connection could be made with it, as by TLS. Retrying does
    not help until certificates or settings have changed. `is_refused_here`: this end refuses the node; else the node
    has closed the connection, which may have other reasons.
    """

    def __init__(self, status: Status, message: str = "", *, is_refused_here: bool = False) -> None:
        super().__init__(status, message)
        self.is_refused_here = is_refused_here


class CallInfo(Struct, frozen=True, kw_only=True):
    """What a handler knows of its call and caller."""

    method: str
    peer: str  # address of the other end, for logs
    metadata: Mapping[str, str] = field(default_factory=dict)
    listener: str = ""  # by which the caller came; empty: the only one, or a call of the node itself
    identity: str | None = None  # subject of the caller's verified certificate; empty: it has none; None: not TLS
    names: tuple[str, ...] = ()  # alternative names of that certificate
    certificate: bytes | None = None  # that certificate, in PEM
    deadline: float | None = None  # on Clock.monotonic(); None: the caller waits for ever
    # The caller, where it was authenticated.
    principal: str = ""
    # What the caller may do; None: everything.
    guard: CallGuard | None = None
    # How fast the caller may read; None: as fast as it can.
    pace: CallPace | None = None
    # What goes into the audit log of the call; None: nothing.
    audit: CallAudit | None = None
    # The transport's part of the call after its handler has returned; None: the call ends with its handler.
    transport: CallTransport | None = None
    # Of the call, where it is traced.
    span: Span | None = None

    def on_release(self, work: Callable[[], object]) -> bool:
        """Call `work` once the call and its response are released; False: it will not be called."""
        if self.transport is None:
            return False
        self.transport.on_release(work)
        return True

    def abandon(self) -> None:
        """End the call, and drop a response that the caller does not read: the caller gets CANCELLED, if anything."""
        if self.transport is not None:
            self.transport.abandon()


class CallGuard(Protocol):
    """Made by the owner of the server for a call whose caller may not do everything."""

    principal: str  # the caller

    def admit(self, request: object, /) -> None:
        """Called with each parsed message before the handler gets it. StreamlogError."""
        ...

    def reveal(self, response: object, /) -> None:
        """Called with each message before it is sent: removes what the caller may not see."""
        ...

    def topic_refusal(self, operation: str, topic: str, topic_id: bytes | None = None, /) -> StreamlogError | None:
        """None: it may. Without a name, the topic of this id."""
        ...

    def named_refused(self, topic: str, /) -> None:
        """The caller has named this topic and gets `topic_refusal("DESCRIBE", ...)` as its answer: it is counted, which
        that of a list is not.
        """
        ...

    def may_use(self, operation: str, topic: str, /) -> bool:
        """Whether `topic_refusal` is None; nothing is refused yet."""
        ...

    def creation_refusal(self, topic: str, /) -> StreamlogError | None:
        """Whether it may create this topic."""
        ...

    def may_list(self, kind: str, name: str, /) -> bool:
        """Whether it may see a `GROUP` or a `TRANSACTIONAL_ID` in a list."""
        ...


class CallAudit(Protocol):
    """Made by the owner of the server for a call that the audit log covers."""

    principal: str  # the caller, as far as it is known
    guard: CallGuard | None
    login_refused: bool

    def request(self, message: object, /) -> None:
        """Called with each parsed message, before it is admitted."""
        ...

    def admitted(self, message: object, /) -> None:
        """Called after that, where the call is a stream."""
        ...

    def refused(self, operation: str, kind: str, name: str, code: str, /) -> None:
        """The caller lacked this right on a resource; the call may go on with others."""
        ...


class CallPace(Protocol):
    """Made by the owner of the server for a call that reads, whose responses count against a quota."""

    @property
    def active(self) -> bool:
        """Whether there are quotas now: else `bytes_max` and `wait` need not be looked at."""
        ...

    @property
    def bytes_max(self) -> int | None:
        """To which a response should be limited; None: to nothing."""
        ...

    @property
    def must_wait(self) -> bool:
        """Whether `wait` takes time now."""
        ...

    async def wait(self) -> None:
        """Until the next response may be read. To be called while none is held. RpcError where the call is refused."""
        ...


class CallTransport(Protocol):
    def on_release(self, work: Callable[[], object], /) -> None: ...

    def abandon(self) -> None: ...


class Stream(Protocol):
    """One end of a call that carries many messages each way."""

    async def send(self, message: bytes) -> None:
        """Pass one message to the transport; waits while the peer's window is full. RpcError after the call's end."""
        ...

    async def recv(self) -> bytes | None:
        """The next message; None if the other side ended the stream; RpcError if the call failed."""
        ...

    async def done_sending(self) -> None:
        """Half-close: the other side's `recv` returns None after the last message. A no-op on the serving side, which
        ends the stream by returning from its handler.
        """
        ...


UnaryHandler: TypeAlias = Callable[[bytes, CallInfo], Awaitable[bytes]]
StreamHandler: TypeAlias = Callable[[Stream, CallInfo], Awaitable[None]]


class Channel(Protocol):
    """The calling side of one address; connects on first use, and again, with backoff, after a disconnect."""

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        """NotSentError at once if the address refuses; DEADLINE_EXCEEDED after `timeout_s`."""
        ...

    def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Stream]:
        """Entering the block raises RpcError if the call cannot be made, or has failed already; leaving it cancels
        the call unless it has ended.
        """
        ...

    async def close(self) -> None: ...


class Server(Protocol):
    @property
    def address(self) -> str:
        """The bound `host:port`, with the actual port if 0 was requested."""
        ...

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Stop accepting, give running calls `grace_s` seconds, then cancel them."""
        ...


class Network(Protocol):
    async def listen(
        self,
        address: str,
        *,
        unary: Mapping[str, UnaryHandler],
        streaming: Mapping[str, StreamHandler],
        listener: str = "",
    ) -> Server:
        """Serve the methods at `host:port`. `listener`: its name, which handlers find in CallInfo. OSError(EADDRINUSE)
        if the address is in use.
        """
        ...

    def connect(self, address: str) -> Channel:
        """Never blocks and never fails; the first call does."""
        ...
