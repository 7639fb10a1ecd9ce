"""The metadata quorum of a simulated cluster, under the rules that its own simulation checks (FAULTS: I12, I13).

Members are found as their RaftNode begins to run, states of the metadata as their state machine is made: what a node
does with them is its own affair. Observers have no log; what they apply must be what the voters applied.

A disk may be lost where the quorum notices the loss and survives it (`misses_disk_of`): the voters in effect are
committed; they are three or more, if the node is one of them; and each other voter has on its own disk, in its log or
of the first time that it met the node, which directory is lost. A voter that has met no other yet
counts as lost, too: it and the node without its disk would be two voters that only have the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from msgspec import Struct

from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.snapshot import encode_snapshot
from streamlog.metadata.image.state_machine import MetadataStateMachine
from streamlog.model import BrokerId, RaftIndex
from streamlog.raft.core.library import RaftRole
from streamlog.raft.core.syncobj import HardenedSyncObj
from streamlog.raft.node import RaftNode
from streamlog.raft.observers import Observer
from streamlog.raft.voters import DirectoryId, VoterSet
from streamlog.sim.process import PROCESS, Process
from streamlog.sim.world import Host, World

from ..raft.kit import Member
from ..raft.simulation.rules import Rules
from ..raft.simulation.truth import Truth


class VoterOfNode(Member):
    """The quorum's part of a whole node. What it had is known for as long as the process lives, and a moment longer."""

    def __init__(self, node_id: int, raft: RaftNode) -> None:
        self.node_id = node_id
        self.raft = raft
        self._core: HardenedSyncObj | None = None

    @property
    def core(self) -> HardenedSyncObj:
        if self.raft._running is not None:
            self._core = self.raft._running.core
        assert self._core is not None
        return self._core

    @property
    def was_up(self) -> bool:
        return self.is_up or self._core is not None


class Known(Struct, frozen=True):
    """What a voter has on its disk about the other voters."""

    voters: VoterSet
    index: RaftIndex
    met: Mapping[BrokerId, DirectoryId]

    def misses(self, node_id: BrokerId, directory: DirectoryId) -> bool:
        """Whether another directory of this node would not count here."""
        voter = self.voters.get(node_id)
        if voter is None:
            return self.index > 0
        return directory == (voter.directory_id or self.met.get(node_id))


