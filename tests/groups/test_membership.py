"""Joining, moving partitions, leaving (SEMANTICS 9, KIP-848), step by step."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streamlog.errors import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InvalidRegularExpressionError,
    InvalidRequestError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from streamlog.groups import membership
from streamlog.groups.codec import decode, encode
from streamlog.groups.decision import MemberSessionTimer, RevocationTimer
from streamlog.groups.membership import PATTERNS_MAX, HeartbeatAnswer, MemberHeartbeat, RemoveMember
from streamlog.groups.reconcile import is_behind
from streamlog.groups.records import AWAY, CurrentKey, GroupRecord, MemberState, OffsetKey, TargetMemberKey
from streamlog.model import PartitionId, TopicId

from .rig import SETTINGS, Coordinator, FakeTopics, Member, settle


def make(**topics: int) -> Coordinator:
    return Coordinator(FakeTopics(**(topics or {"t": 4})))


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    coordinator = make()
    member = Member(coordinator, "a")
    answer = member.beat()
    assert (answer.epoch, answer.heartbeat_interval_ms) == (1, 3_000)
    assert member.indexes == [0, 1, 2, 3]
    assert coordinator.timers == {MemberSessionTimer("g", "a"): 45_000}


def test_a_partition_moves_only_after_its_owner_has_given_it_up() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.beat()
    assert b.beat().assignment == frozenset()
    assert coordinator.group().current("b").state is MemberState.UNRELEASED
    asked_back = coordinator.heartbeat(replace(a.request(), owned=None))
    assert asked_back.epoch == 1  # the old epoch, until it has given up
    assert len(asked_back.assignment or ()) == 2
    assert b.beat().assignment == frozenset(), "a still reads them"
    a.take(asked_back)
    assert a.beat().epoch == 2
    b.beat()
    assert sorted(a.indexes + b.indexes) == [0, 1, 2, 3]
    assert [m.epoch for m in (a, b)] == [2, 2]


def test_only_what_moves_pauses() -> None:
    coordinator = make(t=6)
    a, b, c = (Member(coordinator, name) for name in "abc")
    settle(a, b)
    before = {m.member_id: m.reads for m in (a, b)}
    settle(a, b, c)
    assert all(m.reads < before[m.member_id] for m in (a, b))
    assert [len(m.reads) for m in (a, b, c)] == [2, 2, 2]


def test_members_beyond_the_partitions_wait_and_step_in() -> None:
    coordinator = make(t=2)
    a, b, c = (Member(coordinator, name) for name in "abc")
    settle(a, b, c)
    assert [m.indexes for m in (a, b, c)].count([]) == 1
    a.leave()
    settle(b, c)
    assert sorted(b.indexes + c.indexes) == [0, 1]


def test_a_member_that_leaves_is_forgotten_and_its_partitions_are_free_at_once() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    settle(a, b)
    a.leave()
    assert is_behind(coordinator.group(), "b", coordinator.topics)
    assert b.beat().assignment is not None
    assert b.indexes == [0, 1, 2, 3]
    assert coordinator.timers == {MemberSessionTimer("g", "b"): 45_000}


def test_a_silent_member_is_put_out_and_then_unknown() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    settle(a, b)
    assert coordinator.remove_member("a")
    assert not coordinator.remove_member("a")
    with pytest.raises(UnknownMemberIdError):
        a.beat()
    b.beat()
    assert b.indexes == [0, 1, 2, 3]


def test_a_member_that_does_not_give_up_has_its_time_and_no_more() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.beat()
    b.beat()
    coordinator.heartbeat(replace(a.request(), owned=None))
    assert coordinator.timers[RevocationTimer("g", "a")] == 300_000
    coordinator.heartbeat(replace(a.request(), owned=None))
    a.take(coordinator.heartbeat(replace(a.request(), owned=None)))
    a.wanted = coordinator.group().current("a").assigned
    a.reads = a.wanted
    a.beat()
    assert RevocationTimer("g", "a") not in coordinator.timers


def test_a_lost_answer_is_given_again() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.beat()
    b.beat()
    a.beat()
    coordinator.heartbeat(a.request())  # raises a's epoch to 2; a does not get the response
    answer = a.beat()
    assert (answer.epoch, a.epoch) == (2, 2)


def test_an_epoch_of_before_that_is_refused() -> None:
    coordinator = make()
    a, b, c = (Member(coordinator, name) for name in "abc")
    settle(a, b)
    settle(a, b, c)
    a.epoch -= 2
    with pytest.raises(IllegalGenerationError) as refused:
        a.beat()
    assert refused.value.details["limit"] == coordinator.group().current("a").epoch
    with pytest.raises(IllegalGenerationError):
        coordinator.heartbeat(b.request(epoch=99))


def test_joining_again_under_the_same_id_starts_over() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    settle(a, b)
    again = Member(coordinator, "a")
    answer = again.beat()
    assert answer.epoch == 2
    assert len(again.indexes) == 2
    with pytest.raises(IllegalGenerationError):
        coordinator.heartbeat(a.request(epoch=1))


def test_a_thousand_that_join_at_once_cost_one_assignment() -> None:
    coordinator = Coordinator(FakeTopics(t=1_000), settings=replace(SETTINGS, members_max=1_000))
    members = [Member(coordinator, f"m{n:04}") for n in range(1_000)]
    for member, answer in zip(members, coordinator.heartbeats(*(m.request() for m in members)), strict=True):
        assert not isinstance(answer, Exception)
        member.take(answer)
    assert {len(m.reads) for m in members} == {1}
    assert coordinator.group().target_epoch == 1_000
    assert len(coordinator.log) == 1_000 * 4 + 1


def test_who_is_put_out_and_joins_again_in_one_decision_is_a_member() -> None:
    coordinator = make(t=2)
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    settle(a, b)
    again = Member(coordinator, "a")
    out = RemoveMember(group="g", member_id="a", epoch=a.epoch)
    done, joined, repeated = coordinator.together(out, again.request(), out)
    assert (done, repeated) == (True, False)
    assert isinstance(joined, HeartbeatAnswer)
    again.take(joined)
    settle(again, b)
    assert MemberSessionTimer("g", "a") in coordinator.timers
    assert len(again.indexes) == len(b.indexes) == 1


def test_subscriptions_change_and_topics_come_and_grow() -> None:
    coordinator = make(t=2, u=2)
    a = Member(coordinator, "a")
    a.beat()
    a.topics = ("t", "u", "v")
    coordinator.heartbeat(replace(a.request(), subscription=a.subscription))
    settle(a)
    assert a.reads == coordinator.topics.all_partitions(["t", "u"])
    assert not coordinator.refresh_topics()
    coordinator.topics.create("v", 3)
    coordinator.topics.grow("t", 5)
    coordinator.topics.delete("u")
    assert coordinator.refresh_topics()
    settle(a)
    assert a.reads == coordinator.topics.all_partitions(["t", "v"])


def test_a_recreated_topic_is_another_one() -> None:
    coordinator = make(t=2)
    a = Member(coordinator, "a")
    a.beat()
    before = a.reads
    coordinator.topics.delete("t")
    coordinator.topics.create("t", 2)
    assert coordinator.refresh_topics()
    settle(a)
    assert not a.reads & before
    assert len(a.reads) == 2


def test_partitions_of_a_deleted_topic_need_not_be_given_up() -> None:
    """A response names the partitions of existing topics only: the member never learned that it had those of `u`."""
    coordinator = make(t=2, u=2)
    a = Member(coordinator, "a", topics=("t", "u"))
    known = coordinator.topics.all_partitions(["t"])
    answer = coordinator.heartbeat(a.request())
    assert answer.assignment is not None
    a.take(replace(answer, assignment=answer.assignment & known))
    coordinator.topics.delete("u")
    assert coordinator.refresh_topics()
    coordinator.heartbeat(replace(a.request(), owned=None))
    assert coordinator.group().current("a").state is MemberState.STABLE
    assert coordinator.group().is_settled


def test_a_member_that_gives_up_only_a_deleted_topic_is_notified() -> None:
    coordinator = make(t=2, u=2)
    a = Member(coordinator, "a", topics=("t", "u"))
    settle(a)
    a.topics = ("t",)
    coordinator.heartbeat(replace(a.request(), subscription=a.subscription))
    assert coordinator.group().current("a").state is MemberState.UNREVOKED
    assert not is_behind(coordinator.group(), "a", coordinator.topics)
    coordinator.topics.delete("u")
    assert is_behind(coordinator.group(), "a", coordinator.topics)


def test_a_repeated_heartbeat_may_name_partitions_of_a_deleted_topic() -> None:
    coordinator = make(t=2, u=2)
    a = Member(coordinator, "a", topics=("t", "u"))
    settle(a)
    coordinator.topics.delete("u")
    assert coordinator.refresh_topics()
    lost = coordinator.heartbeat(replace(a.request(), owned=None))
    assert lost.epoch > a.epoch
    assert coordinator.heartbeat(a.request()).epoch == lost.epoch


def test_patterns_are_read_by_the_coordinator() -> None:
    coordinator = make(logs_a=1, logs_b=2, other=1)
    a = Member(coordinator, "a", topics=(), pattern="logs_.*")
    a.beat()
    assert a.reads == coordinator.topics.all_partitions(["logs_a", "logs_b"])
    coordinator.topics.create("logs_c", 1)
    assert coordinator.refresh_topics()
    settle(a)
    assert len(a.reads) == 4
    with pytest.raises(InvalidRegularExpressionError):
        Member(coordinator, "b", topics=(), pattern="(").beat()


def test_the_different_patterns_of_a_group_are_bounded() -> None:
    """Each decision asks for the topics of all of them."""
    coordinator = Coordinator(FakeTopics(t=4), settings=replace(SETTINGS, members_max=1_000))
    members = [Member(coordinator, f"m{n}", topics=(), pattern=f"t|x{n}") for n in range(PATTERNS_MAX)]
    for member in members:
        member.beat()
    late = Member(coordinator, "late", topics=(), pattern="t|y")
    with pytest.raises(InvalidRequestError) as caught:
        late.beat()
    assert caught.value.details == {"field": "subscription.pattern", "limit": PATTERNS_MAX}
    Member(coordinator, "same", topics=(), pattern=members[0].pattern).beat()
    coordinator.fail_over()
    with pytest.raises(InvalidRequestError):
        late.beat()
    members[0].leave()
    with pytest.raises(InvalidRequestError):
        late.beat()  # another one has that pattern
    members[1].leave()
    late.beat()
    coordinator.heartbeat(replace(late.request(), subscription=replace(late.subscription, pattern="t|x0")))
    Member(coordinator, "later", topics=(), pattern="t|z").beat()
    with pytest.raises(InvalidRequestError, match="100 different subscriptions with a pattern"):
        Member(coordinator, "mixed", topics=("t",), pattern="t|z").beat()  # its topics are others


def test_the_names_that_a_group_subscribes_to_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 members with 10,000 names each held gigabytes, and each decision looked up all of them."""
    monkeypatch.setattr(membership, "NAMES_MAX", 100)
    coordinator = make(t=4)
    lists = [tuple(f"{letter}{n:02}" for n in range(30)) for letter in "abcd"]
    equal = [Member(coordinator, f"equal{n}", topics=lists[0]) for n in range(40)]
    for member in equal:
        member.beat()
    b, c = (Member(coordinator, name, topics=names) for name, names in zip("bc", lists[1:3], strict=True))
    b.instance_id = "static"
    b.beat()
    c.beat()
    late = Member(coordinator, "late", topics=lists[3])
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="would subscribe to 120 names") as caught:
            late.beat()
        assert caught.value.details == {"field": "subscription.topics", "limit": 100}
        with pytest.raises(InvalidRequestError):
            coordinator.heartbeat(replace(equal[0].request(), subscription=late.subscription))  # others have its list
        coordinator.fail_over()
    c.beat()
    coordinator.heartbeat(replace(c.request(), subscription=late.subscription))
    settle(c)
    coordinator.heartbeat(b.request(epoch=AWAY))
    Member(coordinator, "b2", topics=lists[2], instance_id="static").beat()
    assert coordinator.group().names == 90
    for member in equal:
        member.leave()
    assert coordinator.group().names == 60


