"""Proposals on their way to the controller (SEMANTICS 3): what is certain, what is not, and who is asked again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from streamlog.broker.leading.isr_changes import LINGER_S, REFUSED_S, REVIEWED_AT_ONCE, IsrChanges
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.errors import IneligibleReplicaError, InvalidUpdateVersionError, OutcomeUnknownError, StreamlogError
from streamlog.metadata.partitions.isr import IsrProposal, IsrResult
from streamlog.metadata.records import Partition
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, TopicId, TopicPartition
from streamlog.replication.isr import Isr, ProposedIsr
from streamlog.sim.machine import Machine
from tests.metadata.rig import Rig as Controller

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
TOPIC = TopicId(bytes(16))
PARTITION = TopicPartition("t", PartitionId(0))
EPOCH = LeaderEpoch(4)
ACCEPTED = Partition(
    replicas=(ONE, TWO, THREE),
    isr=(ONE, TWO, THREE),
    leader=ONE,
    leader_epoch=LeaderEpoch(4),
    partition_epoch=PartitionEpoch(8),
)


class FakeReplica(Struct):
    """A leadership whose ISR is the real one."""

    isr: Isr = field(default_factory=lambda: Isr((ONE, TWO), LeaderEpoch(4), 7))
    topic_id: TopicId = TOPIC
    partition: TopicPartition = PARTITION
    leader_epoch: LeaderEpoch = EPOCH
    ended: StreamlogError | None = None
    others_eligible: bool = False
    refused: int = 0
    reviewed: int = 0
    forgotten: list[BrokerId] = field(default_factory=list)
    follower_epochs: dict[BrokerId, BrokerEpoch] = field(default_factory=dict)

    @property
    def state(self) -> object:
        return SimpleNamespace(isr=self.isr, forget_position=self.forgotten.append)

    def on_isr(self, isr: tuple[BrokerId, ...], partition_epoch: int, *, others_eligible: bool) -> None:
        self.isr.accepted(isr, partition_epoch)
        self.others_eligible = others_eligible

    def on_refused(self, proposal: ProposedIsr) -> None:
        self.refused += 1
        self.isr.refused(proposal)

    def review_isr(self) -> None:
        self.reviewed += 1


class FakeLink(Struct):
    """Returns the given answers, the last one again and again."""

    answers: list[Partition | StreamlogError]
    asked: list[IsrProposal] = field(default_factory=list)

    async def alter_partition(self, proposals: Sequence[IsrProposal]) -> Sequence[IsrResult]:
        self.asked += proposals
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OutcomeUnknownError):
            raise answer
        error = answer if isinstance(answer, StreamlogError) else None
        state = answer if isinstance(answer, Partition) else None
        return [IsrResult(topic_id=TOPIC, partition_id=PartitionId(0), partition=state, error=error) for _ in proposals]


class Desk:
    def __init__(self, *answers: Partition | StreamlogError) -> None:
        self.machine = Machine(1)
        self.controller = Controller()
        self.controller.start_all(1, 2, 3)
        self.view = MetadataView()
        self.publish()
        self.link, self.replica = FakeLink(list(answers)), FakeReplica()
        self.changes = IsrChanges(
            self.link,
            self.view,
            ONE,
            clock=self.machine.clock,
            random=self.machine.random,
            probe=lambda event, /, **fields: None,
        )
        self.led = cast(LeaderReplica, self.replica)

    def publish(self) -> None:
        for index, command in self.controller.log:
            if index > self.view.image.index:
                self.view.machine.apply(index, command)

    def propose(self, *isr: BrokerId) -> ProposedIsr:
        proposal = self.replica.isr.propose(isr)
        assert proposal is not None
        self.changes.proposed(self.led, proposal)
        return proposal

    def report(self, *isr: BrokerId, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Propose, and let so much time pass; `meanwhile`: after the first attempt."""

        async def story() -> None:
            task = asyncio.get_running_loop().create_task(self.changes.run(lambda: [self.led]))
            self.propose(*isr)
            await asyncio.sleep(0.01)
            meanwhile()
            await asyncio.sleep(seconds)
            task.cancel()
            await asyncio.wait([task])

        self.machine.run(story())
        self.machine.close()

    def follows(self, broker: BrokerId) -> None:
        self.changes.follows(self.led, broker, self.controller.epoch(broker))


def test_an_accepted_set_is_passed_to_the_leader() -> None:
    desk = Desk(ACCEPTED)
    desk.follows(THREE)
    desk.report(ONE, TWO, THREE, seconds=1)
    assert (desk.replica.isr.committed, desk.replica.isr.partition_epoch) == ((ONE, TWO, THREE), 8)
    assert not desk.replica.others_eligible
    assert len(desk.link.asked) == 1
    assert [member.broker_epoch for member in desk.link.asked[0].isr] == [desk.controller.epoch(b) for b in (1, 2, 3)]


def test_that_one_which_left_is_eligible_is_passed_to_the_leader() -> None:
    desk = Desk(replace(ACCEPTED, isr=(ONE,), elr=(TWO,)))
    desk.report(ONE, seconds=1)
    assert desk.replica.isr.committed == (ONE,)
    assert desk.replica.others_eligible


