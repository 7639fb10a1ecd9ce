"""Calls to a group's coordinator: looked up once, followed when it moves.

    (unknown) --FindCoordinator at any node--> an address --NOT_COORDINATOR with an address--> another address
        ^______ NOT_COORDINATOR without one, no coordinator yet, a broken connection ______|

COORDINATOR_LOAD_IN_PROGRESS: the address is right; the call is retried there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from streamlog.api.calls import Message, UnaryCall, unary
from streamlog.api.errors import from_message
from streamlog.api.pb import groups_pb2 as pb
from streamlog.client.connection.addresses import address_of
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import ONE_NODE_TIMEOUT_S, Connections
from streamlog.errors import (
    CoordinatorLoadInProgressError,
    NotCoordinatorError,
    RequestTimedOutError,
    StreamlogError,
    UnknownServerError,
)
from streamlog.ports import Clock

Response = TypeVar("Response", bound=Message)

_FIND: Final = unary("streamlog.v1.Groups/FindCoordinator", pb.FindCoordinatorResponse)


class Coordinator:
    """The coordinator of one group; for any number of concurrent calls."""

    def __init__(
        self, group: str, connections: Connections, clock: Clock, backoff: Backoff, *, request_timeout_s: float
    ) -> None:
        self.group = group
        self._connections = connections
        self._clock = clock
        self._backoff = backoff
        # A coordinator whose machine failed does not answer: after this it is looked up again.
        self._attempt_s = min(request_timeout_s, ONE_NODE_TIMEOUT_S)
        self._address: str | None = None

    async def find(self, *, timeout_s: float) -> str:
        """Its address, as known or from any node. RequestTimedOutError, and errors that are not retriable."""
        deadline = self._clock.monotonic() + timeout_s
        attempt = 0
        while self._address is None:
            try:
                self._address = await self.look_up(timeout_s=max(0.001, deadline - self._clock.monotonic()))
            except StreamlogError as error:
                attempt += 1
                left_s = deadline - self._clock.monotonic()
                if not error.retriable:
                    raise
                if left_s <= 0:
                    raise self._timed_out(timeout_s, error) from error
                await self._backoff.wait(attempt, left_s=left_s)
        return self._address

    async def look_up(self, *, timeout_s: float) -> str:
        """The present address, from any node; it is not kept. StreamlogError (CoordinatorNotAvailableError)."""
        request = pb.FindCoordinatorRequest(groups=[self.group])
        response = await self._connections.ask_any(_FIND, request, timeout_s=timeout_s)
        if len(response.coordinators) != 1:
            raise UnknownServerError(
                f"a node returned {len(response.coordinators)} coordinators for one group, {self.group!r}"
            )
        (found,) = response.coordinators
        if found.HasField("error"):
            raise from_message(found.error)
        return address_of(found.node)

    def learn(self, error: StreamlogError) -> bool:
        """Take note of a failed call. Whether the new coordinator is known, and can be called at once."""
        if isinstance(error, CoordinatorLoadInProgressError):
            return False
        before, self._address = self._address, None
        address = error.details.get("address") if isinstance(error, NotCoordinatorError) else None
        if isinstance(address, str) and address and address != before:
            self._address = address
            return True
        return False

    async def ask(
        self,
        call: UnaryCall[Response],
        make_request: Callable[[], Message],
        *,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> Response:
        """Call the coordinator, with retries. `make_request`: called for each attempt, since a member's epoch may rise
        meanwhile. The request may be carried out twice. RequestTimedOutError, and errors that are not retriable.
        """
        deadline = self._clock.monotonic() + timeout_s
        attempt = 0
        while True:
            left_s = max(0.001, deadline - self._clock.monotonic())
            try:
                address = await self.find(timeout_s=left_s)
                left_s = max(0.001, deadline - self._clock.monotonic())
                return await self._connections.ask(
                    call, make_request(), address=address, timeout_s=min(left_s, self._attempt_s), metadata=metadata
                )
            except StreamlogError as error:
                left_s = deadline - self._clock.monotonic()
                if not error.retriable:
                    raise
                if left_s <= 0:
                    raise self._timed_out(timeout_s, error) from error
                attempt += 1
                if not self.learn(error) or attempt > 1:
                    await self._backoff.wait(attempt, left_s=left_s)

    def _timed_out(self, timeout_s: float, error: StreamlogError) -> StreamlogError:
        message = f"the coordinator of group {self.group!r} did not answer within {timeout_s:.3g} s"
        return RequestTimedOutError(f"{message}: {error}")
