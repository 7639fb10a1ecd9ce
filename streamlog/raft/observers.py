"""Observers: nodes without a vote receive a snapshot, then every applied command, in order.

At a voter, ObserverHub buffers the latest commands, up to a limit of bytes. An observer that is behind the buffer, or
has no state yet, is sent the state machine's bytes first. There is no state per observer except its position in the
shared buffer, so any number may follow; one that falls behind is sent a snapshot again.

A voter serves observers while it receives messages from the leader, and includes in each message how long ago the last
one was. A voter that was removed or is partitioned closes its observers' streams after SILENCE_S and accepts none:
its keepalives would hold them at a stale state.

At an observer, Observer keeps a stream to any one of the voters, applies what it receives, and switches to another
voter when the stream ends or reports too long a silence. Its state is always an earlier state of the quorum: commands
arrive in order, from voters that have applied them, without repeated ones. After an impossible message it switches to
another voter. The stream also carries the current voters, so all the initial ones may be replaced over time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

from streamlog.aio.timeouts import timeout
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
"""Between keepalives of an idle hub; without any message for twice as long an observer tries another voter."""
RECONNECT_S: Final = 0.2
"""Before another voter is tried; doubled while none of them can be followed ..."""
RECONNECT_MAX_S: Final = 2.0
"""... up to this."""
MARGIN_S: Final = 0.05
SILENCE_MS_MAX: Final = 2**31
SILENCE_S: Final = 5.0
"""Longer than elections take by default; with longer timeouts, twice the longest silence of an active leader."""
SOURCE_SILENCE_S: Final = 60.0
"""The longest silence an observer accepts, whatever the voter's timeouts: twice their upper limit."""
REMINDER_S: Final = 60.0
"""Between two log lines of an observer that finds no voter to follow."""
SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""Of the state that an observer takes from a voter (QuorumSettings.snapshot_bytes_max)."""
COMMAND_OVERHEAD_BYTES: Final = 64
"""What a buffered command costs besides its bytes."""


class ObserverHub:
    """Owned by a voter; notified by its applier (applying.AppliedListener)."""

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
        """`voters`: those in effect. `quorum_silence_s`: seconds since the last message from the leader."""
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
        self._changed: asyncio.Event | None = None  # for the streams that wait
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
        self._notify()

    def _drop_older_half(self) -> None:
        """Half at once: removing the front of a list is expensive."""
        count = 0
        while self._bytes > self._buffer_bytes_max // 2:
            self._complete_after, command = self._commands[count]
            self._bytes -= len(command) + COMMAND_OVERHEAD_BYTES
            count += 1
        del self._commands[:count]

    def on_restored(self, index: RaftIndex) -> None:
        self.applied_index = self._complete_after = index
        self._commands.clear()
        self._bytes = 0
        self._snapshot = None
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    # To one observer.

    async def serve(self, stream: Stream, info: CallInfo) -> None:
        """The handler of METHOD: runs until the observer closes the stream."""
        request = wire.decode_watch_request(await stream.recv() or b"")
        if request.cluster_id != self._cluster_id:
            raise InconsistentClusterError(
                f"the observer belongs to cluster {request.cluster_id!r}, this node to {self._cluster_id!r}"
            )
        sent, sent_voters = request.applied_index, VoterSet()
        while True:
            self._check_silence()
            if sent_voters != self._voters():
                sent_voters = self._voters()
                await stream.send(wire.encode_observed(sent_voters))
            if self.applied_index > 0 and (sent < self._complete_after or sent == 0):
                sent = await self._send_snapshot(stream)
            elif sent < self.applied_index:
                sent = await self._send_commands(stream, sent)
            elif not await self._changes(min(KEEPALIVE_S, self._silence_max_s - self._quorum_silence_s() + MARGIN_S)):
                self._check_silence()
                await stream.send(wire.encode_observed(self._message((), sent)))

    def _check_silence(self) -> None:
        silence_s = self._quorum_silence_s()
        if silence_s > self._silence_max_s:
            raise RpcError(
                Status.UNAVAILABLE,
                f"this voter has received nothing from the leader of the metadata quorum for {silence_s:.1f} s; "
                "follow another voter",
            )

    def _message(self, commands: Sequence[tuple[RaftIndex, bytes]], until: RaftIndex) -> ObservedCommands:
        silence_ms = min(round(1000 * self._quorum_silence_s()), SILENCE_MS_MAX)
        return ObservedCommands(commands=tuple(commands), applied_index=until, quorum_silence_ms=silence_ms)

    async def _changes(self, within_s: float) -> bool:
        if self._changed is None:
            self._changed = asyncio.Event()
        try:
            async with timeout(within_s):
                await self._changed.wait()
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
        """A snapshot after which no command is missing in the buffer. Concurrent callers share it."""
        async with self._encoding:
            if self._snapshot is None or self._snapshot[0] < self._complete_after:
                index, picture = self.applied_index, self._machine.picture()
                pieces = await self._workers.run(_encode, self._machine, picture, self._message_bytes_max)
                self._snapshot = index, pieces
            return self._snapshot

    async def _send_commands(self, stream: Stream, sent: RaftIndex) -> RaftIndex:
        """Send commands after `sent`, as many as fit into one message; the index that the observer reaches."""
        begin = end = bisect_right(self._commands, sent, key=_index)
        bytes_left = self._message_bytes_max
        while end < len(self._commands) and (end == begin or len(self._commands[end][1]) <= bytes_left):
            bytes_left -= len(self._commands[end][1])
            end += 1
        some = self._commands[begin:end]
        until = self.applied_index if end == len(self._commands) else some[-1][0]
        await stream.send(wire.encode_observed(self._message(some, until)))
        return until


class Observer:
    """Applies the quorum's commands to its own state machine. `run` ends with the node."""

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
        """`voters`: the initial ones. `node_id`: its own, which it does not follow."""
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
        self._changed = asyncio.Event()
        self._source: Voter | None = None  # the voter it follows, once a message has arrived on the stream
        self._received_voters: VoterSet | None = None  # from that source
        self._logged_at: float | None = None  # when the loss of the stream was last logged; None: it follows a voter

    @property
    def received_voters(self) -> VoterSet | None:
        """The voters in effect, including this node if it is one; None while it follows no voter."""
        return self._received_voters if self._source is not None else None

    @property
    def latest_voters(self) -> VoterSet:
        """As received last, from whichever voter; empty before the first ones."""
        return self._received_voters or VoterSet()

    @property
    def applied_index(self) -> RaftIndex:
        return self._applied_index

    @property
    def voters(self) -> VoterSet:
        """The candidates for the next reconnect."""
        return self._voters

    async def wait_until_applied(self, index: RaftIndex) -> None:
        while self._applied_index < index:
            await self._changed.wait()

    async def run(self) -> None:
        """Run until cancelled, or an exception of the state machine, which stops the node as it stops a voter."""
        pause_s, last = RECONNECT_S, None
        while True:
            last = self._next_source(last)
            try:
                await self._follow(last)
                reason = "it closed the stream"
            except (RpcError, TimeoutError, CorruptMessageError) as error:
                reason = str(error) or f"no message for {2 * KEEPALIVE_S:.0f} s"
            pause_s = RECONNECT_S if self._source is not None else min(2 * pause_s, RECONNECT_MAX_S)
            self._lost(last, reason)
            await asyncio.sleep(self._random.uniform(0.5, 1.0) * pause_s)

    def _next_source(self, last: Voter | None) -> Voter:
        """Any voter except the one just lost, if there are others."""
        voters = [voter for voter in self._voters if voter != last] or list(self._voters)
        return voters[self._random.randrange(len(voters))]

    def _lost(self, voter: Voter, reason: str) -> None:
        """Logged at most once per REMINDER_S: there may be five attempts a second."""
        self._source = None
        now = self._clock.monotonic()
        if self._logged_at is None or now >= self._logged_at + REMINDER_S:
            self._logged_at = now
            self._probe("observer_stream_lost", voter=voter.node_id, reason=reason)

    def _found(self, voter: Voter) -> None:
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
            async with timeout(2 * KEEPALIVE_S):
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
                        self._found(voter)
                case ObservedCommands() as message:
                    self._apply(message)
                    self._found(voter)
                case VoterSet() as voters:
                    self._follow_others(voters)
                    self._received_voters = voters

    def _follow_others(self, voters: VoterSet) -> None:
        others = VoterSet(tuple(voter for voter in voters if voter.node_id != self._node_id))
        if others:
            self._voters = others

    async def _install(self, index: RaftIndex, pieces: Sequence[bytes]) -> None:
        picture = await self._workers.run(self._machine.decode, pieces)
        if index > self._applied_index:
            self._machine.install(index, picture)
            self._advance(index)

    def _apply(self, message: ObservedCommands) -> None:
        if message.quorum_silence_ms is not None and message.quorum_silence_ms > 1000 * SOURCE_SILENCE_S:
            raise CorruptMessageError(
                f"the voter has received nothing from the leader for {message.quorum_silence_ms} ms"
            )
        before = self._applied_index
        for index, _ in message.commands:
            if index <= before:
                raise CorruptMessageError(f"command {index} follows command {before}, which is applied")
            before = index
        for index, command in message.commands:
            self._machine.apply(index, command)
            self._applied_index = index
        self._advance(max(self._applied_index, message.applied_index))

    def _advance(self, index: RaftIndex) -> None:
        self._applied_index = index
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _encode(machine: StateMachine[Any], picture: object, piece_bytes: int) -> list[bytes]:
    """In a worker: the bytes in pieces; one empty piece for a state without bytes."""
    whole = b"".join(machine.encode(picture))
    return [whole[begin : begin + piece_bytes] for begin in range(0, len(whole), piece_bytes)] or [b""]


def _index(command: tuple[RaftIndex, bytes]) -> RaftIndex:
    return command[0]
