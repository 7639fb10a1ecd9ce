"""ControllerLink: it finds the active controller, repeats what may be repeated, and says where it cannot know."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus

from streamlog.api.errors import DOMAIN, to_rpc
from streamlog.api.pb import controller_pb2 as pb
from streamlog.controller.active import ActiveController
from streamlog.controller.identity import IDENTIFY
from streamlog.controller.link import ASK_S, LAG_S, SERVICE, ControllerLink
from streamlog.errors import (
    BrokerIdNotRegisteredError,
    InvalidTopicError,
    NotControllerError,
    OutcomeUnknownError,
    QuorumUnavailableError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    Status,
    ThrottledError,
)
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, RaftIndex, TopicId
from streamlog.ports import Clock, RpcError
from streamlog.raft.voters import Voter
from streamlog.sim import SimClock, SimLoop, run
from tests.controller.scripted_network import GONE, Answer, ScriptedNetwork, gone

LATE = to_rpc(RequestTimedOutError("the deadline passed before the call began", too_late="dropped"))
FORWARD = SERVICE + "Forward"


def names(address: str | None) -> Answer:
    """A node that is not the controller, and says who is."""

    def answer(method: str, request: bytes) -> bytes:
        if method == IDENTIFY:
            return b""
        if address is None:
            raise to_rpc(NotControllerError("not me, and none that I know"))
        raise to_rpc(NotControllerError("not me", leader=3, address=address))

    return answer


def forged(leader: str, address: str) -> Answer:
    """Another program, which names a controller without the limits of a node."""
    info = ErrorInfo(reason=NotControllerError.code, domain=DOMAIN, metadata={"leader": leader, "address": address})
    status = RpcStatus(code=Status.FAILED_PRECONDITION.value)
    status.details.add().Pack(info)

    def answer(method: str, request: bytes) -> bytes:
        raise RpcError(Status.FAILED_PRECONDITION, "not me", details_bin=status.SerializeToString())

    return answer


def topic_made(method: str, request: bytes) -> bytes:
    if method == IDENTIFY:
        return b""
    if method == FORWARD:
        asked = pb.ForwardRequest.FromString(request)
        return pb.ForwardResponse(response=b"to " + asked.request).SerializeToString()
    return pb.CreateInternalTopicResponse(topic_id=bytes(16)).SerializeToString()


class Deposed:
    """This node's own controller, which has lost its leadership a moment ago."""

    is_active = True
    knows_leader = True

    def __init__(self) -> None:
        self.asked = 0

    async def create_internal_topic(self, name: str) -> TopicId:
        self.asked += 1
        raise NotControllerError("the leadership of the quorum has been lost")


def run_story(
    network: ScriptedNetwork,
    story: Callable[[ControllerLink, MetadataView], Awaitable[None]],
    *,
    active: Deposed | None = None,
) -> None:
    async def main(loop: SimLoop) -> None:
        view = MetadataView()
        clock: Clock = SimClock(loop)
        link = ControllerLink(
            BrokerId(9),
            view=view,
            active=cast("ActiveController | None", active),
            voters=lambda: [Voter(node_id=BrokerId(i), address=where) for i, where in enumerate(network.nodes, 1)],
            network=network,
            clock=clock,
            random=random.Random(1),
        )
        await story(link, view)
        await link.close()
        assert sorted(network.closed) == sorted({address for address, _ in network.asked})

    run(main)


def test_whom_the_view_knows_is_asked_first() -> None:
    network = ScriptedNetwork(a=gone, b=topic_made)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        view.set_controller(BrokerId(2), "b:1")
        assert await link.create_internal_topic("t") == bytes(16)
        assert network.asked == [("b:1", "CreateInternalTopic")]

    run_story(network, story)


def test_whom_others_name_is_asked_next() -> None:
    network = ScriptedNetwork(a=names("c:1"), b=gone, c=topic_made)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        await link.create_internal_topic("t")
        assert [address for address, _ in network.asked] == ["a:1", "c:1"]
        await link.create_internal_topic("t")
        assert [address for address, _ in network.asked][2:] == ["c:1"]  # remembered

    run_story(network, story)