def test_a_group_beyond_its_bounds_may_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = make(t=4)
    lists = [tuple(f"{letter}{n:02}" for n in range(30)) for letter in "abc"]
    members = [Member(coordinator, f"m{n}", topics=names) for n, names in enumerate(lists)]
    patterned = [Member(coordinator, f"p{n}", topics=(), pattern=f"t|x{n}") for n in range(3)]
    for member in (*members, *patterned):
        member.beat()
    monkeypatch.setattr(membership, "NAMES_MAX", 50)
    monkeypatch.setattr(membership, "PATTERNS_MAX", 2)
    first = members[0]
    with pytest.raises(InvalidRequestError, match="would subscribe to 91 names"):
        coordinator.heartbeat(
            replace(first.request(), subscription=replace(first.subscription, topics=(*lists[0], "z")))
        )
    coordinator.heartbeat(replace(first.request(), subscription=replace(first.subscription, topics=lists[0][:5])))
    assert coordinator.group().names == 65
    one = patterned[0]
    coordinator.heartbeat(replace(one.request(), subscription=replace(one.subscription, pattern="t|other")))
    with pytest.raises(InvalidRequestError, match="3 different subscriptions with a pattern"):
        Member(coordinator, "p3", topics=(), pattern="t|x3").beat()
    assert coordinator.group().patterns == 3


