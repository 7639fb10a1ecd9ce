"""Streams between the nodes of the quorum: one for each pair, over the Network port.

A link is one incarnation of a stream. Both sides send a Hello first, and check the other's. Then messages flow both
ways, in order; what has not left when the link ends is dropped, never sent on the next one. `send` does not wait: what
the peer does not take soon enough ends the link when it is more than QUEUE_BYTES_MAX.

The node with the greater id dials. The other one dials as well when that has not happened for a while: the greater may
not know of it, because its configuration is the older one. Two young links of one pair cannot both stay: the one that
the greater id dialled does. An older link gives way to a new one: the peer would not dial if it still had it.

Any node that shows the right cluster may link, voter or not: who counts is decided by membership.

A peer that sends what no node of the quorum can have sent loses its link, and is named in the log with its address:
once, and again when it has gone on for REPEATED_S.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from streamlog.errors import CorruptMessageError, InconsistentClusterError, Status, ThrottledError
from streamlog.model import BrokerId
from streamlog.ports import CallInfo, Channel, Clock, Network, Probe, Random, RpcError, Stream
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.messages import Message, PeerHello
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import DirectoryId, Voter

METHOD: Final = "/streamlog.internal.v1.Raft/Exchange"
QUEUE_BYTES_MAX: Final = 32 << 20
"""Several windows (settings.window_bytes)."""
HELLO_TIMEOUT_S: Final = 2.0
REFUSALS: Final = frozenset(
    {
        Status.FAILED_PRECONDITION,
        Status.INVALID_ARGUMENT,
        Status.PERMISSION_DENIED,
        Status.RESOURCE_EXHAUSTED,
        Status.UNAUTHENTICATED,
        Status.UNIMPLEMENTED,
    }
)
"""How a peer that is there says no."""
FIRST_WAIT_S: Final = 0.2
"""What the smaller id of a pair waits at first: where both have just started, the greater one dials within this."""
REPEATED_S: Final = 60.0
"""Between two log lines about one peer's faults."""
FAULTY_PEERS_MAX: Final = 64
"""Remembered for that; a forger may call itself anything."""
SETTLED_S: Final = 1.0
"""A link younger than this may be the twin of one that both sides dialled at the same time."""


class LinkReceiver(Protocol):
    """Gets what the links bring, in order."""

    def link_up(self, node_id: BrokerId, directory_id: DirectoryId) -> None: ...

    def link_down(self, node_id: BrokerId) -> None: ...

    async def received(self, node_id: BrokerId, message: Message) -> None:
        """May wait, and so hold up this link."""
        ...


class PeerLink:
    """One incarnation of a stream to a peer."""

    def __init__(self, peer: BrokerId, address: str, dialled_by: BrokerId, now: float) -> None:
        self.peer = peer
        self.address = address  # of the other end, for logs
        self.dialled_by = dialled_by
        self.fault = ""  # why it was ended, if for what the peer sent
        self.since = now
        self.over = asyncio.Event()
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._filled = asyncio.Event()

    def put(self, data: bytes) -> None:
        self._queue.append(data)
        self._queue_bytes += len(data)
        self._filled.set()
        if self._queue_bytes > QUEUE_BYTES_MAX:
            self.over.set()

    async def pump(self, stream: Stream) -> None:
        """Send what is put in, until the stream breaks: `read` is told why."""
        while True:
            while self._queue:
                data = self._queue.popleft()
                self._queue_bytes -= len(data)
                try:
                    await stream.send(data)
                except RpcError:
                    self.over.set()
                    return
            self._filled.clear()
            await self._filled.wait()

    async def read(self, stream: Stream, receiver: LinkReceiver) -> None:
        """Hand over what comes in, until the stream ends or brings what is not a message."""
        try:
            while (data := await stream.recv()) is not None:
                message = wire.decode_message(data)
                if message is not None:
                    await receiver.received(self.peer, message)
        except RpcError:
            pass
        except CorruptMessageError as error:
            self.fault = str(error)
        finally:
            self.over.set()