@pytest.mark.parametrize(
    ("leader", "address"),
    [("9" * 4_400, "c:1"), ("٣", "c:1"), (str(2**31), "c:1"), ("3", "c" * 256)],
    ids=["digits", "other digits", "node id", "address"],
)
def test_a_controller_that_no_node_names_is_not_asked(leader: str, address: str) -> None:
    network = ScriptedNetwork(a=forged(leader, address), b=topic_made)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        await link.create_internal_topic("t")
        assert [where for where, _ in network.asked] == ["a:1", "b:1"]

    run_story(network, story)


def test_a_node_without_a_vote_tells_who_answered() -> None:
    """It learns the controller only from clients' calls."""
    network = ScriptedNetwork(a=gone, b=topic_made)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        await link.create_internal_topic("t")
        assert (view.controller, view.controller_address) == (2, "b:1")
        network.nodes |= {"a:1": topic_made, "b:1": names(None)}
        await link.create_internal_topic("t")
        assert (view.controller, view.controller_address) == (1, "a:1")
        network.nodes |= {"a:1": gone, "b:1": names(None)}
        with pytest.raises(QuorumUnavailableError):
            await link.create_internal_topic("t", timeout_s=1)
        assert view.controller is None

    run_story(network, story)


def test_a_voter_follows_the_quorum_alone() -> None:
    network = ScriptedNetwork(a=gone, b=topic_made)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        await link.create_internal_topic("t")
        assert view.controller is None

    run_story(network, story, active=Deposed())


def test_a_voter_that_hears_no_leader_knows_whom_it_meets() -> None:
    """It was voted out: the quorum says nothing to it any more."""
    network = ScriptedNetwork(a=gone, b=topic_made)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        await link.create_internal_topic("t")
        assert view.controller == 2

    active = Deposed()
    active.knows_leader = False
    run_story(network, story, active=active)


def test_while_there_is_none_all_are_asked_again_until_the_time_is_over() -> None:
    network = ScriptedNetwork(a=names(None), b=gone)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        with pytest.raises(QuorumUnavailableError):
            await link.create_internal_topic("t", timeout_s=3)
        rounds = len(network.asked) // 2
        assert 5 < rounds < 40

    run_story(network, story)


def test_the_own_controller_that_refuses_at_once_is_asked_once_a_round() -> None:
    """It refuses without a wait: asked again at once, for ever, it held the whole node up (kill -9 of two of three)."""
    network, own = ScriptedNetwork(a=gone, b=names(None)), Deposed()

    async def story(link: ControllerLink, view: MetadataView) -> None:
        with pytest.raises(QuorumUnavailableError):
            await link.create_internal_topic("t", timeout_s=3)
        assert 5 < own.asked <= len(network.asked) // 2 + 1

    run_story(network, story, active=own)


def test_errors_of_the_decision_are_not_repeated() -> None:
    def refuses(method: str, request: bytes) -> bytes:
        raise to_rpc(InvalidTopicError("no", field="name"))

    network = ScriptedNetwork(a=refuses)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        with pytest.raises(InvalidTopicError):
            await link.create_internal_topic("t")
        assert len(network.asked) == 1

    run_story(network, story)


@pytest.mark.parametrize("error", [GONE, LATE, to_rpc(OutcomeUnknownError("lost")), to_rpc(ThrottledError("full"))])
def test_what_does_no_harm_is_repeated(error: RpcError) -> None:
    calls = []

    def fails_once(method: str, request: bytes) -> bytes:
        calls.append(request)
        if len(calls) == 1:
            raise error
        return topic_made(method, request)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        await link.create_internal_topic("t")
        assert len(calls) == 2

    run_story(ScriptedNetwork(a=fails_once), story)


OTHER = RpcError(Status.UNIMPLEMENTED, "of another program")
FALSE_ANSWERS = (
    b"\x07",
    b"\x0a\xff\xff\xff\xff\x0f",
    b"",  # without a topic id
    OTHER,
    RpcError(Status.INTERNAL),
    RpcError(Status.PERMISSION_DENIED),
    RpcError(Status.RESOURCE_EXHAUSTED),
)


def answers_falsely(answer: bytes | RpcError) -> Answer:
    """At the address of a voter."""

    def respond(method: str, request: bytes) -> bytes:
        if isinstance(answer, RpcError):
            raise answer
        return answer

    return respond


