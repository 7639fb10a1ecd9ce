"""The coordinator of groups over a real log on a simulated machine: loading, fencing, waiting for replicas, timers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator import group_shard
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.errors import (
    BrokerNotAvailableError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    DamagedFileError,
    InvalidRegularExpressionError,
    NotCoordinatorError,
    StreamlogError,
    UnknownMemberIdError,
)
from streamlog.groups import committing, membership
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.codec import encode
from streamlog.groups.committing import CommitOffsets, Committer, DeleteGroup, DeleteOffsets, OffsetToCommit
from streamlog.groups.decision import GroupContext, GroupDecision
from streamlog.groups.membership import (
    JOIN,
    LEAVE,
    Command,
    HeartbeatAnswer,
    MemberHeartbeat,
    MemberSubscription,
    RemoveMember,
    decide,
)
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.groups.records import AWAY, CurrentKey, CurrentValue, GroupRecord, MemberState, OffsetValue
from streamlog.groups.state import NOTHING, Group
from streamlog.model import (
    NO_LEADER_EPOCH,
    Acks,
    BrokerId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from streamlog.records import EndTransactionMarker
from streamlog.transactions.markers import PartitionMarker
from tests.broker.rig import ME, OTHER, P0, Rig, append_to
from tests.storage.batches import batch

T = TypeVar("T")
T_0 = TopicPartition("t", P0)
PRODUCER = ProducerId(7)


def offset_of(found: Mapping[TopicPartition, OffsetValue | StreamlogError | None]) -> int | None:
    value = found[T_0]
    assert not isinstance(value, StreamlogError)
    return None if value is None else value.offset


def heartbeat(member_id: str = "a", epoch: int = JOIN, *, pattern: str = "", session_ms: int = 0) -> MemberHeartbeat:
    subscription = MemberSubscription(
        topics=() if pattern else ("t",),
        pattern=pattern,
        rebalance_timeout_ms=60_000,
        session_timeout_ms=session_ms,
    )
    return MemberHeartbeat(
        group="g", member_id=member_id, epoch=epoch, subscription=subscription if epoch == JOIN else None
    )


class Bench:
    """A node that leads the only partition of `__consumer_offsets`, and topic `t` of one partition."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.rig.static |= {"offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": "1000"}
        self.rig.start()
        self.coordinator: GroupCoordinator
        self.begin()

    def begin(self) -> None:
        rig = self.rig

        async def run() -> None:
            clock = rig.machine.clock
            self.coordinator = GroupCoordinator(rig.replicas, rig.view, rig.configs, clock, rig._probe)
            self.task = asyncio.get_running_loop().create_task(self.coordinator.run())
            await asyncio.sleep(0)

        rig.machine.run(run())

    def create(self, *, replicas: tuple[BrokerId, ...] = (ME,), leader: BrokerId = ME) -> None:
        self.rig.create("t", 1)
        self.rig.create(OFFSETS_TOPIC, 2, replicas=replicas, leader=leader, configs={"cleanup.policy": "compact"})
        self.rig.rest()

    def restart(self) -> None:
        self.end()
        self.rig.restart()
        self.begin()
        self.rig.rest()

    def end(self) -> None:
        async def stop() -> None:
            self.task.cancel()
            await asyncio.wait([self.task])
            assert self.task.cancelled(), self.task.exception()

        self.rig.machine.run(stop())

    def run(self, work: Awaitable[T]) -> T:
        async def running() -> T:
            return await work

        return self.rig.machine.run(running())

    def beat(
        self, member_id: str = "a", epoch: int = JOIN, *, pattern: str = "", session_ms: int = 0
    ) -> HeartbeatAnswer:
        return self.run(self.coordinator.heartbeat(heartbeat(member_id, epoch, pattern=pattern, session_ms=session_ms)))

    async def commit(self, offset: int, member: Committer | None = None) -> None:
        wanted = OffsetToCommit(partition=T_0, offset=Offset(offset), leader_epoch=NO_LEADER_EPOCH, metadata="")
        command = CommitOffsets(group="g", member=member, offsets=(wanted,))
        (error,) = await self.coordinator.decide("g", lambda group, context: committing.commit(command, group, context))
        assert error is None

    async def commit_in_transaction(self, offset: int, epoch: int = 0) -> None:
        async def verify(partition: TopicPartition) -> None:
            """The transaction has it."""

        wanted = OffsetToCommit(partition=T_0, offset=Offset(offset), leader_epoch=NO_LEADER_EPOCH, metadata="")
        command = CommitOffsets(group="g", member=None, offsets=(wanted,))
        (error,) = await self.coordinator.commit_in_transaction(command, PRODUCER, ProducerEpoch(epoch), verify, 1.0)
        assert error is None

    async def end_transaction(self, epoch: int = 1) -> None:
        marker = EndTransactionMarker(commit=True, coordinator_epoch=0)
        at = TopicPartition(OFFSETS_TOPIC, P0)
        await self.coordinator.end_transaction(
            PartitionMarker(partition=at, producer_id=PRODUCER, producer_epoch=ProducerEpoch(epoch), marker=marker)
        )

    def committed(self) -> int | None:
        return offset_of(self.run(self.coordinator.fetch_offsets("g", None, [T_0])))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.end()
    bench.rig.stop()
    bench.rig.machine.close()


