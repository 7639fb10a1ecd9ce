"""How a node follows the metadata: as a voter of the quorum, or as an observer of it.

Both feed the node's view. A voter may become the active controller; an observer never does, and refuses its commands.

A voter without a leader may have been removed, or not been added yet, and is not notified of that: it follows as an
observer until it learns of a leader. So a removed voter continues as a broker, and a node that is started to become a
voter is a broker before. The state machine ignores what it receives twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec.structs import replace

from streamlog.aio.timeouts import timeout
from streamlog.config import Config
from streamlog.config.settings import node_settings as settings
from streamlog.controller import ActiveController
from streamlog.errors import NotControllerError
from streamlog.metadata.configs.node_configs import NodeConfigs
from streamlog.metadata.controller import Command
from streamlog.metadata.records import MetadataVersion
from streamlog.metadata.view import MetadataView
from streamlog.metrics.histogram import Histogram
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.ports import Ports, StreamHandler
from streamlog.raft.node import QuorumConfig, RaftNode
from streamlog.raft.observers import Observer
from streamlog.raft.open_storage import Owner
from streamlog.raft.port import Leadership
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import Voter, VoterSet

TRANSFER_TIMEOUT_S: Final = 1.0
LEADERLESS_S: Final = 2.0
"""Time without a leader before a voter observes: longer than an election takes."""


class QuorumMember(Protocol):
    """The node's part in the quorum: what the node runs, and what its services call."""

    @property
    def active(self) -> ActiveController | None: ...

    async def run(self) -> None: ...

    async def wait_until_open(self) -> None:
        """Until `run` has opened the quorum's log, if there is one."""
        ...

    async def stop(self) -> None: ...

    def streaming_handlers(self) -> Mapping[str, StreamHandler]: ...

    def logged_voters(self) -> VoterSet:
        """Those in effect by the quorum's log; empty while only those of the start are known."""
        ...

    def commit_latency_s(self) -> Histogram | None:
        """Of the commands that this node has committed as leader; None on observers, and before the quorum is up."""
        ...

    # For operators (streamlog.services.common.collaborators.QuorumVoters and CommandSubmitter).

    @property
    def applied_index(self) -> RaftIndex: ...

    def leadership(self) -> Leadership: ...

    def voters(self) -> VoterSet: ...

    def held(self) -> Mapping[BrokerId, RaftIndex]: ...

    @property
    def knows_votes(self) -> bool: ...

    def without_vote(self) -> Collection[BrokerId]: ...

    async def add_voter(self, voter: Voter) -> RaftIndex: ...

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex: ...

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex: ...

    async def submit(self, command: Command) -> Any: ...


class VoterMember:
    def __init__(
        self,
        owner: Owner,
        directory: str,
        address: str,
        *,
        view: MetadataView,
        configs: NodeConfigs,
        ports: Ports,
        metadata_version_max: MetadataVersion,
    ) -> None:
        self._owner = owner
        self._ports = ports
        config = QuorumConfig(owner=owner, directory=directory, address=address, settings=quorum_settings(configs.node))
        self._view = view
        self._raft = RaftNode(config, view.machine, ports)
        self._up = False
        self._running: asyncio.Task[None] | None = None
        self._observer: Observer | None = None  # while there is no leader
        self.active: ActiveController = ActiveController(
            owner.node_id,
            owner.cluster_id,
            quorum=self._raft,
            view=view,
            configs=configs,
            network=ports.network,
            random=ports.random,
            clock=ports.clock,
            probe=ports.probe,
            metadata_version_max=metadata_version_max,
        )

    async def run(self) -> None:
        """Until `stop`, or an error that stops the node."""
        async with asyncio.TaskGroup() as tasks:
            self._running = tasks.create_task(self._raft.run())
            await self._raft.wait_until_up()
            self._up = True
            tasks.create_task(self._observe_while_leaderless())
            await self.active.run()
        self._up = False

    async def wait_until_open(self) -> None:
        await self._raft.wait_until_up()

    async def _observe_while_leaderless(self) -> None:
        """As long as the quorum runs."""
        observing: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            async for leadership in self._raft.watch_leadership():
                if leadership.leader is not None and observing is not None:
                    observing.cancel()
                    observing = None
                elif leadership.leader is None and observing is None:
                    observing = tasks.create_task(self._observe())
            if observing is not None:
                observing.cancel()

    async def _observe(self) -> None:
        await asyncio.sleep(LEADERLESS_S)
        others = tuple(voter for voter in self._raft.voters() if voter.node_id != self._owner.node_id)
        if others:
            self._observer = make_observer(self._owner, VoterSet(others), self._view, self._ports)
            try:
                await self._observer.run()
            finally:
                self._observer = None

    async def stop(self) -> None:
        """Transfer the leadership, then end `run`."""
        if self._up and self._raft.leadership().is_self and len(self._raft.voters()) > 1:
            await self._raft.transfer_leadership()
            try:
                async with timeout(TRANSFER_TIMEOUT_S):
                    await self._view.wait_for_controller_change()
            except TimeoutError:
                pass  # no other voter took it
        self._raft.stop()
        if self._running is not None:
            await asyncio.wait([self._running])

    def streaming_handlers(self) -> Mapping[str, StreamHandler]:
        return self._raft.streaming_handlers()

    @property
    def applied_index(self) -> RaftIndex:
        return max(self._raft.applied_index, self._view.image.index)

    def leadership(self) -> Leadership:
        """A removed voter knows the controller as an observer does."""
        known = self._raft.leadership()
        if known.leader is None and self._observer is not None:
            return replace(known, leader=self._view.controller, address=self._view.controller_address)
        return known

    def voters(self) -> VoterSet:
        return self._observed_voters() or (self._raft.voters() if self._up else self._owner.voters)

    def logged_voters(self) -> VoterSet:
        return self._observed_voters() or self._raft.logged_voters()

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        return self._raft.held() if self._up else {}

    @property
    def knows_votes(self) -> bool:
        """Not while it is a removed voter: its own set may name a directory that has been replaced since."""
        return self._up and self._observed_voters() is None

    def without_vote(self) -> Collection[BrokerId]:
        return self._raft.without_vote() if self.knows_votes else ()

    def _observed_voters(self) -> VoterSet | None:
        """While it follows the metadata as an observer does."""
        return None if self._observer is None else self._observer.received_voters

    def commit_latency_s(self) -> Histogram | None:
        return self._raft.commit_latency_s() if self._up else None

    async def add_voter(self, voter: Voter) -> RaftIndex:
        return await self._raft.add_voter(voter)

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex:
        return await self._raft.remove_voter(node_id)

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex:
        return await self._raft.replace_voter(node_id, voter)

    async def submit(self, command: Command) -> Any:
        return await self.active.submit(command)