@pytest.mark.parametrize("answer", FALSE_ANSWERS)
def test_after_a_false_answer_the_next_node_is_asked(answer: bytes | RpcError) -> None:
    network = ScriptedNetwork(a=answers_falsely(answer), b=topic_made)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        view.set_controller(BrokerId(1), "a:1")
        assert await link.create_internal_topic("t") == bytes(16)
        assert [address for address, _ in network.asked] == ["a:1", "b:1"]
        assert (view.controller, view.controller_address) == (2, "b:1")

    run_story(network, story)


@pytest.mark.parametrize("answer", FALSE_ANSWERS)
def test_false_answers_alone_are_none(answer: bytes | RpcError) -> None:
    async def story(link: ControllerLink, view: MetadataView) -> None:
        with pytest.raises(QuorumUnavailableError, match="no active controller answered within 2 s: "):
            await link.create_internal_topic("t", timeout_s=2)

    run_story(ScriptedNetwork(a=answers_falsely(answer)), story)


@pytest.mark.parametrize(
    "answer",
    [
        pb.AllocateProducerIdsResponse(first_producer_id=5),
        pb.AllocateProducerIdsResponse(first_producer_id=2**63 - 3, count=3),
    ],
)
def test_producer_ids_that_cannot_be_are_not_taken(answer: pb.AllocateProducerIdsResponse) -> None:
    async def story(link: ControllerLink, view: MetadataView) -> None:
        link.broker_epoch = BrokerEpoch(4)
        with pytest.raises(QuorumUnavailableError, match="must be at"):
            await link.allocate_producer_ids(timeout_s=2)

    run_story(ScriptedNetwork(a=answers_falsely(answer.SerializeToString())), story)


def test_nothing_is_asked_for_before_the_registration() -> None:
    network = ScriptedNetwork(a=gone)

    async def story(link: ControllerLink, view: MetadataView) -> None:
        with pytest.raises(BrokerIdNotRegisteredError):
            await link.allocate_producer_ids()
        assert network.asked == []

    run_story(network, story)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (GONE, OutcomeUnknownError),  # it may have got there
        (RpcError(Status.DEADLINE_EXCEEDED), OutcomeUnknownError),
        (LATE, OutcomeUnknownError),
        (to_rpc(OutcomeUnknownError("lost")), OutcomeUnknownError),
        (to_rpc(StaleBrokerEpochError("old")), StaleBrokerEpochError),
        (to_rpc(NotControllerError("not me")), QuorumUnavailableError),  # it was not carried out
        (OTHER, QuorumUnavailableError),
        (RpcError(Status.INTERNAL), OutcomeUnknownError),
    ],
)
def test_isr_changes_distinguish_refused_from_unknown(error: RpcError, expected: type[Exception]) -> None:
    def fails(method: str, request: bytes) -> bytes:
        raise error

    async def story(link: ControllerLink, view: MetadataView) -> None:
        link.broker_epoch = BrokerEpoch(4)
        with pytest.raises(expected):
            await link.alter_partition([], timeout_s=2)

    run_story(ScriptedNetwork(a=fails), story)


@pytest.mark.parametrize("answer", [b"\x07", pb.AlterPartitionResponse(results=[pb.IsrResult()]).SerializeToString()])
def test_an_isr_change_with_a_false_answer_may_have_been_made(answer: bytes) -> None:
    async def story(link: ControllerLink, view: MetadataView) -> None:
        link.broker_epoch = BrokerEpoch(4)
        with pytest.raises(OutcomeUnknownError, match="AlterPartition may or may not"):
            await link.alter_partition([], timeout_s=2)

    run_story(ScriptedNetwork(a=answers_falsely(answer)), story)


