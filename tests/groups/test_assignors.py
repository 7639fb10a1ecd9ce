"""What every assignor keeps to, on random groups; and what each of them alone promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.groups.assignors import ASSIGNORS, Assignor, assign_range, assign_roundrobin, assign_uniform, uniform
from streamlog.groups.assignors.emptiest import Emptiest
from streamlog.groups.assignors.leveling import Leveling
from streamlog.groups.assignors.problem import Assignment, GroupPartition, Problem, Subscriber, TopicShape
from streamlog.model import PartitionId, TopicId

TOPICS = tuple(TopicId(bytes([n]) * 16) for n in range(5))
RACKS = ("", "a", "b", "c")
each_assignor = pytest.mark.parametrize("assign", [assign_uniform, assign_range, assign_roundrobin])


def partition(topic: int, index: int) -> GroupPartition:
    return GroupPartition(TOPICS[topic], PartitionId(index))


def group(members: dict[str, Subscriber], counts: dict[int, int]) -> Problem:
    return Problem(members, {TOPICS[n]: TopicShape(partition_count=count) for n, count in counts.items()})


def members(*names: str, topics: tuple[int, ...] = (0,)) -> dict[str, Subscriber]:
    return {name: Subscriber(member_id=name, topics=frozenset(TOPICS[n] for n in topics)) for name in names}


def after(problem: Problem, before: Assignment) -> Problem:
    """The same problem, the members owning what they were given."""
    owners = {
        name: Subscriber(
            member_id=name,
            topics=s.topics,
            instance_id=s.instance_id,
            rack=s.rack,
            owned=frozenset(before.get(name, ())),
        )
        for name, s in problem.subscribers.items()
    }
    return Problem(owners, problem.topics)


@st.composite
def problems(draw: st.DrawFn, *, alike: bool = False) -> Problem:
    shapes = {}
    for topic_id in draw(st.lists(st.sampled_from(TOPICS), unique=True, max_size=4)):
        count = draw(st.integers(1, 9))
        racks = draw(st.lists(st.frozensets(st.sampled_from(RACKS[1:])), min_size=count, max_size=count))
        shapes[topic_id] = TopicShape(partition_count=count, racks=tuple(racks) if draw(st.booleans()) else ())
    subscriptions = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    common = draw(subscriptions)
    free = [GroupPartition(topic_id, PartitionId(n)) for topic_id in TOPICS for n in range(10)]
    subscribers = {}
    for name in draw(st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1)):
        owned = draw(st.lists(st.sampled_from(free), unique=True, max_size=8)) if free else []
        free = [p for p in free if p not in owned]
        subscribers[name] = Subscriber(
            member_id=name,
            topics=common if alike else draw(subscriptions),
            instance_id=draw(st.sampled_from(("", f"static-{name}"))),
            rack=draw(st.sampled_from(RACKS)),
            owned=frozenset(owned),
        )
    return Problem(subscribers, shapes)


def moved(problem: Problem, assignment: Assignment) -> int:
    """Partitions that a member owned and could keep, and that another one has now."""
    kept = sum(len(problem.subscribers[name].owned & set(mine)) for name, mine in assignment.items())
    return len(still_owned(problem)) - kept


def still_owned(problem: Problem) -> list[GroupPartition]:
    return [
        p
        for s in problem.subscribers.values()
        for p in s.owned
        if p.topic_id in s.topics
        and p.topic_id in problem.topics
        and p.partition < problem.topics[p.topic_id].partition_count
    ]


@each_assignor
@given(problem=problems())
def test_every_partition_has_one_owner_that_subscribes(assign: Assignor, problem: Problem) -> None:
    assignment = assign(problem)
    assert list(assignment) == [member.member_id for member in problem.members]
    given_out = [p for mine in assignment.values() for p in mine]
    assert sorted(given_out) == [p for topic_id in problem.topic_ids for p in problem.partitions_of(topic_id)]
    for name, mine in assignment.items():
        assert {p.topic_id for p in mine} <= problem.subscribers[name].topics
        assert list(mine) == sorted(mine)


@each_assignor
@given(problem=problems(alike=True))
def test_members_that_are_alike_differ_by_one_at_most(assign: Assignor, problem: Problem) -> None:
    assignment = assign(problem)
    counts = [Counter(p.topic_id for p in mine) for mine in assignment.values()]
    if assign is assign_range:
        spread = [max(c[t] for c in counts) - min(c[t] for c in counts) for t in problem.topic_ids]
    else:
        spread = [max(c.total() for c in counts) - min(c.total() for c in counts)]
    assert all(difference <= 1 for difference in spread)


@each_assignor
@given(problem=problems(), seed=st.randoms(use_true_random=False))
def test_the_order_of_joining_does_not_matter(assign: Assignor, problem: Problem, seed: object) -> None:
    shuffled = list(problem.subscribers.items())
    seed.shuffle(shuffled)  # type: ignore[attr-defined]  # random.Random, which hypothesis hides
    assert assign(Problem(dict(shuffled), problem.topics)) == assign(problem)


@given(problem=problems(alike=True))
def test_uniform_moves_the_surplus_and_nothing_else(problem: Problem) -> None:
    """A lower bound for any even assignment: each member can keep at most its share, and only some the longer one."""
    owned = Counter({m.member_id: 0 for m in problem.members})
    for name, s in problem.subscribers.items():
        owned[name] = len([p for p in s.owned if p in set(still_owned(Problem({name: s}, problem.topics)))])
    total = sum(problem.topics[t].partition_count for t in problem.topic_ids)
    size, longer = divmod(total, len(problem.members))
    by_number = sorted(owned.values(), reverse=True)
    could_stay = sum(min(number, size + (rank < longer)) for rank, number in enumerate(by_number))
    assert moved(problem, assign_uniform(problem)) == len(still_owned(problem)) - could_stay


@given(problem=problems())
def test_uniform_leaves_no_member_fuller_than_it_must_be(problem: Problem) -> None:
    """No single partition could go to a member that has at least two less."""
    assignment = assign_uniform(problem)
    for name, mine in assignment.items():
        for p in mine:
            for other in problem.subscribers_of[p.topic_id]:
                assert len(mine) - len(assignment[other.member_id]) <= 1, (name, other.member_id, p)


@given(problem=problems())
def test_uniform_leaves_no_chain_to_a_member_with_two_less(problem: Problem) -> None:
    assignment = assign_uniform(problem)
    for name, mine in assignment.items():
        reached, queue = {name}, [name]
        while queue:
            topics = {p.topic_id for p in assignment[queue.pop()]}
            takers = {other.member_id for topic_id in topics for other in problem.subscribers_of[topic_id]} - reached
            reached |= takers
            queue += takers
        assert min(len(assignment[other]) for other in reached) >= len(mine) - 1


@pytest.mark.parametrize(("count", "joining"), [(10_000, 1), (1_000, 99)])
def test_uniform_searches_for_members_and_not_for_partitions(
    monkeypatch: pytest.MonkeyPatch, count: int, joining: int
) -> None:
    """One member owns all, others join, one of them with a topic more: few searches for each of them."""
    searches: list[str] = []
    search = Leveling._chain_from

    def counted(leveling: Leveling, source: str, closed: set[TopicId]) -> object:
        searches.append(source)
        return search(leveling, source, closed)

    monkeypatch.setattr(Leveling, "_chain_from", counted)
    first = assign_uniform(group(members("a"), {0: count}))
    others = members(*(f"m{n}" for n in range(joining)))
    joined = after(Problem({**members("a"), **members("b", topics=(0, 1)), **others}, {}), first)
    problem = group(dict(joined.subscribers), {0: count, 1: 1})
    assignment = assign_uniform(problem)
    counts = [len(mine) for mine in assignment.values()]
    assert max(counts) - min(counts) <= 1
    assert moved(problem, assignment) == count - len(assignment["a"])
    assert len(searches) <= 3 * len(counts)


@pytest.mark.parametrize("differing", [0, 1])
def test_uniform_does_not_visit_all_members_for_each_partition(monkeypatch: pytest.MonkeyPatch, differing: int) -> None:
    asked: list[GroupPartition] = []
    is_near = Problem.is_near

    def counted(problem: Problem, subscriber: Subscriber, partition: GroupPartition) -> bool:
        asked.append(partition)
        return is_near(problem, subscriber, partition)

    monkeypatch.setattr(Problem, "is_near", counted)
    subscribers = {
        f"m{n}": Subscriber(
            member_id=f"m{n}", topics=frozenset(TOPICS[: 2 if n < differing else 1]), rack=RACKS[1 + n % 3]
        )
        for n in range(99)
    }
    racks = tuple(frozenset({RACKS[1 + n % 3]}) for n in range(990))
    shapes = {TOPICS[0]: TopicShape(partition_count=990, racks=racks), TOPICS[1]: TopicShape(partition_count=1)}
    problem = Problem(subscribers, shapes)
    assert {len(mine) for mine in assign_uniform(problem).values()} <= {10, 11}
    assert len(asked) <= 2 * 990


@given(problem=problems(), alike=st.booleans())
def test_the_emptiest_near_member_comes_before_the_emptiest(problem: Problem, *, alike: bool) -> None:
    """As a walk through all members would find it."""
    for topic_id in problem.topic_ids:
        members = problem.members if alike else problem.subscribers_of[topic_id]
        quota = {m.member_id: 2 for m in members} if alike else None
        owned: dict[str, list[GroupPartition]] = {m.member_id: [] for m in problem.members}
        emptiest = Emptiest(problem, members, owned, quota)
        for p in problem.partitions_of(topic_id):
            left = [m for m in members if not alike or (len(owned[m.member_id]) < 2 and problem.is_near(m, p))]
            expected = min(left, key=lambda m: (len(owned[m.member_id]), not problem.is_near(m, p)), default=None)
            before = len(owned[expected.member_id]) if expected else 0
            assert emptiest.give(p, near_only=alike) == (expected is not None)
            assert expected is None or owned[expected.member_id][before:] == [p]


@given(problem=problems())
@settings(max_examples=50)
def test_uniform_is_at_rest_when_nothing_changes(problem: Problem) -> None:
    first = assign_uniform(problem)
    assert assign_uniform(after(problem, first)) == first


def test_a_member_that_joins_takes_its_share_and_no_more() -> None:
    problem = group(members("a", "b"), {0: 6})
    first = assign_uniform(problem)
    grown = after(Problem({**problem.subscribers, **members("c")}, problem.topics), first)
    second = assign_uniform(grown)
    assert [len(mine) for mine in second.values()] == [2, 2, 2]
    assert set(second["a"]) < set(first["a"])
    assert set(second["b"]) < set(first["b"])


def test_a_chain_frees_a_member_that_cannot_give_to_the_emptiest_itself() -> None:
    """a reads 0 alone, b reads 0 and 1, c reads 1 alone: what c lacks comes from a by way of b."""
    subscribers = {
        "a": Subscriber(
            member_id="a", topics=frozenset({TOPICS[0]}), owned=frozenset({partition(0, n) for n in range(3)})
        ),
        "b": Subscriber(
            member_id="b", topics=frozenset({TOPICS[0], TOPICS[1]}), owned=frozenset({partition(1, 0), partition(1, 1)})
        ),
        "c": Subscriber(member_id="c", topics=frozenset({TOPICS[1]})),
    }
    problem = group(subscribers, {0: 3, 1: 2})
    assert sorted(len(mine) for mine in assign_uniform(problem).values()) == [1, 2, 2]


def test_range_puts_equal_indexes_together() -> None:
    problem = group(members("a", "b", "c", topics=(0, 1)), {0: 7, 1: 7})
    for mine in assign_range(problem).values():
        indexes = [[p.partition for p in mine if p.topic_id == TOPICS[n]] for n in (0, 1)]
        assert indexes[0] == indexes[1]
        assert indexes[0] == list(range(indexes[0][0], indexes[0][-1] + 1))


def test_range_keeps_the_order_of_those_who_were_there() -> None:
    problem = group(members("m", "n"), {0: 4})
    grown = after(Problem({**problem.subscribers, **members("a")}, problem.topics), assign_range(problem))
    assert {name: [p.partition for p in mine] for name, mine in assign_range(grown).items()} == {
        "m": [0, 1],
        "n": [2],
        "a": [3],
    }


def test_roundrobin_passes_over_who_does_not_subscribe() -> None:
    both = {**members("a", topics=(0,)), **members("b", topics=(0, 1))}
    dealt = assign_roundrobin(group(both, {0: 3, 1: 2}))
    assert dealt["a"] == (partition(0, 0), partition(0, 2))
    assert dealt["b"] == (partition(0, 1), partition(1, 0), partition(1, 1))


def test_members_read_in_their_rack_where_it_costs_no_evenness() -> None:
    racks = tuple(frozenset({"ab"[n % 2]}) for n in range(6))
    subscribers = {
        name: Subscriber(member_id=name, topics=frozenset({TOPICS[0]}), rack=name[0]) for name in ("a1", "b1")
    }
    problem = Problem(subscribers, {TOPICS[0]: TopicShape(partition_count=6, racks=racks)})
    assignment = assign_uniform(problem)
    assert [p.partition for p in assignment["a1"]] == [0, 2, 4]
    assert [p.partition for p in assignment["b1"]] == [1, 3, 5]


def test_more_members_than_partitions_wait() -> None:
    assignment = assign_uniform(group(members("a", "b", "c"), {0: 2}))
    assert sorted(map(len, assignment.values())) == [0, 1, 1]


def test_names() -> None:
    assert ASSIGNORS["sticky"] is ASSIGNORS["uniform"]


def test_topics_with_the_same_subscribers_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand topics with ten thousand subscribers each cost a heap of ten thousand for each topic."""
    made: list[int] = []

    class Counted(Emptiest):
        def __init__(self, problem: Problem, some: Sequence[Subscriber], *others: Any) -> None:
            made.append(len(some))
            super().__init__(problem, some, *others)

    monkeypatch.setattr(uniform, "Emptiest", Counted)
    both = members("a", "b", topics=(0, 1, 2)) | members("c", topics=(0, 1, 3))
    problem = group(both, dict.fromkeys(range(4), 3))
    assert not problem.is_alike
    assert problem.subscribers_of[TOPICS[0]] is problem.subscribers_of[TOPICS[1]]
    assign_uniform(problem)
    assert made == [1, 2, 3]
