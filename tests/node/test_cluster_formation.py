"""The search for the cluster's id, where another program is at a node's address."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import pytest

from streamlog.api.pb import admin_pb2
from streamlog.api.pb import identification_pb2 as pb
from streamlog.controller.identity import identify
from streamlog.errors import BrokerNotAvailableError, InconsistentClusterError, InvalidRequestError, Status
from streamlog.model import BrokerId
from streamlog.node import Node
from streamlog.node.cluster_formation import ClusterFormation
from streamlog.ports import Network, NoListenerError
from streamlog.raft.voters import Voter, VoterSet, parse_voters
from streamlog.services.admin.voters import VoterCommands
from streamlog.sim import SimLoop, run
from streamlog.sim.world import World

from .calls import Calls, until_done
from .kit import Nodes, run_story


class OtherProgram:
    """As a Network and its Channel: it gives the same answer to each call, at once."""

    def __init__(self, answer: pb.IdentifyResponse) -> None:
        self.answer = answer
        self.calls = 0

    def connect(self, address: str) -> OtherProgram:
        return self

    async def unary(
        self, method: str, request: bytes, *, timeout_s: float, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        self.calls += 1
        await asyncio.sleep(0)
        return self.answer.SerializeToString()

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("cluster_id", ["x" * 65, "\u00e9" * 20, "a\nb", "x" * 10_000])
async def test_a_cluster_id_that_no_node_has_is_not_taken(cluster_id: str) -> None:
    program = OtherProgram(pb.IdentifyResponse(node_id=1, cluster_id=cluster_id))
    with pytest.raises(BrokerNotAvailableError, match="its cluster id is none"):
        await identify(cast(Network, program), "n1:9092", timeout_s=1.0)


async def test_a_voter_whose_files_are_not_open_yet_is_not_taken_for_an_observer() -> None:
    """It does not name its voters before."""
    program, added = OtherProgram(pb.IdentifyResponse(node_id=4)), Voter(node_id=BrokerId(4), address="n4:9092")
    absent = cast(Any, None)
    commands = VoterCommands(absent, absent, absent, cast(Network, program))
    await commands._check_follows_the_log(added)
    program.answer.cluster_id = "c"
    with pytest.raises(InvalidRequestError, match="runs as an observer"):
        await commands._check_follows_the_log(added)


def test_one_that_has_no_cluster_and_does_not_wait_is_not_called_without_pause() -> None:
    program = OtherProgram(pb.IdentifyResponse(node_id=1))

    async def main(loop: SimLoop) -> None:
        world = World(loop, 1)
        ports = world.host("n4").boot()
        formation = ClusterFormation(
            BrokerId(4), network=cast(Network, program), random=ports.random, probe=cast(Any, lambda *_, **__: None)
        )
        searching = asyncio.ensure_future(formation.as_observer(["n1:9092"]))
        await asyncio.sleep(10)
        searching.cancel()
        await asyncio.wait([searching])
        world.stop()

    run(main, seed=1)
    assert 20 < program.calls < 100


_VOTERS: Final = parse_voters("1@n1:9092,2@n2:9092,3@n3:9092")
_EMPTY_LOG: Final = pb.IdentifyResponse(cluster_id="A", stored_cluster_id="A", voters=str(_VOTERS))
_WAITS: Final = pb.IdentifyResponse(cluster_id="A", stored_cluster_id="A", voters=str(_VOTERS), without_log=True)
_OPENING: Final = pb.IdentifyResponse(stored_cluster_id="A")
_OBSERVER: Final = pb.IdentifyResponse(cluster_id="A", stored_cluster_id="A", voters="1@n1:9092")
_OTHER: Final = pb.IdentifyResponse(cluster_id="B", stored_cluster_id="B", voters=str(_VOTERS))
_OTHER_OPENING: Final = pb.IdentifyResponse(stored_cluster_id="B")


class OtherNodes:
    """As a Network: what nodes 2 and 3 answer; None: nothing."""

    def __init__(self, *answers: pb.IdentifyResponse | None) -> None:
        self._answers = dict(zip((2, 3), answers, strict=True))

    def connect(self, address: str) -> OtherProgram:
        node_id = int(address[1])
        answer = self._answers[node_id]
        if answer is None:
            raise NoListenerError(Status.UNAVAILABLE)
        full = pb.IdentifyResponse(node_id=node_id)
        full.MergeFrom(answer)
        return OtherProgram(full)


def begun_with(*answers: pb.IdentifyResponse | None, first: bool = False) -> VoterSet | None:
    """The voters that node 1 of cluster A, without its log, goes by; None: it waits. `first`: it has no id either."""
    found: list[VoterSet] = []

    async def main(loop: SimLoop) -> None:
        world = World(loop, 1)
        network, random = cast(Network, OtherNodes(*answers)), world.host("n1").boot().random
        formation = ClusterFormation(BrokerId(1), network=network, random=random, probe=lambda *_, **__: None)

        async def search() -> VoterSet:
            if first:
                return (await formation.as_voter(_VOTERS))[1]
            return await formation.as_voter_without_log("A", _VOTERS)

        try:
            found.append(await asyncio.wait_for(search(), 10))
        except TimeoutError:
            pass
        finally:
            world.stop()

    run(main, seed=1)
    return found[0] if found else None


def test_voters_with_an_empty_log_and_without_one_begin() -> None:
    assert begun_with(_EMPTY_LOG, _WAITS) == VoterSet()


@pytest.mark.parametrize("other", [None, _OPENING, _OBSERVER])
def test_what_is_no_voter_with_an_empty_log_does_not_count_as_one(other: pb.IdentifyResponse | None) -> None:
    assert begun_with(other, _EMPTY_LOG) is None
    assert begun_with(_WAITS, other) is None


def test_a_voter_without_disks_waits_for_the_log_that_is_opened() -> None:
    assert begun_with(_OPENING, _EMPTY_LOG, first=True) is None
    assert begun_with(_WAITS, _EMPTY_LOG, first=True) == VoterSet()


@pytest.mark.parametrize("other", [_OTHER, _OTHER_OPENING])
def test_a_node_of_another_cluster_does_not_count_as_a_voter(other: pb.IdentifyResponse) -> None:
    for answer in (_EMPTY_LOG, _WAITS):
        with pytest.raises(InconsistentClusterError, match="node 2 at n2:9092 belongs to cluster B"):
            begun_with(other, answer)
    assert begun_with(other, None) is None  # this one may have the log
    assert begun_with(other, _OPENING) is None
    logged = pb.IdentifyResponse(cluster_id="A", voters=str(_VOTERS), current_voters="3@n3:9092")
    assert begun_with(other, logged) == parse_voters("3@n3:9092")


def test_a_node_that_asks_for_the_voters_gets_those_in_effect() -> None:
    """Voters 1 and 2 have been replaced and are gone; the settings of the nodes that are asked still name them."""

    async def story(nodes: Nodes) -> None:
        nodes.start()
        await nodes.ready()
        settings = ",".join(f"{n}@n{n}:9092" for n in (1, 2, 3))
        nodes.start(7, controller_quorum_voters=settings)  # an observer
        for node_id in (4, 5):
            nodes.start(node_id, controller_quorum_voters=f"{settings},{node_id}@n{node_id}:9092")
        await nodes.ready()
        calls = Calls(nodes.world.host("client").boot().network)
        for old, new in ((1, 4), (2, 5)):
            add, remove = admin_pb2.AddVoterRequest(node_id=new), admin_pb2.RemoveVoterRequest(node_id=old)
            await calls.call("n3:9092", "Admin/AddVoter", add, admin_pb2.AddVoterResponse, timeout_s=20)
            await calls.call("n3:9092", "Admin/RemoveVoter", remove, admin_pb2.RemoveVoterResponse, timeout_s=20)
        await calls.close()
        now = "3@n3:9092,4@n4:9092,5@n5:9092"
        await nodes.until(lambda: {voters_at(nodes.node(n)) for n in (3, 7)} == {now})
        for node_id in (1, 2, 3):
            nodes.host(node_id).crash()
        nodes.start(3)
        for node_id, asked in ((8, "n7:9092"), (9, "n3:9092")):
            nodes.start(node_id, controller_quorum_voters="", controller_quorum_bootstrap_servers=asked)
        await nodes.ready(3, 8, 9)
        joined = {host: fields["voters"] for _, host, fields in nodes.events("cluster_joined")}
        assert joined["n8"] == joined["n9"] == now

    run_story(story)


def voters_at(node: Node) -> str:
    """In effect, as the node knows them."""
    assert node._member is not None
    return str(node._member.voters())


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("were_observers", [True, False])
def test_a_quorum_of_one_grows_to_three(were_observers: bool, seed: int) -> None:
    """By their settings nodes 2 and 3 are a majority. They have no vote before they are added, whichever node is up."""

    async def story(nodes: Nodes) -> None:
        nodes.start(1, controller_quorum_voters="1@n1:9092")
        if were_observers:
            nodes.start(2, 3, controller_quorum_voters="1@n1:9092")
        await nodes.ready()
        calls = Calls(nodes.world.host("client").boot().network)
        await until_done(partial(calls.create_topic, "n1:9092", "t", replication_factor=1))
        for node in nodes.alive():
            await nodes.stopped(node.node_id)
        nodes.start(2, 3)
        await asyncio.sleep(10)
        assert nodes.controller() is None  # they wait for voter 1
        nodes.start(1)
        await nodes.ready()
        assert {voters_at(node) for node in nodes.alive()} == {"1@n1:9092"}
        for node_id in (2, 3):
            add = admin_pb2.AddVoterRequest(node_id=node_id)
            await calls.call("n1:9092", "Admin/AddVoter", add, admin_pb2.AddVoterResponse, timeout_s=20)
        nodes.host(1).crash()
        await until_done(partial(calls.create_topic, "n2:9092", "u", replication_factor=2))
        nodes.start(1)
        await nodes.ready()
        await nodes.until(lambda: all(topics(node) == {"t", "u"} for node in nodes.alive()))
        assert len([node for node in nodes.alive() if node.controller and node.controller.is_active]) == 1
        await calls.close()

    run_story(story, seed=seed)


def test_a_voter_that_lost_its_metadata_waits_for_one_that_has_it() -> None:
    """Voter 2 has never run: without the wait it and voter 1 would be a majority of the settings."""

    async def story(nodes: Nodes) -> None:
        nodes.start(1, 3, metadata_log_dir="/meta")
        await nodes.ready()
        calls = Calls(nodes.world.host("client").boot().network)
        await until_done(partial(calls.create_topic, "n1:9092", "t", replication_factor=2))
        await calls.close()
        for node in nodes.alive():
            await nodes.stopped(node.node_id)
        nodes.start(1, 2, metadata_log_dir="/lost")  # as an empty disk
        await asyncio.sleep(10)
        assert nodes.controller() is None
        _, host, fields = nodes.events("quorum_wanted")[-1]
        assert (host, fields["voters"]) == ("n1", "2@n2:9092,3@n3:9092")
        nodes.start(3, metadata_log_dir="/meta")
        await nodes.ready()
        await nodes.until(lambda: all(topics(node) == {"t"} for node in nodes.alive()))

    run_story(story)


@pytest.mark.parametrize("quorum", ["/data", "/meta"])  # /meta: the others have the id there alone
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_voter_that_has_an_id_says_so_while_its_log_is_opened(seed: int, quorum: str) -> None:
    """Voter 1 has lost its disks, and asks the two others while these start on slow ones."""

    async def story(nodes: Nodes) -> None:
        nodes.start(metadata_log_dir=quorum)
        await nodes.ready()
        for node_id in (1, 2, 3):
            await nodes.stopped(node_id)
        nodes.start(1, log_dirs="/empty", metadata_log_dir="/empty")
        for node_id in (2, 3):
            nodes.host(node_id).disk.faults.slow = 2_000.0
            nodes.start(node_id, log_dirs=quorum.replace("meta", "empty"), metadata_log_dir=quorum)
        await nodes.until(lambda: all(nodes.has_recorded(f"n{node_id}", "listening") for node_id in (2, 3)))
        await asyncio.sleep(20)
        for node_id in (2, 3):
            nodes.host(node_id).disk.faults.slow = 1.0
        assert len(nodes.events("cluster_id_drawn")) == 1
        await nodes.ready()
        assert len({node.cluster_id for node in nodes.alive()}) == 1

    run_story(story, seed=seed)


def topics(node: Node) -> set[str]:
    return {topic.name for topic in node.view.image.topics.values() if not topic.name.startswith("__")}