def test_without_its_topic_there_is_no_coordinator(bench: Bench) -> None:
    with pytest.raises(CoordinatorNotAvailableError):
        bench.beat()


def test_members_and_offsets_outlive_the_process(bench: Bench) -> None:
    bench.create()
    answer = bench.beat()
    assert len(answer.assignment or ()) == 1
    bench.run(bench.commit(5, Committer(member_id="a", epoch=answer.epoch)))
    bench.restart()
    assert bench.committed() == 5
    assert bench.beat(epoch=answer.epoch).epoch == answer.epoch
    assert bench.rig.probed("coordinator_loaded")[-1]["records"] == 6


def test_another_node_coordinates(bench: Bench) -> None:
    bench.create(replicas=(ME, OTHER), leader=OTHER)
    with pytest.raises(NotCoordinatorError) as refused:
        bench.beat()
    assert (refused.value.details["leader"], refused.value.details["address"]) == (OTHER, "node2:9092")


def test_nothing_is_answered_before_it_is_replicated(bench: Bench) -> None:
    bench.create(replicas=(ME, OTHER))
    follower_at: Callable[[int], None] = lambda offset: bench.rig.do(  # noqa: E731  a name for the follower's report
        lambda: bench.rig.leader(OFFSETS_TOPIC).on_position(OTHER, Offset(offset))
    )

    async def committing_and_reading() -> tuple[asyncio.Task[None], asyncio.Task[int | None]]:
        async def read() -> int | None:
            return offset_of(await bench.coordinator.fetch_offsets("g", None, [T_0]))

        loop = asyncio.get_running_loop()
        commit = loop.create_task(bench.commit(5))
        await asyncio.sleep(0)
        return commit, loop.create_task(read())

    commit, read = bench.rig.machine.run(committing_and_reading())
    bench.rig.rest()
    assert not commit.done()
    assert not read.done(), "a decision is returned only once it is replicated"
    follower_at(1)
    bench.rig.rest(0.1)
    assert commit.done()
    assert read.result() == 5


