"""The ways to the nodes: one channel an address, and a turn for those who do not care which node answers.

The bootstrap list is where a client begins; once it has heard which nodes are alive (`learn`), it asks those, and the
bootstrap list again when none is left. Channels are made when first asked for and stay until `close`: their transport
connects, and connects again, by itself, and lets idle connections go.

Owned by one client; nothing here is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from streamlog.api.calls import Message, Response, UnaryCall
from streamlog.client.connection.backoff import Backoff
from streamlog.errors import ClientClosedError, NetworkError, RequestTimedOutError, StreamlogError
from streamlog.ports import Channel, Clock, Network, Random

# How long a node may take that is only one of several which could answer.
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
        """`bootstrap`: addresses, `host:port`; empty where whoever owns this will `learn` them before it asks."""
        self._network = network
        self._clock = clock
        self._bootstrap = tuple(bootstrap)
        self._backoff = backoff or Backoff(random)
        self._channels: dict[str, Channel] = {}
        self._live: tuple[str, ...] = ()
        # Clients begin at different nodes, so that not all of them lean on the first of the list.
        self._turn = random.randrange(1 << 16)
        self._closed = False

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return self._bootstrap

    def channel(self, address: str) -> Channel:
        """To one node; the same as long as this lives. ClientClosedError."""
        if self._closed:
            raise ClientClosedError("the client is closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._network.connect(address)
        return channel

    def learn(self, addresses: Iterable[str]) -> None:
        """All nodes that are alive; none: as before."""
        self._live = tuple(addresses) or self._live

    def next_address(self) -> str:
        """A node to ask, another one each time. NetworkError where none is known."""
        # The bootstrap list has its turn too: all nodes that were alive may have moved since.
        known = self._live + tuple(one for one in self._bootstrap if one not in self._live)
        if not known:
            raise NetworkError("no node is known: bootstrap.servers is empty")
        self._turn += 1
        return known[self._turn % len(known)]

    async def ask(self, call: UnaryCall[Response], request: Message, *, address: str, timeout_s: float) -> Response:
        """One node. StreamlogError."""
        return await call(self.channel(address), request, timeout_s=timeout_s)

    async def ask_any(self, call: UnaryCall[Response], request: Message, *, timeout_s: float) -> Response:
        """One node after the other until one answers; what it answers, an error too, is the answer.

        For requests that may be carried out twice: a node may have done so before its connection broke.
        RequestTimedOutError after `timeout_s`, which tells the last node's trouble.
        """
        deadline = self._clock.monotonic() + timeout_s
        trouble: StreamlogError | None = None
        attempt = 0
        while (left_s := deadline - self._clock.monotonic()) > 0:
            address = self.next_address()
            try:
                return await self.ask(call, request, address=address, timeout_s=min(left_s, ONE_NODE_TIMEOUT_S))
            except (NetworkError, RequestTimedOutError) as error:
                trouble = error
            attempt += 1
            if attempt % max(1, len(self._live) or len(self._bootstrap)) == 0:
                await self._backoff.wait(attempt, left_s=deadline - self._clock.monotonic())
        raise RequestTimedOutError(f"no node answered within {timeout_s:.3g} s" + (f": {trouble}" if trouble else ""))

    async def close(self) -> None:
        """Calls that go on end. Idempotent."""
        self._closed = True
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()
