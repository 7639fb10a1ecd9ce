"""The connections of one client: a channel for each address, and round robin for calls that any node answers.

A client starts with the bootstrap list; once it knows the active nodes (`learn`) it calls these, and the bootstrap list
in turn. Channels are opened on first use and stay open until `close`: their transport connects, reconnects, and closes
idle connections by itself.

Owned by one client; nothing here is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streamlog.api.calls import Message, Response, UnaryCall
from streamlog.client.connection.authentication import is_authentication_failure
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.throttle_time import ThrottleTime
from streamlog.errors import ClientClosedError, NetworkError, RequestTimedOutError, StreamlogError, ThrottledError
from streamlog.ports import Channel, Clock, Network, Random

# Timeout of one attempt where other nodes could answer as well.
ONE_NODE_TIMEOUT_S: Final = 5.0


class Connections:
    def __init__(
        self,
        network: Network,
        clock: Clock,
        random: Random,
        bootstrap: Sequence[str],
        *,
        backoff: Backoff | None = None,
    ) -> None:
        """`bootstrap`: addresses, `host:port`; empty where the owner calls `learn` before the first request."""
        self._network = network
        self._clock = clock
        self._bootstrap = tuple(bootstrap)
        self._backoff = backoff or Backoff(random)
        self._channels: dict[str, Channel] = {}
        self._active: tuple[str, ...] = ()
        # Clients start at different nodes, so that not all of them use the first of the list.
        self._turn = random.randrange(1 << 16)
        self._closed = False
        self.throttle_time = ThrottleTime()

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return self._bootstrap

    def channel(self, address: str) -> Channel:
        """To one node; always the same one. ClientClosedError."""
        if self._closed:
            raise ClientClosedError("the client is closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._network.connect(address)
        return channel

    def learn(self, addresses: Iterable[str]) -> None:
        """All active nodes; an empty list changes nothing."""
        self._active = tuple(addresses) or self._active

    def next_address(self) -> str:
        """A node to call, another one each time. NetworkError where none is known."""
        known = self.known
        if not known:
            raise NetworkError("no node is known: set bootstrap.servers")
        self._turn += 1
        return known[self._turn % len(known)]

    @property
    def known(self) -> tuple[str, ...]:
        """The nodes that may be called."""
        # The bootstrap list has its turn too: all nodes that were active may have moved since.
        return self._active + tuple(one for one in self._bootstrap if one not in self._active)

    async def ask(
        self,
        call: UnaryCall[Response],
        request: Message,
        *,
        address: str,
        timeout_s: float,
        metadata: Mapping[str, str] | None = None,
    ) -> Response:
        """Call one node. StreamlogError."""
        return await call(self.channel(address), request, timeout_s=timeout_s, metadata=metadata)

    async def ask_any(self, call: UnaryCall[Response], request: Message, *, timeout_s: float) -> Response:
        """Call one node after the other until one answers, with a response or with an error.

        For requests that may be carried out twice: a node may have done so before its connection broke. A node that
        is busy, or checks no password of this user for a while, is called again later.
        RequestTimedOutError after `timeout_s`, with the error of the last node. SslAuthenticationError once this client
        refuses them all.
        """
        deadline = self._clock.monotonic() + timeout_s
        last_error: StreamlogError | None = None
        attempt = 0
        refused: set[str] = set()
        while (left_s := deadline - self._clock.monotonic()) > 0:
            address = self.next_address()
            try:
                return await self.ask(call, request, address=address, timeout_s=min(left_s, ONE_NODE_TIMEOUT_S))
            except (NetworkError, RequestTimedOutError, ThrottledError) as error:
                last_error = error
                if is_authentication_failure(error):
                    refused.add(address)
                    if refused.issuperset(self.known):
                        raise
            attempt += 1
            if attempt % max(1, len(self._active) or len(self._bootstrap)) == 0:
                await self._backoff.wait(attempt, left_s=deadline - self._clock.monotonic())
        reason = f": {last_error}" if last_error else ""
        raise RequestTimedOutError(f"no node answered within {timeout_s:.3g} s{reason}")

    async def close(self) -> None:
        """Calls under way fail. Idempotent."""
        self._closed = True
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()