def test_a_new_leader_loads_only_what_is_committed(bench: Bench) -> None:
    bench.create(replicas=(ME, OTHER), leader=OTHER)
    follower = bench.rig.follower
    records = batch([b"x"], keys=[b"\x00\x63"])  # of a kind that this release does not know
    bench.rig.do(lambda: follower.on_batches(records, Offset(0), Offset(0)))
    bench.rig.change(2, leader=ME)
    bench.rig.rest()
    with pytest.raises(CoordinatorLoadInProgressError):
        bench.beat()
    bench.rig.do(lambda: bench.rig.leader(OFFSETS_TOPIC).on_position(OTHER, Offset(1)))
    bench.rig.rest(0.1)
    assert bench.committed() is None
    assert bench.rig.probed("group_records_unknown") == [{"partition": f"{OFFSETS_TOPIC}-0", "count": 1}]


def test_records_that_contradict_one_another_end_the_shard_and_not_the_node(bench: Bench) -> None:
    """One of them is missing in between: a disk or a peer has lost it, and each later leader has the same log."""
    bench.create()
    owned = frozenset({GroupPartition(TopicId(bytes(16)), P0)})
    value = CurrentValue(epoch=1, previous_epoch=0, state=MemberState.STABLE, assigned=owned, revoking=NOTHING)
    written = [encode(GroupRecord(CurrentKey("g", member), value)) for member in ("a", "b")]
    records = batch([value for _, value in written], keys=[key for key, _ in written])
    bench.rig.do(lambda: append_to(bench.rig.leader(OFFSETS_TOPIC), records, Acks.ALL))
    bench.restart()
    with pytest.raises(
        CoordinatorNotAvailableError, match=r"has records that contradict one another: .* two owners, 'a' and 'b'"
    ):
        bench.beat()
    assert len(bench.rig.probed("coordinator_failed")) == 1


def test_a_release_that_is_compacted_away_while_the_log_is_read_is_no_contradiction(bench: Bench) -> None:
    """The first record was read before, the others after: a's release is gone, since a has a later record."""
    bench.create()
    owned = frozenset({GroupPartition(TopicId(bytes(16)), P0)})
    for member, epoch, assigned in (("a", 1, owned), ("b", 2, owned), ("a", 3, NOTHING)):
        value = CurrentValue(
            epoch=epoch, previous_epoch=0, state=MemberState.STABLE, assigned=assigned, revoking=NOTHING
        )
        key, content = encode(GroupRecord(CurrentKey("g", member), value))
        append = partial(append_to, bench.rig.leader(OFFSETS_TOPIC), batch([content], keys=[key]), Acks.ALL)
        bench.rig.do(append)
        bench.rig.rest()
    bench.restart()
    bench.beat("c")
    group = bench.run(bench.coordinator.describe("g"))
    assert group is not None
    assert (group.owners[GroupPartition(TopicId(bytes(16)), P0)], group.current("a").epoch) == ("b", 3)


def test_a_record_that_cannot_be_read_ends_the_shard_and_not_the_node(bench: Bench) -> None:
    bench.create()
    bench.rig.do(lambda: append_to(bench.rig.leader(OFFSETS_TOPIC), batch([b"\x00\x00"], keys=[b"\x00\x03"]), Acks.ALL))
    bench.restart()
    with pytest.raises(CoordinatorNotAvailableError, match="cannot be loaded"):
        bench.beat()
    assert not bench.task.done()


@pytest.mark.parametrize("error", [BrokerNotAvailableError("is being repaired"), DamagedFileError("f", 7, "CRC")])
def test_a_range_that_is_repaired_later_is_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: StreamlogError
) -> None:
    """After a power cut of all nodes the first one may lead before there is a replica to repair it from."""
    bench.create()
    bench.run(bench.commit(5))
    read, failing = LeaderReplica.read, True

    async def reading(replica: LeaderReplica, *args: Any) -> bytes:
        if failing:
            raise error
        return await read(replica, *args)

    monkeypatch.setattr(LeaderReplica, "read", reading)
    bench.restart()
    bench.rig.rest(10)
    with pytest.raises(CoordinatorNotAvailableError, match=f"cannot be loaded: {error}"):
        bench.beat()
    assert len(bench.rig.probed("coordinator_failed")) == 1
    failing = False
    bench.rig.rest(2)
    assert bench.committed() == 5
    bench.beat()


