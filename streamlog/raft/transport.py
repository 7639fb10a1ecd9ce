"""Streams between the nodes of the quorum: one per pair, over the Network port.

A link is one incarnation of a stream. Both sides first send a Hello and check the other's. Then messages flow both
ways, in order; messages queued when the link ends are dropped, never sent on the next one. `send` does not wait: a link
with more than QUEUE_BYTES_MAX queued is closed.

The node with the greater id dials. The other one dials too after `second_choice_ms` without a link: the greater one may
have the older configuration and not know of it. Of two new links of one pair, the one that the greater id dialled is
kept. An established link is replaced by a new one: the peer would not dial if it still had the old one.

Any node of the same cluster may connect, voter or not: which nodes count is decided by core.voter_set_history.

A peer that sends a message that no intact node can send is disconnected and logged with its address, at most once per
REPEATED_S.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

from streamlog.aio.timeouts import timeout
from streamlog.errors import CorruptMessageError, InconsistentClusterError, Status, ThrottledError
from streamlog.model import BrokerId
from streamlog.ports import CallInfo, Channel, Clock, Network, Probe, Random, RpcError, Stream
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.messages import Message, PeerHello
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import DirectoryId, Voter
from streamlog.tls.callers import check_speaker

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
"""How a reachable peer refuses a link."""
FIRST_WAIT_S: Final = 0.2
"""How long the smaller id of a pair waits at first: if both have just started, the greater one dials within this."""
REPEATED_S: Final = 60.0
"""Between two log lines about one peer's faults."""
FAULTY_PEERS_MAX: Final = 64
"""How many of them are remembered: a forger may use any id."""
SETTLED_S: Final = 1.0
"""A younger link may be one of two that both sides dialled at the same time."""


class LinkReceiver(Protocol):
    """Receives the events and messages of all links, in order."""

    def link_up(self, node_id: BrokerId, directory_id: DirectoryId) -> None: ...

    def link_down(self, node_id: BrokerId) -> None: ...

    async def received(self, node_id: BrokerId, message: Message) -> None:
        """May wait, which delays this link."""
        ...


class PeerLink:
    """One incarnation of a stream to a peer."""

    def __init__(self, peer: BrokerId, address: str, dialled_by: BrokerId, now: float) -> None:
        self.peer = peer
        self.address = address  # of the other end, for logs
        self.dialled_by = dialled_by
        self.fault = ""  # why it was closed, if because of a message of the peer
        self.since = now
        self.closed = asyncio.Event()
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._filled = asyncio.Event()

    def put(self, data: bytes) -> None:
        self._queue.append(data)
        self._queue_bytes += len(data)
        self._filled.set()
        if self._queue_bytes > QUEUE_BYTES_MAX:
            self.closed.set()

    async def pump(self, stream: Stream) -> None:
        """Send queued messages until the stream breaks; `read` gets the reason."""
        while True:
            while self._queue:
                data = self._queue.popleft()
                self._queue_bytes -= len(data)
                try:
                    await stream.send(data)
                except RpcError:
                    self.closed.set()
                    return
            self._filled.clear()
            await self._filled.wait()

    async def read(self, stream: Stream, receiver: LinkReceiver) -> None:
        """Pass on incoming messages until the stream ends or one is malformed."""
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
            self.closed.set()


