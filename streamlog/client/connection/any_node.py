"""Calls of the admin client, to whichever node answers.

Any node answers for the whole cluster, and forwards what it cannot answer itself. So calls go to the node that answered
last, and to another one when that fails, does not answer, or cannot forward the call now:

    NETWORK_ERROR, REQUEST_TIMED_OUT, BROKER_NOT_AVAILABLE      another node
    NOT_CONTROLLER, QUORUM_UNAVAILABLE                          another node: the metadata quorum is electing
    SSL_AUTHENTICATION_FAILED, this client refuses the node     another node; raised once it refuses them all
    any other error                                             raised

Attempts are separated by a back-off. After the timeout the last error is raised; where that is a timeout of one node,
which may only have had too little time, with the error before it; where the last node was not reached, what another one
returned before. A call whose response was lost may have been carried
out, and is retried all the same, as Kafka's clients do: it may then find its own work done (TOPIC_ALREADY_EXISTS).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Final, TypeVar

from msgspec import Struct

from streamlog.api.calls import Message, UnaryCall
from streamlog.client.connection.authentication import is_authentication_failure
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import Connections
from streamlog.errors import (
    BrokerNotAvailableError,
    InvariantError,
    NetworkError,
    NotControllerError,
    QuorumUnavailableError,
    RequestTimedOutError,
    SslAuthenticationError,
    StreamlogError,
)
from streamlog.ports import Clock

Response = TypeVar("Response", bound=Message)

_TRY_ANOTHER_NODE: Final = (
    BrokerNotAvailableError,
    NetworkError,
    NotControllerError,
    QuorumUnavailableError,
    RequestTimedOutError,
)


class AskTimes(Struct, frozen=True, kw_only=True):
    """Seconds."""

    total_s: float = 60.0  # default.api.timeout.ms: of one call, with its retries
    attempt_s: float = 30.0  # request.timeout.ms: of one attempt
    unreachable_s: float = 60.0  # of one call while no node at all can be reached


class AnyNode:
    """For any number of concurrent calls. The caller closes the connections."""

    def __init__(self, connections: Connections, clock: Clock, backoff: Backoff, times: AskTimes) -> None:
        self._connections = connections
        self._clock = clock
        self._backoff = backoff
        self._times = times
        self._address: str | None = None  # of the node that answered last

    async def ask(self, call: UnaryCall[Response], request: Message, *, timeout_s: float | None = None) -> Response:
        """StreamlogError: a node's, or why no node answered. `timeout_s`: instead of total_s and attempt_s."""
        now = self._clock.monotonic()
        deadline = now + (self._times.total_s if timeout_s is None else timeout_s)
        attempt_s = self._times.attempt_s if timeout_s is None else timeout_s
        unreachable_at = now + self._times.unreachable_s
        refusal: StreamlogError | None = None  # the last error that a node returned
        refused: set[str] = set()  # nodes whose certificates this client refuses
        for attempt in itertools.count(1):
            address = self._address or self._connections.next_address()
            try:
                wait_s = max(0.001, min(attempt_s, deadline - self._clock.monotonic()))
                response = await self._connections.ask(call, request, address=address, timeout_s=wait_s)
            except _TRY_ANOTHER_NODE as error:
                self._address = None
                if is_authentication_failure(error):
                    refused.add(address)
                    if refused.issuperset(self._connections.known):
                        raise
                refusal = refusal if isinstance(error, (NetworkError, RequestTimedOutError)) else error
                await self._backoff.wait(attempt, left_s=deadline - self._clock.monotonic())
                now = self._clock.monotonic()
                no_node = isinstance(error, NetworkError) and refusal is None
                if now >= deadline or (no_node and now >= unreachable_at):
                    raise self._reason(error, refusal) from error
            else:
                self._address = address
                return response
        raise InvariantError("itertools.count ended")

    def learn(self, addresses: Iterable[str]) -> None:
        """All active nodes, to be called as well."""
        self._connections.learn(addresses)

    def _reason(self, error: StreamlogError, refusal: StreamlogError | None) -> StreamlogError:
        if isinstance(error, RequestTimedOutError) and refusal is not None:
            return RequestTimedOutError(f"{error}; before that: {refusal}", **error.details)
        if not isinstance(error, NetworkError):
            return error
        if isinstance(error, SslAuthenticationError):
            return error
        if refusal is not None:
            return refusal
        known = ", ".join(self._connections.bootstrap)
        return BrokerNotAvailableError(f"no node answers at {known}{_why(error, known)}", address=known)


def _why(error: NetworkError, address: str) -> str:
    """In parentheses, where `address` is the only one and it is known why there is no connection to it."""
    if re.search(f"(resolving|resolution failed for) {re.escape(address)}", error.message):
        return " (its host name cannot be resolved)"
    _, connection, reason = error.message.partition(f"no connection to {address}: ")
    return f" ({reason})" if connection else ""