def test_a_shard_that_waits_for_a_repair_ends_with_the_leadership(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.create(replicas=(ME, OTHER))
    bench.rig.change(2, isr=(ME,))
    bench.run(bench.commit(5))

    async def reading(replica: LeaderReplica, *_: Any) -> bytes:
        replica.check()
        raise BrokerNotAvailableError("is being repaired")

    monkeypatch.setattr(LeaderReplica, "read", reading)
    bench.restart()
    bench.rig.change(2, leader=OTHER)
    bench.rig.rest()
    with pytest.raises(NotCoordinatorError):
        bench.beat()
    assert bench.coordinator.loading == 0


def test_a_former_coordinator_answers_nothing(bench: Bench) -> None:
    bench.create(replicas=(ME, OTHER))
    commit = bench.rig.machine.run(_started(bench.commit(5)))
    bench.rig.change(2, leader=OTHER)
    bench.rig.rest()
    assert isinstance(commit.exception(), NotCoordinatorError)
    with pytest.raises(NotCoordinatorError):
        bench.beat()


def test_what_waits_for_the_group_s_pause_is_answered_when_the_node_stops(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_shard, "REST_S_PER_MEMBER", 8.0)
    bench.create()
    answer = bench.beat()
    waiting = bench.rig.machine.run(_started(bench.coordinator.heartbeat(heartbeat(epoch=answer.epoch))))
    bench.end()
    bench.rig.rest()
    assert isinstance(waiting.exception(), NotCoordinatorError)


async def _started(work: Awaitable[T]) -> asyncio.Task[T]:
    async def running() -> T:
        return await work

    task = asyncio.get_running_loop().create_task(running())
    await asyncio.sleep(0)
    return task


def test_a_lower_limit_of_message_sizes_is_for_producers_and_not_for_coordinators(bench: Bench) -> None:
    bench.create()
    bench.rig.configure("max.message.bytes", "1000", OFFSETS_TOPIC)
    bench.beat(pattern="t" * 1_000)
    bench.restart()
    assert bench.committed() is None
    assert bench.rig.probed("coordinator_loaded")[-1]["records"] == 5


def test_a_record_that_is_too_large_is_refused_before_anything_is_written(bench: Bench) -> None:
    """A part of a decision in the log would cost a load of the whole partition."""
    bench.create()
    end = bench.rig.leader(OFFSETS_TOPIC).log_end_offset
    topics = tuple(f"{number:0249}" for number in range(5_000))
    large = MemberSubscription(topics=topics, rebalance_timeout_ms=60_000, session_timeout_ms=0)
    joins = [heartbeat("a"), replace(heartbeat("b"), subscription=large), heartbeat("c")]

    async def join() -> list[HeartbeatAnswer | BaseException]:
        return await asyncio.gather(*map(bench.coordinator.heartbeat, joins), return_exceptions=True)

    for error in bench.run(join()):
        assert isinstance(error, CoordinatorNotAvailableError)
        assert "more than the 1048588 of max.message.bytes" in str(error)
    assert bench.rig.leader(OFFSETS_TOPIC).log_end_offset == end
    assert bench.beat().epoch == 1


def test_a_silent_member_is_put_out_after_its_session(bench: Bench) -> None:
    bench.create()
    answer = bench.beat(session_ms=6_000)
    bench.rig.rest(5.9)
    bench.beat(epoch=answer.epoch)
    bench.rig.rest(5.9)
    bench.beat(epoch=answer.epoch)
    bench.rig.rest(6.2)
    with pytest.raises(UnknownMemberIdError):
        bench.beat(epoch=answer.epoch)
    assert bench.rig.probed("member_session_over") == [{"group": "g", "member": "a"}]


def test_no_session_is_over_of_a_static_member_that_was_replaced(bench: Bench) -> None:
    bench.create()
    join = replace(heartbeat("a", session_ms=6_000), instance_id="one")
    bench.run(bench.coordinator.heartbeat(join))
    bench.run(bench.coordinator.heartbeat(replace(heartbeat("a", AWAY), instance_id="one")))
    bench.run(bench.coordinator.heartbeat(replace(join, member_id="b", subscription=heartbeat().subscription)))
    bench.rig.rest(10)
    assert bench.rig.probed("member_session_over") == []


def test_a_large_group_rests_between_its_decisions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 members that come 1 ms apart, all of them at once gone: neither costs 200 assignments."""
    bench.create()
    sizes: list[int] = []

    def counted(commands: Sequence[Command], group: Group, context: GroupContext) -> GroupDecision[Any]:
        sizes.append(len(commands))
        return decide(commands, group, context)

    monkeypatch.setattr(membership, "decide", counted)

    async def come_and_go() -> None:
        joining = []
        for n in range(200):
            joining.append(asyncio.ensure_future(bench.coordinator.heartbeat(heartbeat(f"m{n}"))))
            await asyncio.sleep(0.001)
        await asyncio.gather(*joining)
        assert sum(sizes) == 200
        assert len(sizes) < 60
        sizes.clear()
        await asyncio.gather(
            *(bench.coordinator.remove_member(RemoveMember(group="g", member_id=f"m{n}")) for n in range(200))
        )
        assert sum(sizes) == 200
        assert len(sizes) <= 2

    bench.run(come_and_go())


def test_the_pause_of_a_group_follows_the_time_that_its_decisions_take(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few members with long lists took the loop as thousands do, and paused as a few."""
    bench.create()
    took_s, at = 0.1, bench.rig.machine.clock.monotonic
    clock = bench.coordinator._clock
    begun: list[float] = []
    spent = 0.0

    def slow(commands: Sequence[Command], group: Group, context: GroupContext) -> GroupDecision[Any]:
        nonlocal spent
        begun.append(at())
        spent += took_s
        return decide(commands, group, context)

    monkeypatch.setattr(clock, "monotonic", lambda: at() + spent)
    monkeypatch.setattr(membership, "decide", slow)
    for name in "abc":
        bench.beat(name)
    assert [round(after - before, 1) for before, after in pairwise(begun)] == [1.0, 1.0]
    took_s = 3.0
    for name in "def":
        bench.beat(name)
    assert [round(after - before, 1) for before, after in pairwise(begun)][2:] == [1.0, 5.0, 5.0]


def test_a_heartbeat_that_waits_for_the_group_s_rest_is_in_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_shard, "REST_S_PER_MEMBER", 8.0)
    bench.create()
    answer = bench.beat(session_ms=6_000)
    bench.rig.rest(5.5)
    assert bench.beat(epoch=answer.epoch).epoch == answer.epoch
    assert not bench.rig.probed("member_session_over")
    bench.rig.rest(14.5)
    assert bench.rig.probed("member_session_over") == [{"group": "g", "member": "a"}]