def test_what_became_of_it_is_asked_again_until_it_is_known() -> None:
    desk = Desk(OutcomeUnknownError("?"), OutcomeUnknownError("?"), ACCEPTED)
    desk.follows(THREE)
    desk.report(ONE, TWO, THREE, seconds=1)
    assert len(desk.link.asked) == 3
    assert desk.replica.isr.committed == (ONE, TWO, THREE)


def test_a_newer_partition_epoch_is_no_refusal() -> None:
    """It may be this very proposal's: the larger set goes on to govern until the metadata say what is."""
    desk = Desk(OutcomeUnknownError("?"), InvalidUpdateVersionError("stale epoch 7"))
    desk.follows(THREE)
    desk.report(ONE, TWO, THREE, seconds=60)
    assert desk.replica.refused == 0
    assert desk.replica.isr.maximal == (ONE, TWO, THREE)


def test_a_refusal_counts_at_once_where_nothing_was_asked_before() -> None:
    desk = Desk(IneligibleReplicaError("fenced"))
    desk.follows(THREE)
    desk.report(ONE, TWO, THREE, seconds=1)
    assert desk.replica.refused == 1
    assert desk.replica.isr.maximal == (ONE, TWO)
    assert desk.replica.reviewed == 1


def test_a_refusal_counts_not_while_an_earlier_attempt_may_be_under_way() -> None:
    early, late = (
        Desk(OutcomeUnknownError("?"), IneligibleReplicaError("fenced")),
        Desk(OutcomeUnknownError("?"), IneligibleReplicaError("fenced")),
    )
    for desk, seconds, refused in ((early, LINGER_S - 1, 0), (late, LINGER_S + 2, 1)):
        desk.follows(THREE)
        desk.report(ONE, TWO, THREE, seconds=seconds)
        assert desk.replica.refused == refused


def test_a_position_of_a_former_registration_adds_no_member() -> None:
    """KIP-903: the node may have lost its log since."""
    desk = Desk(ACCEPTED)
    desk.follows(THREE)
    desk.controller.fence(3)
    desk.controller.start(3, clean=False)
    desk.publish()
    desk.report(ONE, TWO, THREE, seconds=1)
    assert desk.link.asked == []
    assert desk.replica.forgotten == [THREE]
    assert desk.replica.isr.maximal == (ONE, TWO)


def test_each_attempt_names_the_registration_of_the_position() -> None:
    """With the new one the controller took a replica into the ISR that had lost its log."""
    desk = Desk(OutcomeUnknownError("?"), IneligibleReplicaError("it has registered again"))
    desk.follows(THREE)
    first = desk.controller.epoch(3)

    def restart() -> None:
        desk.controller.fence(3)
        desk.controller.start(3, clean=False)
        desk.publish()
        desk.follows(THREE)  # its log is empty

    desk.report(ONE, TWO, THREE, seconds=LINGER_S + 2, meanwhile=restart)
    assert desk.controller.epoch(3) > first
    assert len(desk.link.asked) > 2
    assert {proposal.isr[2].broker_epoch for proposal in desk.link.asked} == {first}
    assert desk.replica.isr.maximal == (ONE, TWO)


def test_a_follower_of_a_leadership_that_begins_during_a_review_is_proposed() -> None:
    desk = Desk(ACCEPTED)
    desk.replica.topic_id = TopicId(bytes(15) + b"1")
    led = [cast(LeaderReplica, FakeReplica()) for _ in range(REVIEWED_AT_ONCE + 1)]

    async def story() -> None:
        task = asyncio.get_running_loop().create_task(desk.changes.run(lambda: led))
        await asyncio.sleep(0.01)
        desk.controller.fence(3)
        desk.controller.start(3, clean=False)
        desk.publish()
        while not cast(FakeReplica, led[0]).reviewed:  # noqa: ASYNC110  virtual time
            await asyncio.sleep(0)
        assert not cast(FakeReplica, led[-1]).reviewed
        desk.follows(THREE)
        await asyncio.sleep(0.01)
        desk.propose(ONE, TWO, THREE)
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])

    desk.machine.run(story())
    desk.machine.close()
    assert desk.replica.forgotten == []
    assert desk.replica.isr.committed == (ONE, TWO, THREE)


def test_nothing_is_kept_of_leaderships_that_have_ended() -> None:
    desk = Desk(IneligibleReplicaError("fenced"))

    async def story() -> None:
        task = asyncio.get_running_loop().create_task(desk.changes.run(list))
        for number in range(20):
            desk.replica = FakeReplica(topic_id=TopicId(number.to_bytes(16)))
            desk.led = cast(LeaderReplica, desk.replica)
            desk.follows(THREE)
            desk.propose(ONE, TWO, THREE)
            await asyncio.sleep(REFUSED_S)
            assert desk.replica.refused == 1
            desk.replica.ended = StreamlogError("the topic was deleted")
        task.cancel()
        await asyncio.wait([task])

    desk.machine.run(story())
    desk.machine.close()
    assert max(len(kept) for kept in vars(desk.changes).values() if isinstance(kept, dict)) <= 2


def test_what_the_leadership_took_with_it_is_not_asked() -> None:
    desk = Desk(OutcomeUnknownError("?"))
    desk.follows(THREE)
    desk.replica.ended = StreamlogError("over")
    desk.report(ONE, TWO, THREE, seconds=5)
    assert desk.link.asked == []