class Transport:
    """Owned by the node. `run` ends with the node."""

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
        self._faults_logged: dict[BrokerId, float] = {}  # peers whose faults were logged, and when; the oldest first
        self._refusals: dict[BrokerId, str] = {}  # by dialled peers that refused us: each reason is logged once
        self._entries_encoder = wire.EntriesEncoder()
        self._links: dict[BrokerId, PeerLink] = {}
        self._wanted: dict[BrokerId, Voter] = {}
        self._wanted_changed = asyncio.Event()

    # Called by the node.

    def send(self, node_id: BrokerId, message: Message) -> None:
        """Queue a message, or drop it if there is no link."""
        link = self._links.get(node_id)
        if link is not None:
            link.put(wire.encode_message(message, self._entries_encoder))

    def end_link(self, node_id: BrokerId, fault: str) -> None:
        """Close the link to a peer that sent an impossible message."""
        link = self._links.get(node_id)
        if link is not None:
            link.fault = fault
            link.closed.set()

    def want(self, peers: Iterable[Voter]) -> None:
        """Keep links to these peers; other links are kept while the other side wants them."""
        self._wanted = {peer.node_id: peer for peer in peers if peer.node_id != self._hello.node_id}
        self._wanted_changed.set()

    async def run(self) -> None:
        """Keep dialling the wanted peers."""
        dialling: dict[BrokerId, tuple[Voter, asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._wanted_changed.clear()
                for node_id, (peer, task) in list(dialling.items()):
                    wanted = self._wanted.get(node_id)
                    # The first leader fills in its directory: no reason to drop the link.
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
        # Just started: do not wait long, since the greater one may be pausing between two attempts.
        waits_s = min(FIRST_WAIT_S, self._second_choice_s)
        try:
            while True:
                if self._hello.node_id < peer.node_id:
                    await asyncio.sleep(waits_s)
                    waits_s = self._second_choice_s
                link = self._links.get(peer.node_id)
                if link is not None:
                    await link.closed.wait()
                    pause_s = self._reconnect_s
                elif await self._dial(channel, peer):
                    pause_s = self._reconnect_s
                await asyncio.sleep(self._random.uniform(0.5, 1.0) * pause_s)
                pause_s = min(2 * pause_s, self._reconnect_max_s)
        finally:
            await channel.close()

    async def _dial(self, channel: Channel, peer: Voter) -> bool:
        """Run a link to the peer until it closes. True if the peer answered."""
        answered = False
        try:
            async with channel.stream(METHOD) as stream:
                await stream.send(wire.encode_hello(self._hello))
                hello = await self._expect_hello(stream)
                if hello.node_id != peer.node_id:
                    raise InconsistentClusterError(f"{peer.address} is node {hello.node_id}, not {peer.node_id}")
                answered = True
                await self._use(stream, hello, self._hello.node_id, peer.address)
        except TimeoutError:
            pass
        except RpcError as error:
            if error.status in REFUSALS:
                self._log_refusal(peer, error.message)
        except (CorruptMessageError, InconsistentClusterError) as error:
            self._log_refusal(peer, str(error))
        return answered

    def _log_refusal(self, peer: Voter, reason: str) -> None:
        """A refusal is logged once per reason; an unreachable peer is not."""
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
        check_speaker(info, hello.node_id)
        if hello.node_id not in self._links and len(self._links) >= self._links_max:
            raise ThrottledError(f"{self._links_max} nodes are connected to this voter already", limit=self._links_max)
        await stream.send(wire.encode_hello(self._hello))
        await self._use(stream, hello, hello.node_id, info.peer)

    async def _expect_hello(self, stream: Stream) -> PeerHello:
        """The peer's Hello, checked. TimeoutError, RpcError, CorruptMessageError, InconsistentClusterError."""
        async with timeout(HELLO_TIMEOUT_S):
            data = await stream.recv()
        hello = wire.decode_hello(data or b"")
        if hello.cluster_id != self._hello.cluster_id:
            raise InconsistentClusterError(
                f"node {hello.node_id} belongs to cluster {hello.cluster_id!r}, this node to {self._hello.cluster_id!r}"
            )
        if hello.node_id == self._hello.node_id:
            raise InconsistentClusterError(f"two nodes of the quorum have the id {hello.node_id}")
        return hello

    # Links.

    async def _use(self, stream: Stream, hello: PeerHello, dialled_by: BrokerId, address: str) -> None:
        """Exchange messages until one side closes the link."""
        link = PeerLink(hello.node_id, address, dialled_by, self._clock.monotonic())
        if not self._attach(link, hello.directory_id):
            return
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(link.pump(stream)), group.create_task(link.read(stream, self._receiver))]
                await link.closed.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self._detach(link)
            if link.fault:
                self._log_fault(link)

    def _log_fault(self, link: PeerLink) -> None:
        now = self._clock.monotonic()
        if now < self._faults_logged.get(link.peer, float("-inf")) + REPEATED_S:
            return
        self._faults_logged.pop(link.peer, None)
        if len(self._faults_logged) >= FAULTY_PEERS_MAX:
            oldest = next(iter(self._faults_logged))
            if now < self._faults_logged[oldest] + REPEATED_S:
                return  # a forger invents ids
            del self._faults_logged[oldest]
        self._faults_logged[link.peer] = now
        self._probe("quorum_peer_dropped", peer=link.peer, address=link.address, reason=link.fault)

    def _attach(self, link: PeerLink, directory_id: DirectoryId) -> bool:
        """Make it the link to its peer; False if the existing one is kept."""
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
        link.closed.set()
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._receiver.link_down(link.peer)