def test_a_member_on_a_stream_is_hinted_when_it_has_news(bench: Bench) -> None:
    bench.create()
    first = bench.beat("a")
    second = bench.beat("b")
    assert second.assignment == frozenset()
    hints: list[str] = []
    stop = bench.coordinator.watch_member("g", "b", lambda: hints.append("b"), is_new=True)
    bench.beat("a", LEAVE)
    assert hints == ["b"]
    assert bench.beat("b", second.epoch).assignment == first.assignment
    stop()
    bench.rig.delete(1)
    bench.rig.rest()
    assert hints == ["b"]


def test_a_stream_is_the_member_s_last_one_until_another_begins_or_the_coordinator_moves(bench: Bench) -> None:
    bench.create(replicas=(ME, OTHER))
    hints: list[str] = []
    watch = bench.coordinator.watch_member
    stop_first = watch("g", "a", lambda: hints.append("first"), is_new=True)
    stop_second = watch("g", "a", lambda: hints.append("second"), is_new=True)
    stop_late = watch("g", "a", lambda: hints.append("late"), is_new=False)
    assert [stop_first(), stop_late(), stop_second(), stop_second()] == [False, False, True, False]
    stop = watch("g", "a", lambda: hints.append("third"), is_new=False)
    bench.rig.change(2, leader=OTHER)
    bench.rig.rest()
    bench.rig.change(2, leader=ME)
    bench.rig.rest()
    assert not stop(), "it has resumed at the other node"
    assert hints == ["third"]


