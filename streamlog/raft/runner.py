"""The tasks of one voter: they run the core, and do everything for it that waits.

    drive      passes received messages to the core, turns it, releases messages, sleeps until the next deadline
    sync       makes the journal durable (changes made meanwhile share the next sync); compacts the journal
    snapshot   installs a received snapshot, or takes one
    fetch      reads snapshot chunks that are not in the page cache
    transport  links

They share one event loop; each waits for an event and is idle without one. Only the drive task calls the core, except
for requests, which are only queued, and the end of a snapshot's installation, between two turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import Struct

from streamlog.aio.timeouts import timeout
from streamlog.errors import (
    CorruptMessageError,
    OutcomeUnknownError,
    StreamlogError,
    UnsupportedVersionError,
    first_error,
)
from streamlog.model import BrokerId
from streamlog.ports.bundle import Ports
from streamlog.raft.core.library import RaftRole
from streamlog.raft.core.outbox import Outbox
from streamlog.raft.core.syncobj import HardenedSyncObj
from streamlog.raft.observers import ObserverHub
from streamlog.raft.open_storage import Storage
from streamlog.raft.port import Leadership, StateMachine
from streamlog.raft.protocol.messages import Message, PeerHello
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.storage.snapshot_file import SnapshotContent
from streamlog.raft.transport import Transport
from streamlog.raft.voters import DirectoryId, Voter, VoterSet

T = TypeVar("T")

INBOX_MAX: Final = 1024
"""Received messages not passed to the core yet; beyond this the links wait."""
TIMER_TICK_S: Final = 0.001
"""Timers may fire this much early, and a turn before the deadline would be wasted."""


class _LinkUp(Struct, frozen=True):
    node_id: BrokerId
    directory_id: DirectoryId


class _LinkDown(Struct, frozen=True):
    node_id: BrokerId


class _Received(Struct, frozen=True):
    node_id: BrokerId
    message: Message


class Runner:
    """One run of a voter, from its opened files to its end."""

    def __init__(
        self,
        storage: Storage,
        machine: StateMachine[Any],
        hub: ObserverHub,
        ports: Ports,
        settings: QuorumSettings,
        own_address: str,
    ) -> None:
        identity = storage.identity
        self._machine = machine
        self._workers = ports.workers
        self._clock = ports.clock
        self._probe = ports.probe
        self._seal_after_s = settings.seal_after_ms / 1000
        self._journal = storage.journal
        self._store = storage.store
        hello = PeerHello(cluster_id=identity.cluster_id, node_id=identity.node_id, directory_id=identity.directory_id)
        self.transport = Transport(
            hello,
            self,
            network=ports.network,
            clock=ports.clock,
            random=ports.random,
            probe=ports.probe,
            settings=settings,
        )
        self._outbox = Outbox(self.transport.send)
        self.core = HardenedSyncObj(
            identity.node_id,
            journal=storage.journal,
            voter_sets=storage.voter_sets(),
            store=storage.store,
            outbox=self._outbox,
            machine=machine,
            listener=hub,
            settings=settings,
            clock=ports.clock,
            random=ports.random,
            probe=ports.probe,
            own_address=own_address,
        )
        self._inbox: deque[_LinkUp | _LinkDown | _Received] = deque()
        self._inbox_taken = asyncio.Event()
        self._work = asyncio.Event()  # for drive
        self._unsynced = asyncio.Event()  # for sync
        self._snapshot_work = asyncio.Event()
        self._fetch_work = asyncio.Event()
        self._dialled: tuple[tuple[Voter, ...], VoterSet, Voter | None] | None = None
        self._waiting: dict[asyncio.Future[Any], None] = {}  # the futures of callers, in order
        self.leadership = self._leadership()
        self.leadership_changed = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set, or a task fails."""
        last = self._journal.last
        self._probe(
            "quorum_up",
            term=self._journal.term,
            vote=self._journal.vote,
            last_index=last.index,
            last_term=last.term,
            applied=self.core.last_applied,
        )
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(work)
                    for work in (
                        self._drive(),
                        self._sync_forever(),
                        self._snapshot_forever(),
                        self._fetch_forever(),
                        self.transport.run(),
                    )
                ]
                await stopping.wait()
                for task in tasks:
                    task.cancel()
            await self._close_journal()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        finally:
            self._fail_callers()
            self.leadership_changed.set()

    async def _close_journal(self) -> None:
        await self._journal.sync()
        if self._journal.seal():
            await self._journal.sync()

    # Requests.

    async def ask(self, begin: Callable[[Callable[[T | StreamlogError], None]], None]) -> T:
        """Make a request to the core and wait for its answer."""
        future = self.begin(begin)
        try:
            return await future
        finally:
            self._waiting.pop(future, None)

    def begin(self, begin: Callable[[Callable[[T | StreamlogError], None]], None]) -> asyncio.Future[T]:
        """Make a request to the core. Requests are queued in the order of the calls."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(outcome: T | StreamlogError) -> None:
            self._waiting.pop(future, None)
            if future.done():  # the caller was cancelled
                return
            if isinstance(outcome, StreamlogError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        begin(settle)
        if not future.done():
            self._waiting[future] = None
        self._work.set()
        return future

    def _fail_callers(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(OutcomeUnknownError("this node's quorum member has stopped"))

    @property
    def callers(self) -> int:
        """The number of callers that wait for an answer."""
        return len(self._waiting)

    def wake(self) -> None:
        self._work.set()

    # From the links (transport.LinkReceiver).

    def link_up(self, node_id: BrokerId, directory_id: DirectoryId) -> None:
        self._inbox.append(_LinkUp(node_id, directory_id))
        self._work.set()

    def link_down(self, node_id: BrokerId) -> None:
        self._inbox.append(_LinkDown(node_id))
        self._work.set()

    async def received(self, node_id: BrokerId, message: Message) -> None:
        while len(self._inbox) >= INBOX_MAX:
            self._inbox_taken.clear()
            await self._inbox_taken.wait()
        self._inbox.append(_Received(node_id, message))
        self._work.set()

    # Tasks.

    async def _drive(self) -> None:
        while True:
            self._work.clear()
            self._take_inbox()
            more = self.core.turn()
            self._after_turn()
            if more or self._work.is_set():
                await asyncio.sleep(0)
            else:
                await self._sleep_until(self.core.next_deadline())

    def _take_inbox(self) -> None:
        core, inbox = self.core, self._inbox
        while inbox:
            match inbox.popleft():
                case _Received(node_id, message):
                    try:
                        core.receive(node_id, message)
                    except CorruptMessageError as error:
                        self.transport.end_link(node_id, str(error))
                case _LinkUp(node_id, directory_id):
                    core.connect(node_id, directory_id)
                case _LinkDown(node_id):
                    core.disconnect(node_id)
        self._inbox_taken.set()

    def _after_turn(self) -> None:
        """Process the output of a turn."""
        self._outbox.release(self._journal.durable)
        if self._journal.written > self._journal.durable:
            self._unsynced.set()
        if self._store.has_received() or self.core.snapshots.is_due():
            self._snapshot_work.set()
        if self._store.fetches:
            self._fetch_work.set()
        self._dial()
        self._publish_leadership()

    async def _sleep_until(self, deadline: float | None) -> None:
        if deadline is None:
            await self._work.wait()
            return
        delay_s = TIMER_TICK_S + max(0.0, deadline - self._clock.monotonic())
        alarm = asyncio.get_running_loop().call_later(delay_s, self._work.set)
        try:
            await self._work.wait()
        finally:
            alarm.cancel()

    async def _sync_forever(self) -> None:
        while True:
            await self._wait_for_changes()
            self._unsynced.clear()  # set again by any later write
            if self._journal.written > self._journal.durable:
                await self._journal.sync()
                self._outbox.release(self._journal.durable)
                self._work.set()
            if self.core.snapshots.compact_to > self._journal.base.index:
                await self._journal.compact(self.core.snapshots.compact_to)
                self.core.snapshots.compacted()
                self._work.set()

    async def _wait_for_changes(self) -> None:
        """Wait until there is something to sync; seal an idle journal."""
        try:
            async with timeout(None if self._journal.is_sealed else self._seal_after_s):
                await self._unsynced.wait()
        except TimeoutError:
            self._journal.seal()

    async def _snapshot_forever(self) -> None:
        while True:
            await self._snapshot_work.wait()
            self._snapshot_work.clear()
            if self._store.has_received():
                await self._install()
            elif self.core.snapshots.is_due():
                head = await self.core.snapshots.take(self._workers)
                self._probe("snapshot_taken", index=head.last_index)
                self._unsynced.set()  # the journal may be compacted
            self._work.set()

    async def _install(self) -> None:
        try:
            received = await self._store.finish_receiving(self._decode)
        except (CorruptMessageError, UnsupportedVersionError) as error:
            sender = self.core.snapshots.refuse()
            if sender is not None:
                self.transport.end_link(sender, f"its snapshot is not usable: {error}")
            return
        if received is not None:
            self.core.snapshots.install(*received)
            self._probe("snapshot_installed", index=received[0].head.last_index)
        self.core.snapshots.answer_sender()

    async def _decode(self, content: SnapshotContent) -> Any:
        """The state in a received snapshot."""
        self.core.snapshots.check(content)
        return await self._workers.run(self._machine.decode, content.machine)

    async def _fetch_forever(self) -> None:
        while True:
            await self._fetch_work.wait()
            self._fetch_work.clear()
            fetches, self._store.fetches[:] = list(self._store.fetches), []
            for fetch in fetches:
                await fetch.run()
            self._work.set()

    # Output.

    def _dial(self) -> None:
        """Keep links to the voters in effect, to those whose removal is not committed, to the one to be added, and to
        the learner.

        A voter that leaves may be the leader that has to commit its removal: without the link its followers could not
        acknowledge the entry, and would elect another leader.
        """
        core = self.core
        in_effect, learner = core.voter_sets.voters, core.replication.learner
        leaving = core.voter_sets.leaving(core.commit_index)
        wanted = (leaving, in_effect, learner)
        if wanted != self._dialled:
            self._dialled = wanted
            joining = [voter for voter in (in_effect.pending, learner) if voter is not None]  # their addresses count
            self.transport.want([*leaving, *in_effect, *joining])

    def _leadership(self) -> Leadership:
        core = self.core
        self._led_by = (core.term, core.role, core.leader_id, core.is_ready, core.voter_sets.index)
        leader = core.leader_id
        voter = None if leader is None else core.voter_sets.voters.get(leader)
        return Leadership(
            term=core.term,
            leader=leader,
            address=None if voter is None else voter.address,
            is_self=core.role == RaftRole.LEADER,
            is_ready=core.is_ready,
        )

    def _publish_leadership(self) -> None:
        core = self.core
        if self._led_by == (core.term, core.role, core.leader_id, core.is_ready, core.voter_sets.index):
            return
        leadership = self._leadership()
        if leadership == self.leadership:
            return
        self.leadership = leadership
        changed, self.leadership_changed = self.leadership_changed, asyncio.Event()
        changed.set()
        self._probe(
            "leadership",
            term=leadership.term,
            leader=leadership.leader,
            is_self=leadership.is_self,
            is_ready=leadership.is_ready,
        )
