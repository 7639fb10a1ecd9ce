"""Takes a call of the admin client to a node that answers it.

Any node answers for the whole cluster, and hands on what is not its own to answer. So a call stays with the node that
answered last, and goes on to another when that one is gone, gives no answer, or cannot hand it on now:

    NETWORK_ERROR, REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE      another node
    NOT_CONTROLLER, QUORUM_UNAVAILABLE                          another node: the metadata quorum is electing
    anything else                                               that is the answer

It waits in between, longer each time up to a bound. When the caller's time is over the last reason is told; where that
is a node that gave no answer, which may be for want of time alone, the reason before it as well. A call
whose answer was lost may have been carried out, and is asked again all the same, as Kafka's clients do: what changes
something may then find its own work done (TOPIC_ALREADY_EXISTS).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, TypeVar

from msgspec import Struct

from streamlog.api.calls import Message, UnaryCall
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.errors import (
    BrokerNotAvailableError,
    InvariantError,
    NetworkError,
    NotControllerError,
    QuorumUnavailableError,
    RequestTimedOutError,
    StreamlogError,
)
from streamlog.ports import Clock

Response = TypeVar("Response", bound=Message)

_ELSEWHERE: Final = (
    BrokerNotAvailableError,
    NetworkError,
    NotControllerError,
    QuorumUnavailableError,
    RequestTimedOutError,
)


class AskTimes(Struct, frozen=True, kw_only=True):
    """Seconds."""

    total_s: float = 60.0  # default.api.timeout.ms: of one call, retries and all
    attempt_s: float = 30.0  # request.timeout.ms: of one node's answer
    unreachable_s: float = 60.0  # how long to try while no node at all can be reached


class AnyNode:
    """For any number of calls at a time. The connections are the caller's to close."""

    def __init__(self, connections: Connections, clock: Clock, backoff: Backoff, times: AskTimes) -> None:
        self._connections = connections
        self._clock = clock
        self._backoff = backoff
        self._times = times
        self._address: str | None = None  # of the node that answered last

    async def ask(self, call: UnaryCall[Response], request: Message, *, timeout_s: float | None = None) -> Response:
        """StreamlogError: what a node said, or why none has. `timeout_s`: in the place of total_s and attempt_s."""
        now = self._clock.monotonic()
        deadline = now + (self._times.total_s if timeout_s is None else timeout_s)
        attempt_s = self._times.attempt_s if timeout_s is None else timeout_s
        unreachable_at = now + self._times.unreachable_s
        said: StreamlogError | None = None  # the last reason that a node has given
        for attempt in itertools.count(1):
            address = self._address or self._connections.next_address()
            try:
                wait_s = max(0.001, min(attempt_s, deadline - self._clock.monotonic()))
                response = await self._connections.ask(call, request, address=address, timeout_s=wait_s)
            except _ELSEWHERE as error:
                self._address = None
                said = said if isinstance(error, (NetworkError, RequestTimedOutError)) else error
                await self._backoff.wait(attempt, left_s=deadline - self._clock.monotonic())
                now = self._clock.monotonic()
                if now >= deadline or (isinstance(error, NetworkError) and now >= unreachable_at):
                    raise self._reason(error, said) from error
            else:
                self._address = address
                return response
        raise InvariantError("counting has come to an end")

    def learn(self, addresses: Iterable[str]) -> None:
        """All nodes that are alive, to be asked too."""
        self._connections.learn(addresses)

    def _reason(self, error: StreamlogError, said: StreamlogError | None) -> StreamlogError:
        if isinstance(error, RequestTimedOutError) and said is not None:
            return RequestTimedOutError(f"{error}; before that: {said}", **error.details)
        if not isinstance(error, NetworkError):
            return error
        known = ", ".join(self._connections.bootstrap)
        return BrokerNotAvailableError(f"no node answers at {known}", address=known)
