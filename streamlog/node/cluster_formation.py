"""How a node learns the id of its cluster, without a format step, so that two clusters can never form from one.

    the log directories have an id         that one is used
    a voter's quorum directory has one     likewise: the disks of the log directories were replaced
    another voter answers with an id       it is made durable, and served from then on
    the voter with the lowest node id      asks the other voters; when a majority, itself included, has answered that it
                                           has none, it generates one
    all other nodes                        wait until a voter answers with an id
    only voters without their logs have    all wait: a log may be left at one that does not answer, or in a directory
    an id                                  that the settings no longer name

A majority of an existing cluster has its id. So a voter that gets "none" from a majority is not in a cluster that has
ever committed anything, and as there is one lowest node id, one voter generates. It serves the id only once it is
durable: an id that was generated and lost in a crash was never served.

The id does not say whether the quorum runs already. A voter without its log needs to know that too: by their settings
alone such voters may be a majority, and elect the leader of a second quorum. So the answers name the voters by the log:

    they do not name this node             it begins with these voters, and waits to be added
    they name it, or nothing is in the     it begins with those of its settings
    log yet
    the log directories had an id, so it   it waits for a node that has the log, or until all others have answered that
    lost its log, or was an observer       they are voters of this cluster, one of them with a log that is empty

The quorum's directory is made before the log directories get the id: a first start that was interrupted has not lost
its log.

A node without a vote asks the voters, or `controller.quorum.bootstrap.servers`, which answer with the voters as well:
those in effect, once the log of the metadata names some. So a voter serves the id when its log is open. Until then it
serves the one on its disk, if there is one, which no other joins: "none" is never the answer of a voter that has an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.api.pb import identification_pb2 as pb
from streamlog.api.service import Call, Service, unary
from streamlog.controller.identity import Identified, identify
from streamlog.errors import InconsistentClusterError, StreamlogError
from streamlog.model import BrokerId
from streamlog.ports import Clock, Network, Probe, Random, RpcError
from streamlog.raft.voters import Voter, VoterSet
from streamlog.storage.files.meta_properties import new_id

IDENTIFY_TIMEOUT_S: Final = 0.5
IDENTIFY_WAIT_S: Final = 2.0
"""A node that waits for an id lets the other side hold the call for so long."""
WAIT_MS_MAX: Final = 10_000
PAUSE_S: Final = (0.03, 0.3)
"""Between two attempts to reach a node: the first pause, which is doubled up to the longest."""


class IdentificationService:
    """Answers who this process is: node id, incarnation, cluster. Owned by the node, served from its start."""

    def __init__(self, node_id: BrokerId, incarnation_id: bytes) -> None:
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._cluster_id = self._stored_cluster_id = ""
        self._voters = VoterSet()
        self._current_voters: Callable[[], VoterSet] = VoterSet
        self._without_log = False
        self._known = asyncio.Event()

    def set_stored(self, cluster_id: str) -> None:
        """It is on the disk; the voters are not known yet."""
        self._stored_cluster_id = cluster_id

    def set_cluster(self, cluster_id: str, voters: VoterSet, current_voters: Callable[[], VoterSet] | None) -> None:
        """Serve the id from now on. It must be durable. `voters`: of the start; `current_voters`: by the log; None: the
        node lacks it, and waits for another's.
        """
        self._cluster_id = self._stored_cluster_id = cluster_id
        self._voters = voters
        self._current_voters = current_voters or VoterSet
        self._without_log = current_voters is None
        self._known.set()

    def service(self, clock: Clock) -> Service:
        return Service(
            pb.DESCRIPTOR.services_by_name["Identification"],
            clock,
            [unary("Identify", pb.IdentifyRequest, pb.IdentifyResponse, self._identify)],
        )

    async def _identify(self, request: pb.IdentifyRequest, call: Call) -> pb.IdentifyResponse:
        if request.wait_ms and not self._known.is_set():
            try:
                async with timeout(min(request.wait_ms, WAIT_MS_MAX) / 1000):
                    await self._known.wait()
            except TimeoutError:
                pass
        return pb.IdentifyResponse(
            node_id=self._node_id,
            incarnation_id=self._incarnation_id,
            cluster_id=self._cluster_id,
            stored_cluster_id=self._stored_cluster_id,
            voters=str(self._voters),
            current_voters=str(self._current_voters()),
            without_log=self._without_log,
        )


class ClusterFormation:
    """One search for the cluster's id."""

    def __init__(self, node_id: BrokerId, *, network: Network, random: Random, probe: Probe) -> None:
        self._node_id = node_id
        self._network = network
        self._random = random
        self._probe = probe

    async def as_voter(self, voters: VoterSet) -> tuple[str, VoterSet]:
        """The id, learned or generated: the caller makes it durable. And the voters by the log of a quorum that runs;
        empty: none is known. InconsistentClusterError where there are two clusters.
        """
        others = self._others(voters)
        if self._node_id == voters.voters[0].node_id:
            return await self._generate_unless_known(others, voters.majority)
        found = await self._first_known([voter.address for voter in others])
        return found.cluster_id, found.current_voters

    async def as_voter_without_log(self, cluster_id: str, voters: VoterSet) -> VoterSet:
        """The voters by the log of this cluster's quorum, from the first node that has it; empty when all others have
        answered as its voters, and a log without entries is the most that one has. InconsistentClusterError where they
        have answered and one belongs to another cluster.
        """
        others, pause = self._others(voters), _Pause(self._random)
        while True:
            answers = await self._answers(others)
            joined = [answer for answer in answers if answer.cluster_id == cluster_id]
            for answer in joined:
                if answer.current_voters:
                    return answer.current_voters
            as_voters = [answer for answer in joined if answer.runs_as_voter]
            if len(as_voters) == len(others) and not all(answer.without_log for answer in as_voters):
                return VoterSet()
            foreign = [answer for answer in answers if answer.stored_cluster_id not in ("", cluster_id)]
            if foreign and len(joined) + len(foreign) == len(others):
                raise _of_another_cluster(cluster_id, foreign[0], voters)
            await pause.wait()

    def _others(self, voters: VoterSet) -> list[Voter]:
        return [voter for voter in voters if voter.node_id != self._node_id]

    async def as_observer(self, addresses: Sequence[str]) -> Identified:
        """The answer of the first node that knows its cluster."""
        return await self._first_known(addresses)

    async def _generate_unless_known(self, others: Sequence[Voter], majority: int) -> tuple[str, VoterSet]:
        pause = _Pause(self._random)
        while True:
            valid = await self._answers(others)
            known = sorted({answer.stored_cluster_id for answer in valid} - {""})
            if len(known) > 1:
                raise InconsistentClusterError(
                    f"the voters belong to different clusters: {', '.join(known)}; remove the ones that do not belong"
                    " to this cluster from controller.quorum.voters",
                    field="controller.quorum.voters",
                )
            if any(answer.cluster_id and not answer.without_log for answer in valid):
                logged = next((answer.current_voters for answer in valid if answer.current_voters), VoterSet())
                if logged or not any(answer.is_opening for answer in valid):
                    return known[0], logged
            if not known and 1 + len(valid) >= majority:
                cluster_id = new_id(self._random)
                self._probe("cluster_id_drawn", cluster=cluster_id, answered=len(valid))
                return cluster_id, VoterSet()
            await pause.wait()

    async def _answers(self, others: Sequence[Voter]) -> list[Identified]:
        """An answer of another node, which has a voter's old address, does not count."""
        answers = await asyncio.gather(*(self._try(voter.address) for voter in others))
        return [
            answer
            for voter, answer in zip(others, answers, strict=True)
            if answer is not None and answer.node_id == voter.node_id
        ]

    async def _try(self, address: str) -> Identified | None:
        try:
            return await identify(self._network, address, timeout_s=IDENTIFY_TIMEOUT_S)
        except (RpcError, StreamlogError):
            return None

    async def _first_known(self, addresses: Sequence[str]) -> Identified:
        found: list[Identified] = []

        async def ask(address: str) -> None:
            found.append(await self._ask_until_known(address))
            raise _Found

        try:
            async with asyncio.TaskGroup() as tasks:
                for address in addresses:
                    tasks.create_task(ask(address))
        except* _Found:
            pass
        return found[0]

    async def _ask_until_known(self, address: str) -> Identified:
        pause, loop = _Pause(self._random), asyncio.get_running_loop()
        while True:
            begin = loop.time()
            try:
                answer = await identify(self._network, address, timeout_s=IDENTIFY_TIMEOUT_S, wait_s=IDENTIFY_WAIT_S)
            except (RpcError, StreamlogError):
                await pause.wait()
                continue
            if answer.cluster_id and not answer.without_log:
                return answer
            if loop.time() - begin < PAUSE_S[1]:
                await pause.wait()  # the other side did not wait


def _of_another_cluster(cluster_id: str, answer: Identified, voters: VoterSet) -> InconsistentClusterError:
    voter = voters.get(answer.node_id)
    address = "" if voter is None else f" at {voter.address}"
    return InconsistentClusterError(
        f"this node belongs to cluster {cluster_id}, and waits for a voter that has the log of its metadata, but node "
        f"{answer.node_id}{address} belongs to cluster {answer.stored_cluster_id}: correct controller.quorum.voters",
        field="controller.quorum.voters",
    )


class _Found(Exception):
    """Cancels the other tasks of the group."""


class _Pause:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._next_s = PAUSE_S[0]

    async def wait(self) -> None:
        await asyncio.sleep(self._random.uniform(0.5, 1.0) * self._next_s)
        self._next_s = min(2 * self._next_s, PAUSE_S[1])