def test_topics_that_come_and_go_are_noticed(bench: Bench) -> None:
    bench.create()
    answer = bench.beat(pattern="t|logs-.*")
    assert len(answer.assignment or ()) == 1
    bench.run(bench.commit(3, Committer(member_id="a", epoch=answer.epoch)))
    hints: list[str] = []
    bench.coordinator.watch_member("g", "a", lambda: hints.append("a"), is_new=True)
    bench.rig.create("logs-1", 3)
    assert hints == ["a"]
    answer = bench.beat(epoch=answer.epoch)
    assert len(answer.assignment or ()) == 2
    bench.rig.delete(1)
    assert bench.committed() is None
    with pytest.raises(InvalidRegularExpressionError):
        bench.beat("b", pattern="(")


@pytest.mark.parametrize("recreated_first", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_offset_pending_in_a_transaction_goes_with_its_topic(
    bench: Bench, *, recreated_first: bool, restarts: bool
) -> None:
    bench.create()
    bench.run(bench.commit_in_transaction(1_000))
    bench.rig.delete(1)
    bench.rig.rest()
    if recreated_first:
        bench.rig.create("t", 3)
    if restarts:
        bench.restart()
    bench.run(bench.end_transaction())
    if not recreated_first:
        bench.rig.create("t", 3)
    bench.rig.rest()
    assert bench.committed() is None
    bench.restart()
    assert bench.committed() is None
    bench.run(bench.commit_in_transaction(3, epoch=1))
    assert bench.committed() is None
    bench.run(bench.end_transaction(epoch=2))
    assert bench.committed() == 3


@pytest.mark.parametrize("another_comes", [False, True])
def test_a_pending_offset_of_a_deleted_topic_is_dropped_once_the_log_takes_it(
    bench: Bench, *, another_comes: bool
) -> None:
    """The marker may come first. `another_comes`: a topic, before the log is tried again."""
    bench.create(replicas=(ME, OTHER))
    commit = bench.run(_started(bench.commit_in_transaction(1_000)))
    bench.rig.do(lambda: bench.rig.leader(OFFSETS_TOPIC).on_position(OTHER, Offset(1)))
    bench.rig.rest()
    assert commit.done()
    bench.rig.configure("min.insync.replicas", "2", OFFSETS_TOPIC)
    bench.rig.fence(OTHER)
    bench.rig.change(2, isr=(ME,))
    bench.rig.delete(1)
    bench.rig.rest()
    bench.rig.configure("min.insync.replicas", "1", OFFSETS_TOPIC)
    if another_comes:
        bench.rig.create("u", 4)
    bench.run(bench.end_transaction())
    bench.rig.rest(1)
    bench.rig.create("t", 3)
    bench.rig.rest()
    assert bench.committed() is None


def test_only_groups_with_offsets_of_a_removed_topic_are_asked_for_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was created had the event loop go through the offsets of all groups."""
    bench.create()
    bench.rig.create("u", 3)
    bench.run(bench.commit(5))
    (shard,) = bench.coordinator._shards
    value = shard.groups["g"].offsets["t", P0]
    shard.groups["other"] = Group("other", epoch=1, offsets={("u", P0): value})
    asked: list[str] = []
    forget = committing.forget_topics

    def counted(group: Group, *rest: Any, **more: Any) -> GroupDecision[int]:
        asked.append(group.group_id)
        return forget(group, *rest, **more)

    monkeypatch.setattr(committing, "forget_topics", counted)
    bench.rig.create("v", 4)
    assert asked == []
    bench.rig.delete(1)
    assert asked == ["g"]
    bench.rig.create("w", 5)
    assert asked == ["g"]
    assert shard.groups["other"].offsets
    bench.rig.delete(3)
    assert asked == ["g", "other"]
    assert "other" not in shard.groups or not shard.groups["other"].offsets


def test_the_event_loop_goes_on_while_offsets_expire(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 groups it stood still for 0.2 s, every ten minutes."""
    bench.create()
    (shard,) = bench.coordinator._shards
    shard.groups.update({f"g{n}": Group(f"g{n}", epoch=1) for n in range(500)})
    asked: list[str] = []
    expire = committing.expire

    def counted(group: Group, *rest: Any, **more: Any) -> GroupDecision[int]:
        asked.append(group.group_id)
        shard.groups.pop("g499", None)  # one that is deleted meanwhile
        return expire(group, *rest, **more)

    monkeypatch.setattr(committing, "expire", counted)

    async def longest_turn() -> int:
        done, longest = 0, 0
        while done < 500:
            await asyncio.sleep(0 if done else 0.1)
            longest = max(longest, len(asked) - done)
            done = len(asked)
        return longest

    assert bench.run(longest_turn()) <= 400  # two steps, where the test comes first in one turn and last in the next
    bench.rig.rest(0.5)
    assert shard.groups == {}


def test_offsets_of_an_empty_group_expire(bench: Bench) -> None:
    bench.create()
    bench.run(bench.commit(5))
    bench.rig.rest(595)
    assert bench.committed() == 5
    bench.rig.rest(10)
    assert bench.committed() is None


@pytest.mark.parametrize("restarts", [False, True])
def test_an_offset_does_not_expire_while_a_transaction_replaces_it(bench: Bench, *, restarts: bool) -> None:
    """Its tombstone would be in the log behind the pending one, and win."""
    bench.create()
    answer = bench.beat()
    bench.run(bench.commit(5, Committer(member_id="a", epoch=answer.epoch)))
    bench.beat(epoch=LEAVE)
    bench.rig.rest(590)
    bench.run(bench.commit_in_transaction(6))
    if restarts:
        bench.restart()
    bench.rig.rest(15)
    assert bench.committed() == 5
    bench.run(bench.end_transaction())
    assert bench.committed() == 6
    bench.rig.rest(5)
    assert bench.committed() == 6
    bench.rig.rest(590)
    assert bench.committed() is None


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("whole_group", [False, True])
def test_a_deleted_offset_does_not_return_through_an_open_transaction(
    bench: Bench, *, whole_group: bool, restarts: bool
) -> None:
    bench.create()
    bench.beat()
    bench.beat(epoch=LEAVE)
    bench.run(bench.commit_in_transaction(6))
    if whole_group:
        bench.run(bench.coordinator.delete_group(DeleteGroup(group="g")))
    else:
        assert bench.run(bench.coordinator.delete_offsets(DeleteOffsets(group="g", partitions=(T_0,)))) == (None,)
    if restarts:
        bench.restart()
    bench.run(bench.end_transaction())
    assert bench.committed() is None
    assert whole_group == (bench.run(bench.coordinator.describe("g")) is None)


def test_a_failed_append_is_reported(bench: Bench) -> None:
    bench.create(replicas=(ME, OTHER))
    bench.rig.configure("min.insync.replicas", "2", OFFSETS_TOPIC)
    bench.rig.change(2, isr=(ME,))
    bench.rig.rest()
    with pytest.raises(CoordinatorNotAvailableError):
        bench.beat()
    assert bench.coordinator.own_groups("", 1) == []
