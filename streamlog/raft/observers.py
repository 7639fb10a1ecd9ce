"""Nodes without a vote follow the quorum: a snapshot, then every command that was carried out, in order.

At a voter, ObserverHub keeps the latest commands, up to a limit of bytes. An observer that is behind them, or that
begins with nothing, is sent the state machine's bytes first. Nothing is kept for one observer: each has only its place
in the common buffer, so that any number may follow, and one too slow for it is sent a snapshot again.

A voter is a source as long as it hears from the quorum itself, and says with each message how long ago that was. One
that was voted out, or is cut off, hears nothing: it ends its observers' streams after SILENCE_S, and takes none. Its
keepalives would hold them at a state that does not move any more.

At an observer, Observer keeps a stream to one of the voters, any of them, applies what comes and tries another one when
it ends, or says that it has not heard from the quorum. Its state is a former state of the quorum's, never another one:
commands come in order, from voters that have applied them, and one that was repeated is not among them. What cannot be
is the source's fault: it is left for another one. Who the voters are comes with the stream: all that the observer began
with may be replaced in time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

from streamlog.errors import CorruptMessageError, InconsistentClusterError, Status
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import CallInfo, Clock, Network, Probe, Random, RpcError, Stream, Workers
from streamlog.raft.port import StateMachine
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.observed import ObservedCommands, ObservedSnapshot, WatchRequest
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import Voter, VoterSet

METHOD: Final = "/streamlog.internal.v1.Raft/WatchMetadata"
KEEPALIVE_S: Final = 5.0
"""A hub that has nothing to tell says so; an observer that hears nothing for twice as long tries another voter."""
RECONNECT_S: Final = 0.2
"""Before another voter is tried; doubled while none of them can be followed ..."""
RECONNECT_MAX_S: Final = 2.0
"""... up to this."""
MARGIN_S: Final = 0.05
SILENCE_MS_MAX: Final = 2**31
SILENCE_S: Final = 5.0
"""Longer than elections take, by default; with longer time-outs, twice the longest silence of a live leader."""
SOURCE_SILENCE_S: Final = 60.0
"""What an observer does not believe, whatever the source's time-outs are: half of it is what they may be set to."""
REMINDER_S: Final = 60.0
"""Between two log lines of an observer that finds nobody to follow."""
SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""Of the state that an observer takes from a voter (QuorumSettings.snapshot_bytes_max)."""
COMMAND_OVERHEAD_BYTES: Final = 64
"""What a buffered command costs besides its bytes."""


class ObserverHub:
    """Owned by a voter; told by its applier (applying.Listener)."""

    def __init__(
        self,
        machine: StateMachine[Any],
        workers: Workers,
        voters: Callable[[], VoterSet],
        quorum_silence_s: Callable[[], float],
        *,
        cluster_id: str,
        settings: QuorumSettings,
    ) -> None:
        """`voters`: those in effect. `quorum_silence_s`: how long ago this node heard from the quorum."""
        self._quorum_silence_s = quorum_silence_s
        self._silence_max_s = max(SILENCE_S, 2 * settings.patience_max_ms / 1000)
        self._buffer_bytes_max = settings.observer_buffer_bytes
        self._message_bytes_max = settings.observer_message_bytes  # unless a single command is larger
        self._machine = machine
        self._workers = workers
        self._voters = voters
        self._cluster_id = cluster_id
        self._commands: list[tuple[RaftIndex, bytes]] = []  # by rising index
        self._bytes = 0  # of _commands; <= _buffer_bytes_max
        self._complete_after = RaftIndex(0)  # every command behind this index is in _commands
        self.applied_index = RaftIndex(0)
        self._news: asyncio.Event | None = None  # somebody waits for it
        self._snapshot: tuple[RaftIndex, list[bytes]] | None = None  # the latest that was encoded
        self._encoding = asyncio.Lock()

    # From the applier.

    def on_applied(self, index: RaftIndex, command: bytes | None) -> None:
        self.applied_index = index
        if command is not None:
            self._commands.append((index, command))
            self._bytes += len(command) + COMMAND_OVERHEAD_BYTES
            if self._bytes > self._buffer_bytes_max:
                self._drop_older_half()
        self._tell()

    def _drop_older_half(self) -> None:
        """Not one by one: the front of a list is dear to cut."""
        doomed = 0
        while self._bytes > self._buffer_bytes_max // 2:
            self._complete_after, command = self._commands[doomed]
            self._bytes -= len(command) + COMMAND_OVERHEAD_BYTES
            doomed += 1
        del self._commands[:doomed]

    def on_restored(self, index: RaftIndex) -> None:
        self.applied_index = self._complete_after = index
        self._commands.clear()
        self._bytes = 0
        self._snapshot = None
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.set()

    # To one observer.

    async def serve(self, stream: Stream, info: CallInfo) -> None:
        """The handler of METHOD: lasts as long as the observer wants."""
        request = wire.decode_watch_request(await stream.recv() or b"")
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterError(f"the observer is of cluster {request.cluster_id!r}")
        sent, told = request.applied_index, VoterSet()
        while True:
            self._check_hears_the_quorum()
            if told != self._voters():
                told = self._voters()
                await stream.send(wire.encode_observed(told))
            if self.applied_index > 0 and (sent < self._complete_after or sent == 0):
                sent = await self._send_snapshot(stream)
            elif sent < self.applied_index:
                sent = await self._send_commands(stream, sent)
            elif not await self._has_news(min(KEEPALIVE_S, self._silence_max_s - self._quorum_silence_s() + MARGIN_S)):
                self._check_hears_the_quorum()
                await stream.send(wire.encode_observed(self._news_of((), sent)))

    def _check_hears_the_quorum(self) -> None:
        silence_s = self._quorum_silence_s()
        if silence_s > self._silence_max_s:
            raise RpcError(
                Status.UNAVAILABLE,
                "this node has not heard from the leader of the metadata quorum for too long to be followed",
            )

    def _news_of(self, commands: Sequence[tuple[RaftIndex, bytes]], until: RaftIndex) -> ObservedCommands:
        silence_ms = min(round(1000 * self._quorum_silence_s()), SILENCE_MS_MAX)
        return ObservedCommands(commands=tuple(commands), applied_index=until, quorum_silence_ms=silence_ms)

    async def _has_news(self, within_s: float) -> bool:
        if self._news is None:
            self._news = asyncio.Event()
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def _send_snapshot(self, stream: Stream) -> RaftIndex:
        index, pieces = await self._latest_snapshot()
        for place, data in enumerate(pieces):
            last = place == len(pieces) - 1
            await stream.send(
                wire.encode_observed(ObservedSnapshot(index=index, data=data, first=place == 0, last=last))
            )
        return index

    async def _latest_snapshot(self) -> tuple[RaftIndex, list[bytes]]:
        """One behind which no command is missing here. Those who ask at the same time share it."""
        async with self._encoding:
            if self._snapshot is None or self._snapshot[0] < self._complete_after:
                index, picture = self.applied_index, self._machine.picture()
                pieces = await self._workers.run(_encode, self._machine, picture, self._message_bytes_max)
                self._snapshot = index, pieces
            return self._snapshot

    async def _send_commands(self, stream: Stream, sent: RaftIndex) -> RaftIndex:
        """Commands behind `sent`, as many as fit into one message; the index that the observer is at then."""
        begin = end = bisect_right(self._commands, sent, key=_index)
        room = self._message_bytes_max
        while end < len(self._commands) and (end == begin or len(self._commands[end][1]) <= room):
            room -= len(self._commands[end][1])
            end += 1
        some = self._commands[begin:end]
        until = self.applied_index if end == len(self._commands) else some[-1][0]
        await stream.send(wire.encode_observed(self._news_of(some, until)))
        return until


class Observer:
    """Follows the quorum into a state machine of its own. `run` lives as long as the node does."""

    def __init__(
        self,
        machine: StateMachine[Any],
        voters: VoterSet,
        *,
        node_id: BrokerId,
        cluster_id: str,
        network: Network,
        clock: Clock,
        random: Random,
        workers: Workers,
        probe: Probe,
    ) -> None:
        """`voters`: to begin with. `node_id`: its own, which it does not follow."""
        self._machine = machine
        self._voters = voters
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._network = network
        self._clock = clock
        self._random = random
        self._workers = workers
        self._probe = probe
        self._applied_index = RaftIndex(0)
        self._news = asyncio.Event()
        self._source: Voter | None = None  # whom it follows: it has been heard on this stream
        self._told: VoterSet | None = None  # the voters, by that source
        self._logged_at: float | None = None  # when it was last said that nobody can be followed; None: somebody is

    @property
    def received_voters(self) -> VoterSet | None:
        """Those in effect, this node included where it votes; None while nobody is followed."""
        return self._told if self._source is not None else None

    @property
    def applied_index(self) -> RaftIndex:
        return self._applied_index

    @property
    def voters(self) -> VoterSet:
        """To choose from, at the next reconnect."""
        return self._voters

    async def wait_until_applied(self, index: RaftIndex) -> None:
        while self._applied_index < index:
            await self._news.wait()

    async def run(self) -> None:
        """An exception of the state machine ends it, as it ends a voter."""
        pause_s, last = RECONNECT_S, None
        while True:
            last = self._next_source(last)
            try:
                await self._follow(last)
                reason = "it ended the stream"
            except (RpcError, TimeoutError, CorruptMessageError) as error:
                reason = str(error) or "it was silent"
            pause_s = RECONNECT_S if self._source is not None else min(2 * pause_s, RECONNECT_MAX_S)
            self._lost(last, reason)
            await asyncio.sleep(self._random.uniform(0.5, 1.0) * pause_s)

    def _next_source(self, last: Voter | None) -> Voter:
        """Any voter but the one that was just lost, where there are others."""
        voters = [voter for voter in self._voters if voter != last] or list(self._voters)
        return voters[self._random.randrange(len(voters))]

    def _lost(self, voter: Voter, reason: str) -> None:
        """Said once, and again when it goes on for long: it may be tried five times a second."""
        self._source = None
        now = self._clock.monotonic()
        if self._logged_at is None or now >= self._logged_at + REMINDER_S:
            self._logged_at = now
            self._probe("observer_stream_lost", voter=voter.node_id, reason=reason)

    def _heard(self, voter: Voter) -> None:
        """The first message on a stream."""
        self._source = voter
        if self._logged_at is not None:
            self._logged_at = None
            self._probe("observer_stream_found", voter=voter.node_id)

    async def _follow(self, voter: Voter) -> None:
        channel = self._network.connect(voter.address)
        try:
            async with channel.stream(METHOD) as stream:
                request = WatchRequest(cluster_id=self._cluster_id, applied_index=self._applied_index)
                await stream.send(wire.encode_watch_request(request))
                await self._take_all(stream, voter)
        finally:
            await channel.close()

    async def _take_all(self, stream: Stream, voter: Voter) -> None:
        pieces: list[bytes] = []
        size = 0
        while True:
            async with asyncio.timeout(2 * KEEPALIVE_S):
                data = await stream.recv()
            if data is None:
                return
            match wire.decode_observed(data):
                case ObservedSnapshot() as snapshot:
                    if snapshot.first:
                        pieces, size = [], 0
                    pieces.append(snapshot.data)
                    size += len(snapshot.data)
                    if size > SNAPSHOT_BYTES_MAX:
                        raise CorruptMessageError(f"a snapshot of more than {SNAPSHOT_BYTES_MAX} bytes")
                    if snapshot.last:
                        await self._install(snapshot.index, pieces)
                        pieces, size = [], 0
                        self._heard(voter)
                case ObservedCommands() as news:
                    self._apply(news)
                    self._heard(voter)
                case VoterSet() as voters:
                    self._follow_others(voters)
                    self._told = voters

    def _follow_others(self, voters: VoterSet) -> None:
        others = VoterSet(tuple(voter for voter in voters if voter.node_id != self._node_id))
        if others:
            self._voters = others

    async def _install(self, index: RaftIndex, pieces: Sequence[bytes]) -> None:
        picture = await self._workers.run(self._machine.decode, pieces)
        if index > self._applied_index:
            self._machine.install(index, picture)
            self._advance(index)

    def _apply(self, news: ObservedCommands) -> None:
        if news.quorum_silence_ms is not None and news.quorum_silence_ms > 1000 * SOURCE_SILENCE_S:
            raise CorruptMessageError(f"it has not heard from the quorum for {news.quorum_silence_ms} ms")
        before = self._applied_index
        for index, _ in news.commands:
            if index <= before:
                raise CorruptMessageError(f"command {index} comes after {before}, which is applied")
            before = index
        for index, command in news.commands:
            self._machine.apply(index, command)
            self._applied_index = index
        self._advance(max(self._applied_index, news.applied_index))

    def _advance(self, index: RaftIndex) -> None:
        self._applied_index = index
        news, self._news = self._news, asyncio.Event()
        news.set()


def _encode(machine: StateMachine[Any], picture: object, piece_bytes: int) -> list[bytes]:
    """In a worker: the bytes in pieces; one empty piece for a state without bytes."""
    whole = b"".join(machine.encode(picture))
    return [whole[begin : begin + piece_bytes] for begin in range(0, len(whole), piece_bytes)] or [b""]


def _index(command: tuple[RaftIndex, bytes]) -> RaftIndex:
    return command[0]