class ObserverMember:
    def __init__(self, owner: Owner, *, view: MetadataView, ports: Ports) -> None:
        self.active: ActiveController | None = None
        self._view = view
        self._observer = make_observer(owner, owner.voters, view, ports)

    async def run(self) -> None:
        await self._observer.run()

    async def wait_until_open(self) -> None:
        """An observer has no log of the quorum."""

    async def stop(self) -> None:
        """Nothing to hand over or to save."""

    def streaming_handlers(self) -> Mapping[str, StreamHandler]:
        return {}

    @property
    def applied_index(self) -> RaftIndex:
        return self._observer.applied_index

    def leadership(self) -> Leadership:
        """The controller as the node last knew it; the term is unknown here."""
        view = self._view
        return Leadership(
            term=RaftTerm(0),
            leader=view.controller,
            address=view.controller_address,
            is_self=False,
            is_ready=False,
        )

    def voters(self) -> VoterSet:
        return self._observer.voters

    def logged_voters(self) -> VoterSet:
        return self._observer.latest_voters

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        return {}

    @property
    def knows_votes(self) -> bool:
        """Only voters learn each other's directory ids."""
        return False

    def without_vote(self) -> Collection[BrokerId]:
        return ()

    def commit_latency_s(self) -> Histogram | None:
        return None

    async def add_voter(self, voter: Voter) -> RaftIndex:
        raise self._not_controller()

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex:
        raise self._not_controller()

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex:
        raise self._not_controller()

    async def submit(self, command: Command) -> Any:
        raise self._not_controller()

    def _not_controller(self) -> NotControllerError:
        return NotControllerError(
            "this node is an observer of the metadata quorum and cannot be the controller: send the command to the "
            "controller",
            leader=self._view.controller,
            address=self._view.controller_address,
        )


def make_observer(owner: Owner, voters: VoterSet, view: MetadataView, ports: Ports) -> Observer:
    return Observer(
        view.machine,
        voters,
        node_id=owner.node_id,
        cluster_id=owner.cluster_id,
        network=ports.network,
        clock=ports.clock,
        random=ports.random,
        workers=ports.workers,
        probe=ports.probe,
    )


def quorum_settings(config: Config) -> QuorumSettings:
    election_ms = config[settings.CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS]
    heartbeat_ms = config[settings.CONTROLLER_QUORUM_HEARTBEAT_INTERVAL_MS]
    defaults = QuorumSettings()
    return QuorumSettings(
        election_timeout_min_ms=election_ms,
        election_timeout_max_ms=2 * election_ms,
        heartbeat_ms=heartbeat_ms,
        auto_join=config[settings.CONTROLLER_QUORUM_VOTER_RESTORE_ENABLE],
        idle_heartbeat_ms=max(heartbeat_ms, defaults.idle_heartbeat_ms),
        snapshot_journal_bytes=config[settings.METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS],
    )


def addresses_of(voters: VoterSet) -> Sequence[str]:
    return [voter.address for voter in voters]
