"""The body of a request: bounded in bytes and in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from streamlog.aio.timeouts import timeout
from streamlog.daemon.http.api.api_errors import ApiError
from streamlog.errors import InvalidRequestError, RequestTimedOutError, RequestTooLargeError

BODY_S: Final = 15.0
"""A body arrives within this time."""
SKIP_S: Final = 5.0
SKIP_BYTES_MAX: Final = 64 << 20

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Disconnected(Exception):
    """The client has closed the connection: no response is wanted."""


class RequestBody:
    """ASGI's `receive` of one request."""

    def __init__(self, headers: Mapping[bytes, bytes], receive: Receive) -> None:
        self._headers = headers
        self._receive = receive
        declared = headers.get(b"content-length")
        self._declared = None if declared is None else int(declared)  # h11 has checked that it is a number
        self.is_read = self._declared == 0 or (declared is None and b"transfer-encoding" not in headers)

    async def read(self, bytes_max: int) -> bytes:
        """ApiError, Disconnected."""
        if self._declared is not None and self._declared > bytes_max:
            raise _too_large(f"{self._declared:,} bytes", bytes_max)
        body = bytearray()
        try:
            async with timeout(BODY_S):
                while not self.is_read:
                    body += await self._next()
                    if len(body) > bytes_max:
                        raise _too_large(f"more than {bytes_max:,} bytes", bytes_max)
        except TimeoutError:
            raise ApiError.of(
                RequestTimedOutError(
                    f"the request's body did not arrive within {BODY_S:g} s ({len(body):,} bytes did); nothing was done"
                ),
                408,
            ) from None
        return bytes(body)

    async def skip(self) -> None:
        """Within bounds, before an error is sent: many clients look at no response before they have sent everything."""
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            return
        skipped = 0
        try:
            async with timeout(SKIP_S):
                while not self.is_read and skipped < SKIP_BYTES_MAX:
                    skipped += len(await self._next())
        except TimeoutError:
            pass

    async def wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _next(self) -> bytes:
        """Disconnected."""
        message = await self._receive()
        if message["type"] != "http.request":
            raise Disconnected
        self.is_read = not message.get("more_body", False)
        return bytes(message.get("body", b""))


def _too_large(what: str, bytes_max: int) -> ApiError:
    return ApiError.of(
        RequestTooLargeError(
            f"the request has {what}, and the node accepts {bytes_max:,} (socket.request.max.bytes); send less at once",
            field="request",
            limit=bytes_max,
        ),
        413,
    )


def check_encoding(headers: Mapping[bytes, bytes]) -> None:
    """ApiError: compressed bodies are not read, as one can be a thousand times larger than it looks."""
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"", b"identity"):
        raise ApiError.of(
            InvalidRequestError("compressed requests are not supported: send it without Content-Encoding"),
            415,
            [(b"accept-encoding", b"identity")],
        )