class Quorum:
    """Implements `rules.Members` over the hosts of a world whose nodes are named n1, n2, ..."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._members: dict[Process, VoterOfNode] = {}
        self._machines: dict[Process, MetadataStateMachine] = {}
        self._applied: dict[Process, RaftIndex] = {}
        self._observing: set[Process] = set()  # those that have ever run an observer
        self._known: dict[str, Known] = {}  # by host
        self._directories: dict[str, DirectoryId] = {}  # of those that have ever been up
        self._rules = Rules(self)

    @property
    def truth(self) -> Truth:
        return self._rules.truth

    # Members.

    def host(self, node_id: int) -> Host:
        return self._world.host(f"n{node_id}")

    def member_on(self, host: Host) -> Member | None:
        member = None if host.process is None else self._members.get(host.process)
        return member if member is not None and member.is_up else None

    def member(self, node_id: int) -> Member:
        process = self.host(node_id).process
        assert process is not None
        return self._members[process]

    def members(self) -> list[Member]:
        members = [self.member_on(host) for host in self._world.hosts.values() if host.alive]
        return [member for member in members if member is not None]

    def leader(self) -> str | None:
        """The host that leads the highest term."""
        leaders = [member for member in self.members() if member.core.role == RaftRole.LEADER]
        leader = max(leaders, key=lambda member: member.core.term, default=None)
        return None if leader is None else f"n{leader.node_id}"

    # Notifications.

    def on_event(self, host: Host, event: str, fields: dict[str, object]) -> None:
        member = self.member_on(host)
        if member is not None:
            _ = member.core  # keep it
            self._note_known(host)
        self._rules.on_event(host, event, fields)

    def dies(self, host: Host) -> None:
        """It is about to, or its part in the quorum has ended by itself."""
        member = None if host.process is None else self._members.get(host.process)
        if member is not None and member.was_up:
            self._note_known(host)
            self.truth.went_down(host.name, self._rules.promise_of(member))

    def lost_disk(self, host: Host) -> None:
        self.truth.lost_disk(host.name)
        self._known.pop(host.name, None)
        self._directories.pop(host.name, None)

    def _note_known(self, host: Host) -> None:
        """As of the last time that all of its journal was durable."""
        member = None if host.process is None else self._members.get(host.process)
        if member is None or not member.was_up:
            return
        core = member.core
        self._directories[host.name] = core.log.directory_id
        if core.log.durable == core.log.written:
            self._known[host.name] = Known(core.voter_sets.voters, core.voter_sets.index, dict(core.log.peers))

    def misses_disk_of(self, name: str) -> bool:
        """Whether the quorum notices that this disk is lost, and survives it (see the module's docstring)."""
        lost, node_id = self._directories.get(name), BrokerId(int(name.removeprefix("n")))
        if lost is None:
            return True  # it has promised nothing yet
        for host in self._world.hosts.values():
            if host.alive:
                self._note_known(host)
        latest = max((member.core for member in self.members()), key=lambda core: core.voter_sets.index, default=None)
        if latest is None or not 0 < latest.voter_sets.index <= latest.commit_index:
            return False
        voters = latest.voter_sets.voters
        if voters.get(node_id) is not None and len(voters) < 3:
            return False
        others = (self._known.get(f"n{voter.node_id}") for voter in voters if voter.node_id != node_id)
        return all(known is not None and known.misses(node_id, lost) for known in others)

    def check_now(self) -> None:
        self._rules.check_now()

    # States.

    def image(self, host: Host) -> MetadataImage | None:
        """What its node knows; None before it has a state machine."""
        machine = None if host.process is None else self._machines.get(host.process)
        return None if machine is None else machine.image

    def has_one_image(self, hosts: Iterator[Host]) -> bool:
        """No node lags behind another one."""
        return len({None if (image := self.image(host)) is None else image.index for host in hosts}) <= 1

    def compare_images(self, hosts: Iterator[Host]) -> None:
        """Equal index, equal bytes."""
        seen: dict[RaftIndex, tuple[str, list[bytes]]] = {}
        for host in hosts:
            image = self.image(host)
            if image is not None:
                picture = list(encode_snapshot(image))
                first, other = seen.setdefault(image.index, (host.name, picture))
                if other != picture:
                    self.truth.wrong(f"{first} and {host.name} have other metadata at {image.index}")

    def _apply(self, process: Process, index: RaftIndex, command: bytes) -> None:
        before = self._applied.get(process, RaftIndex(0))
        if index <= before:
            if not self._follows_twice(process) or self.truth.commands.get(index) != command.hex():
                self.truth.wrong(f"{process} applies {index} after {before}")
            return
        self._applied[process] = index
        member = self._members.get(process)
        if member is not None:
            self.truth.applied(member.node_id, index, command.hex(), b"")
        elif self.truth.commands.get(index) != command.hex():
            self.truth.wrong(f"the observer {process} applies at {index} what no voter has")

    def _installed(self, process: Process, index: RaftIndex) -> None:
        if index < self._applied.get(process, RaftIndex(0)):
            if not self._follows_twice(process):
                self.truth.wrong(f"{process} goes back from {self._applied[process]} to a snapshot at {index}")
            return
        self._applied[process] = index

    def _follows_twice(self, process: Process) -> bool:
        """A voter that had no leader for a while: it observes too, and passes over what comes again."""
        return process in self._members and process in self._observing

    @contextmanager
    def looking(self) -> Iterator[None]:
        """For the length of a run, the classes of the quorum notify this object."""

        run = RaftNode.run

        async def runs(raft: RaftNode) -> None:
            process = PROCESS.get()
            assert process is not None
            self._members[process] = VoterOfNode(int(process.name.removeprefix("n")), raft)
            try:
                await run(raft)
            finally:
                if process.alive:
                    self.dies(self._world.host(process.name))

        def observes(process: Process, observer: Observer) -> None:
            self._observing.add(process)

        def made(process: Process, machine: MetadataStateMachine, *args: Any) -> None:
            self._machines[process] = machine

        def applies(process: Process, machine: MetadataStateMachine, index: RaftIndex, command: bytes) -> None:
            self._apply(process, index, command)

        def installs(process: Process, machine: MetadataStateMachine, index: RaftIndex, picture: object) -> None:
            self._installed(process, index)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(RaftNode, "run", runs))
            for owner, name, notify in (
                (Observer, "run", observes),
                (MetadataStateMachine, "__init__", made),
                (MetadataStateMachine, "apply", applies),
                (MetadataStateMachine, "install", installs),
            ):
                stack.enter_context(mock.patch.object(owner, name, _announced(getattr(owner, name), notify)))
            yield


def _announced(method: Callable[..., Any], notify: Callable[..., None]) -> Callable[..., Any]:
    """`method`, which notifies before it begins."""

    def announced(self: Any, *args: Any, **kwargs: Any) -> Any:
        process = PROCESS.get()
        assert process is not None
        notify(process, self, *args)
        return method(self, *args, **kwargs)

    return announced