class TestForward:
    METHOD = "/streamlog.v1.Admin/CreateTopics"

    def test_the_answer_comes_when_it_holds_here(self) -> None:
        def answers(method: str, request: bytes) -> bytes:
            if method == IDENTIFY:
                return b""
            return pb.ForwardResponse(applied_index=7, response=b"done").SerializeToString()

        async def story(link: ControllerLink, view: MetadataView) -> None:
            waited: list[int] = []

            async def applied(index: RaftIndex) -> None:
                waited.append(index)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(view, "wait_until_applied", applied)
                assert await link.forward(self.METHOD, b"x", 5) == b"done"
            assert waited == [7]

        run_story(ScriptedNetwork(a=answers), story)

    def test_a_dead_controller_is_passed_over_before_anything_is_sent(self) -> None:
        network = ScriptedNetwork(a=gone, b=topic_made)

        async def story(link: ControllerLink, view: MetadataView) -> None:
            view.set_controller(BrokerId(1), "a:1")
            assert await link.forward(self.METHOD, b"x", 5) == b"to x"
            assert ("a:1", "Forward") not in network.asked

        run_story(network, story)

    def test_a_controller_that_dies_with_the_call_leaves_the_outcome_unknown(self) -> None:
        def dies(method: str, request: bytes) -> bytes:
            if method == IDENTIFY:
                return b""
            raise GONE

        network = ScriptedNetwork(a=dies, b=topic_made)

        async def story(link: ControllerLink, view: MetadataView) -> None:
            with pytest.raises(OutcomeUnknownError, match="CreateTopics"):
                await link.forward(self.METHOD, b"x", 5)
            assert ("b:1", "Forward") not in network.asked

        run_story(network, story)

    @pytest.mark.parametrize("answer", [b"\x07", RpcError(Status.INTERNAL), RpcError(Status.DATA_LOSS)])
    def test_a_false_answer_leaves_the_outcome_unknown(self, answer: bytes | RpcError) -> None:
        network = ScriptedNetwork(a=lambda method, request: b"" if method == IDENTIFY else false(method, request))
        false = answers_falsely(answer)

        async def story(link: ControllerLink, view: MetadataView) -> None:
            with pytest.raises(OutcomeUnknownError, match="CreateTopics may or may not"):
                await link.forward(self.METHOD, b"x", 5)

        run_story(network, story)

    def test_a_program_that_does_not_know_the_call_is_passed_over(self) -> None:
        async def story(link: ControllerLink, view: MetadataView) -> None:
            assert await link.forward(self.METHOD, b"x", 5) == b"to x"

        run_story(ScriptedNetwork(a=answers_falsely(OTHER), b=topic_made), story)

    def test_who_is_no_controller_has_not_carried_it_out(self) -> None:
        async def story(link: ControllerLink, view: MetadataView) -> None:
            assert await link.forward(self.METHOD, b"x", 5) == b"to x"

        run_story(ScriptedNetwork(a=names("b:1"), b=topic_made), story)

    @pytest.mark.parametrize("timeout_s", [0.3, 5, 30])
    def test_a_client_is_answered_while_it_still_waits(self, timeout_s: float) -> None:
        async def story(link: ControllerLink, view: MetadataView) -> None:
            async with asyncio.timeout(timeout_s):
                with pytest.raises(QuorumUnavailableError):
                    await link.forward(self.METHOD, b"x", timeout_s)

        run_story(ScriptedNetwork(a=gone), story)


class TestCatchUp:
    @staticmethod
    def at_seven(method: str, request: bytes) -> bytes:
        return pb.ReadIndexResponse(applied_index=7).SerializeToString()

    def test_it_waits_for_what_others_were_sent(self) -> None:
        async def story(link: ControllerLink, view: MetadataView) -> None:
            waited: list[int] = []

            async def applied(index: RaftIndex) -> None:
                waited.append(index)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(view, "wait_until_applied", applied)
                await link.catch_up(1)
            assert waited == [7]

        run_story(ScriptedNetwork(a=names("b:1"), b=self.at_seven), story)

    @pytest.mark.parametrize(
        ("controller", "timeout_s", "waits_s"),
        [(at_seven, 1, 1), (at_seven, 15, LAG_S), (gone, 1, 1), (gone, 15, ASK_S)],
    )
    def test_a_node_that_lags_or_is_alone_answers_all_the_same(
        self, controller: Answer, timeout_s: float, waits_s: float
    ) -> None:
        async def story(link: ControllerLink, view: MetadataView) -> None:
            before = asyncio.get_running_loop().time()
            await link.catch_up(timeout_s)
            assert waits_s - 0.1 < asyncio.get_running_loop().time() - before < waits_s + 0.6

        run_story(ScriptedNetwork(a=controller), story)