class Transport:
    """Owned by the node. `run` lives as long as the node does."""

    def __init__(
        self,
        hello: PeerHello,
        receiver: LinkReceiver,
        *,
        network: Network,
        clock: Clock,
        random: Random,
        probe: Probe,
        settings: QuorumSettings,
    ) -> None:
        self._hello = hello
        self._receiver = receiver
        self._network = network
        self._clock = clock
        self._random = random
        self._probe = probe
        self._reconnect_s = settings.reconnect_ms / 1000
        self._reconnect_max_s = settings.reconnect_max_ms / 1000
        self._second_choice_s = settings.second_choice_ms / 1000
        self._links_max = settings.links_max
        self._named: dict[BrokerId, float] = {}  # peers whose faults were logged, and when; the oldest first
        self._refusals: dict[BrokerId, str] = {}  # by peers that were dialled and did not want us: told once
        self._entries_encoder = wire.EntriesEncoder()
        self._links: dict[BrokerId, PeerLink] = {}
        self._wanted: dict[BrokerId, Voter] = {}
        self._wanted_changed = asyncio.Event()

    # The node's side.

    def send(self, node_id: BrokerId, message: Message) -> None:
        """Queue it, or drop it where there is no link."""
        link = self._links.get(node_id)
        if link is not None:
            link.put(wire.encode_message(message, self._entries_encoder))

    def end_link(self, node_id: BrokerId, fault: str) -> None:
        """What came from it cannot be: the link it came by ends."""
        link = self._links.get(node_id)
        if link is not None:
            link.fault = fault
            link.over.set()

    def want(self, peers: Iterable[Voter]) -> None:
        """Keep links to these; others are kept as long as the other side wants them."""
        self._wanted = {peer.node_id: peer for peer in peers if peer.node_id != self._hello.node_id}
        self._wanted_changed.set()

    async def run(self) -> None:
        """Dial who is wanted, for ever."""
        dialling: dict[BrokerId, tuple[Voter, asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._wanted_changed.clear()
                for node_id, (peer, task) in list(dialling.items()):
                    wanted = self._wanted.get(node_id)
                    # Its directory, which the first leader writes down, is no reason to drop the link.
                    if wanted is None or wanted.address != peer.address:
                        task.cancel()
                        del dialling[node_id]
                for node_id, peer in self._wanted.items():
                    if node_id not in dialling:
                        dialling[node_id] = (peer, group.create_task(self._dial_forever(peer)))
                await self._wanted_changed.wait()

    # Dialling.

    async def _dial_forever(self, peer: Voter) -> None:
        channel = self._network.connect(peer.address)
        pause_s = self._reconnect_s
        # A node that has just started does not wait long: the greater one may be pausing between two attempts.
        waits_s = min(FIRST_WAIT_S, self._second_choice_s)
        try:
            while True:
                if self._hello.node_id < peer.node_id:
                    await asyncio.sleep(waits_s)
                    waits_s = self._second_choice_s
                link = self._links.get(peer.node_id)
                if link is not None:
                    await link.over.wait()
                    pause_s = self._reconnect_s
                elif await self._dial(channel, peer):
                    pause_s = self._reconnect_s
                await asyncio.sleep(self._random.uniform(0.5, 1.0) * pause_s)
                pause_s = min(2 * pause_s, self._reconnect_max_s)
        finally:
            await channel.close()

    async def _dial(self, channel: Channel, peer: Voter) -> bool:
        """Link to the peer, and be back when that is over. True when it was there."""
        there = False
        try:
            async with channel.stream(METHOD) as stream:
                await stream.send(wire.encode_hello(self._hello))
                hello = await self._expect_hello(stream)
                if hello.node_id != peer.node_id:
                    raise InconsistentClusterError(f"{peer.address} is node {hello.node_id}, not {peer.node_id}")
                there = True
                await self._use(stream, hello, self._hello.node_id, peer.address)
        except TimeoutError:
            pass
        except RpcError as error:
            if error.status in REFUSALS:
                self._tell_refusal(peer, error.message)
        except (CorruptMessageError, InconsistentClusterError) as error:
            self._tell_refusal(peer, str(error))
        return there

    def _tell_refusal(self, peer: Voter, reason: str) -> None:
        """A peer that is not there is no news; one that does not want us is, once."""
        if self._refusals.get(peer.node_id) != reason:
            self._refusals[peer.node_id] = reason
            self._probe("quorum_peer_refused", peer=peer.node_id, address=peer.address, reason=reason)

    # Serving.

    async def serve(self, stream: Stream, info: CallInfo) -> None:
        """The handler of METHOD."""
        try:
            hello = await self._expect_hello(stream)
        except TimeoutError:
            return
        if hello.node_id not in self._links and len(self._links) >= self._links_max:
            raise ThrottledError(f"{self._links_max} nodes are linked to the quorum already", limit=self._links_max)
        await stream.send(wire.encode_hello(self._hello))
        await self._use(stream, hello, hello.node_id, info.peer)

    async def _expect_hello(self, stream: Stream) -> PeerHello:
        """The peer's Hello, checked. TimeoutError, RpcError, CorruptMessageError, InconsistentClusterError."""
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            data = await stream.recv()
        hello = wire.decode_hello(data or b"")
        if hello.cluster_id != self._hello.cluster_id:
            raise InconsistentClusterError(
                f"node {hello.node_id} is of cluster {hello.cluster_id!r}, this one of {self._hello.cluster_id!r}"
            )
        if hello.node_id == self._hello.node_id:
            raise InconsistentClusterError(f"two nodes of the quorum call themselves {hello.node_id}")
        return hello

    # Links.

    async def _use(self, stream: Stream, hello: PeerHello, dialled_by: BrokerId, address: str) -> None:
        """Exchange messages until one side ends it."""
        link = PeerLink(hello.node_id, address, dialled_by, self._clock.monotonic())
        if not self._attach(link, hello.directory_id):
            return
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(link.pump(stream)), group.create_task(link.read(stream, self._receiver))]
                await link.over.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self._detach(link)
            if link.fault:
                self._name_fault(link)

    def _name_fault(self, link: PeerLink) -> None:
        now = self._clock.monotonic()
        if now < self._named.get(link.peer, float("-inf")) + REPEATED_S:
            return
        self._named.pop(link.peer, None)
        if len(self._named) >= FAULTY_PEERS_MAX:
            oldest = next(iter(self._named))
            if now < self._named[oldest] + REPEATED_S:
                return  # somebody makes up names
            del self._named[oldest]
        self._named[link.peer] = now
        self._probe("quorum_peer_dropped", peer=link.peer, address=link.address, reason=link.fault)

    def _attach(self, link: PeerLink, directory_id: DirectoryId) -> bool:
        """Make it the link to its peer; False when the one that is there stays."""
        old = self._links.get(link.peer)
        if old is not None:
            young = link.since - old.since < SETTLED_S
            if young and old.dialled_by > link.dialled_by:
                return False
            self._detach(old)
        self._links[link.peer] = link
        self._refusals.pop(link.peer, None)
        self._receiver.link_up(link.peer, directory_id)
        return True

    def _detach(self, link: PeerLink) -> None:
        link.over.set()
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._receiver.link_down(link.peer)
