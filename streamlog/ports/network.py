"""The network: calls of named methods that carry opaque bytes, with gRPC's semantics.

Contract
- One server an address; methods are named `/package.Service/Method`. A stock gRPC client of any language can call
  a method that is served here: the bytes are the protobuf messages themselves.
- A stream is FIFO in each direction and ends once, with a status. Nothing is resent or replayed after a break.
- `send` waits while the peer does not read (back-pressure); nothing is buffered without bound.
- A client that cancels, times out or vanishes cancels the handler.
- A handler ends a call with an error by raising RpcError, or a StreamlogError, which is answered by its status and
  message. Anything else is a bug: the server's owner is told (`on_crash` of the adapters), the caller gets UNKNOWN
  without a word of the cause.
- At most one `send` and one `recv` of a stream at a time, no `send` after `done_sending`; InvariantError otherwise.
- Cancelling a `send` or `recv` (a time-out around it, too) ends the call on the calling side and the stream's use on
  the serving side: nobody could tell which message was lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, field

from streamlog.errors import Status, StreamlogError, grpc_status

CRASHED: Final = "the handler failed"
"""All that a caller is told of a handler that raised what it must not."""


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


class CallInfo(Struct, frozen=True, kw_only=True):
    """What a handler may know of its caller."""

    method: str
    peer: str  # address of the other end, for logs
    metadata: Mapping[str, str] = field(default_factory=dict)
    identity: str | None = None  # subject of the verified client certificate
    deadline: float | None = None  # on Clock.monotonic(); None: the caller waits for ever
    # What the transport has to say of the call beyond its handler; None: nothing, the call is over with its handler.
    transport: CallTransport | None = None

    def when_over(self, work: Callable[[], object]) -> bool:
        """`work` is called once nothing of the call is held any more, its answer neither; False: it never is."""
        if self.transport is None:
            return False
        self.transport.when_over(work)
        return True

    def abandon(self) -> None:
        """Let go of the call, and of an answer that is not taken: the caller gets CANCELLED, if anything."""
        if self.transport is not None:
            self.transport.abandon()


class CallTransport(Protocol):
    def when_over(self, work: Callable[[], object], /) -> None: ...

    def abandon(self) -> None: ...


class Stream(Protocol):
    """One end of a call that carries many messages each way."""

    async def send(self, message: bytes) -> None:
        """Hand one message to the transport; waits while the peer's window is full. RpcError once it is over."""
        ...

    async def recv(self) -> bytes | None:
        """The next message; None when the other side has ended cleanly; RpcError when the call failed."""
        ...

    async def done_sending(self) -> None:
        """Half-close: the other side's `recv` gives None after what was sent. A no-op on the serving side, which
        ends by returning from its handler.
        """
        ...


UnaryHandler: TypeAlias = Callable[[bytes, CallInfo], Awaitable[bytes]]
StreamHandler: TypeAlias = Callable[[Stream, CallInfo], Awaitable[None]]


class Channel(Protocol):
    """A way to one address; connects when first used and again, with back-off, after a break."""

    async def unary(
        self,
        method: str,
        request: bytes,
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        """RpcError(UNAVAILABLE) at once where the address refuses; DEADLINE_EXCEEDED after `timeout_s`."""
        ...

    def stream(self, method: str, *, metadata: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Stream]:
        """Entering the block raises RpcError where the call cannot be made, or has failed already; leaving it cancels
        the call unless it is over.
        """
        ...

    async def close(self) -> None: ...


class Server(Protocol):
    @property
    def address(self) -> str:
        """`host:port` as bound (the port is the real one where 0 was asked for)."""
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
    ) -> Server:
        """Serve the methods at `host:port`. OSError(EADDRINUSE) where somebody else serves there."""
        ...

    def connect(self, address: str) -> Channel:
        """Never blocks and never fails; the first call does."""
        ...