def test_a_join_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that takes over the place of another one gives up its own first, and with it its list."""
    coordinator = make(t=4)
    lists = [tuple(f"{letter}{n:02}" for n in range(30)) for letter in "abc"]
    away = Member(coordinator, "s", topics=lists[0], instance_id="i")
    others = [Member(coordinator, f"m{n}", topics=names) for n, names in enumerate(lists[1:], 1)]
    for member in (away, *others):
        member.beat()
    coordinator.heartbeat(away.request(epoch=AWAY))
    monkeypatch.setattr(membership, "NAMES_MAX", 40)
    Member(coordinator, "m1", topics=lists[1], instance_id="i").beat()
    assert sorted(coordinator.group().members) == ["m1", "m2"]
    assert coordinator.group().members["m1"].topics == lists[1]
    assert coordinator.group().names == 60


def test_equal_subscriptions_are_stored_and_looked_up_once() -> None:
    looked_up: list[str] = []

    class Counted(FakeTopics):
        def id_of(self, name: str) -> TopicId | None:
            looked_up.append(name)
            return super().id_of(name)

    names = tuple(f"topic-{n}" for n in range(30))
    coordinator = Coordinator(Counted(**dict.fromkeys(names, 1)))
    for n in range(20):
        looked_up.clear()
        Member(coordinator, f"m{n}", topics=tuple(name[:] for name in names)).beat()
        assert len(looked_up) == len(names)
    coordinator.fail_over()
    assert len({id(member.topics) for member in coordinator.group().members.values()}) == 1
    looked_up.clear()
    assert not coordinator.refresh_topics()
    assert len(looked_up) == len(names)


def test_a_static_member_that_returns_keeps_its_partitions_and_nobody_notices() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a", instance_id="one"), Member(coordinator, "b")
    settle(a, b)
    epoch, before = coordinator.group().epoch, a.reads
    coordinator.heartbeat(a.request(epoch=AWAY))
    assert coordinator.timers[MemberSessionTimer("g", "a")] == 45_000
    settle(b)
    assert len(b.reads) == 2
    back = Member(coordinator, "a2", instance_id="one")
    back.beat()
    assert back.reads == before
    assert coordinator.group().epoch == epoch
    assert coordinator.group().instances == {"one": "a2"}


@pytest.mark.parametrize("name", ["one", "another"])
def test_a_static_member_that_returns_with_fewer_topics_has_nothing_to_revoke(name: str) -> None:
    coordinator = make(t=2, u=2)
    member = Member(coordinator, "one", topics=("t", "u"), instance_id="i")
    settle(member)
    coordinator.heartbeat(member.request(epoch=AWAY))
    back = Member(coordinator, name, topics=("u",), instance_id="i")
    assert back.beat().epoch == 2
    assert back.reads == coordinator.topics.all_partitions(["u"])
    assert coordinator.group().current(name).state is MemberState.STABLE


def test_a_member_that_joins_again_with_the_instance_id_of_an_away_one_leaves_no_partition_without_a_reader() -> None:
    coordinator = make()
    one, two = Member(coordinator, "one", instance_id="i1"), Member(coordinator, "two", instance_id="i2")
    settle(one, two)
    coordinator.heartbeat(two.request(epoch=AWAY))
    both = Member(coordinator, "one", instance_id="i2")
    settle(both)
    assert both.indexes == [0, 1, 2, 3]
    assert list(coordinator.group().members) == ["one"]
    assert coordinator.group().instances == {"i2": "one"}


def test_only_a_join_takes_an_instance_id() -> None:
    coordinator = Coordinator(FakeTopics(t=2))
    a, b = Member(coordinator, "a", instance_id="one"), Member(coordinator, "b")
    settle(a, b)
    for subscription in (b.subscription, None):
        with pytest.raises(InvalidRequestError, match="instance id"):
            coordinator.heartbeat(replace(b.request(), instance_id="one", subscription=subscription))
    coordinator.heartbeat(replace(a.request(), instance_id="", subscription=a.subscription))
    assert coordinator.group().instances == {"one": "a"}


def test_a_static_member_whose_stream_breaks_may_return() -> None:
    coordinator = make()
    a = Member(coordinator, "a", instance_id="one")
    a.beat()
    with pytest.raises(UnreleasedInstanceIdError):
        Member(coordinator, "a2", instance_id="one").beat()
    assert coordinator.remove_member("a", epoch=a.epoch, may_return=True)
    back = Member(coordinator, "a2", instance_id="one")
    back.beat()
    assert back.indexes == [0, 1, 2, 3]
    assert coordinator.remove_member("a2"), "its session has timed out"
    assert not coordinator.group().members


def test_a_broken_stream_of_an_earlier_life_puts_nobody_out() -> None:
    coordinator = make()
    a = Member(coordinator, "a")
    a.beat()
    assert not coordinator.remove_member("a", epoch=77, may_return=True)
    assert coordinator.remove_member("a", epoch=a.epoch, may_return=True)


def test_what_is_refused_changes_nothing() -> None:
    coordinator = Coordinator(FakeTopics(t=1), settings=replace(SETTINGS, members_max=1))
    a = Member(coordinator, "a")
    with pytest.raises(UnsupportedAssignorError):
        Member(coordinator, "a", assignor="best").beat()
    with pytest.raises(InvalidRequestError):
        coordinator.heartbeat(MemberHeartbeat(group="g", member_id="a", epoch=0))
    assert coordinator.log == []
    a.beat()
    written = len(coordinator.log)
    with pytest.raises(GroupMaxSizeReachedError):
        Member(coordinator, "b").beat()
    with pytest.raises(InvalidRequestError):
        coordinator.heartbeat(a.request(epoch=AWAY))
    with pytest.raises(UnknownMemberIdError):
        coordinator.heartbeat(MemberHeartbeat(group="g", member_id="c", epoch=3))
    assert len(coordinator.log) == written


def test_sessions_are_bounded() -> None:
    coordinator = make()
    a = Member(coordinator, "a")
    subscription = replace(a.subscription, session_timeout_ms=1)
    coordinator.heartbeat(replace(a.request(), subscription=subscription))
    assert coordinator.timers[MemberSessionTimer("g", "a")] == 6_000


def test_the_group_uses_what_most_members_ask_for() -> None:
    coordinator = make(t=4, u=4)
    members = [
        Member(coordinator, name, topics=("t", "u"), assignor=assignor)
        for name, assignor in (("a", "range"), ("b", "range"), ("c", "roundrobin"))
    ]
    settle(*members)
    runs = [{p.partition for p in m.reads} for m in members]
    assert sorted(len(run) for run in runs) == [1, 1, 2], "equal indexes of both topics are together"


def test_another_coordinator_goes_on_where_this_one_stopped() -> None:
    coordinator = make()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.beat()
    b.beat()
    a.beat()
    before = coordinator.group()
    coordinator.fail_over()
    assert coordinator.group() == before
    assert coordinator.timers[RevocationTimer("g", "a")] == 300_000
    settle(a, b)
    assert sorted(a.indexes + b.indexes) == [0, 1, 2, 3]


def test_a_tombstone_in_front_of_a_group_s_members_does_not_delete_their_assignments() -> None:
    """The compacted log of members that have sent their subscriptions again, and kept their assignments."""
    coordinator = make()
    settle(Member(coordinator, "a"), Member(coordinator, "b"))
    before = coordinator.group()
    assignments = [one for one in coordinator.log if isinstance(decode(*one).key, CurrentKey | TargetMemberKey)]
    others = [one for one in coordinator.log if one not in assignments]
    expired = encode(GroupRecord(OffsetKey("g", "deleted", PartitionId(0)), None))
    coordinator.log = [*assignments, expired, *others]
    coordinator.fail_over()
    assert coordinator.group() == before
