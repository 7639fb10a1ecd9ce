"""What the operations page shows of moves and elections."""

from __future__ import annotations

import pytest

from streamlog.client.admin.values import Election, ElectionCandidate, PartitionDescription
from streamlog.console.pages.operations.drains import actions_of
from streamlog.console.pages.operations.elections import candidate_rows
from streamlog.console.pages.operations.reassignments import CopyProgress, copy_progress, parsed_move
from streamlog.model import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionId, TopicPartition

AT = TopicPartition("t", PartitionId(0))


def nodes(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def partition(*, adding: tuple[int, ...], isr: tuple[int, ...], leader: int | None = 1) -> PartitionDescription:
    return PartitionDescription(
        partition=PartitionId(0),
        leader=None if leader is None else BrokerId(leader),
        leader_epoch=LeaderEpoch(1),
        partition_epoch=PartitionEpoch(1),
        replicas=nodes(1, 2, *adding),
        isr=nodes(*isr),
        elr=(),
        adding=nodes(*adding),
        removing=nodes(2),
        offline=(),
    )


def sizes(**by_node: int) -> dict[tuple[BrokerId, TopicPartition], int]:
    return {(BrokerId(int(node[1:])), AT): size for node, size in by_node.items()}


def test_progress_and_end_follow_from_what_was_copied_between_two_samples() -> None:
    found = copy_progress(AT, partition(adding=(3,), isr=(1, 2)), sizes(n1=1000, n3=200), sizes(n1=1000, n3=400), 10.0)
    assert found == CopyProgress(0.4, 600, 30.0)


def test_two_new_replicas_are_counted_together() -> None:
    moving = partition(adding=(3, 4), isr=(1, 2))
    found = copy_progress(AT, moving, sizes(n1=1000), sizes(n1=1000, n3=500, n4=500), 10.0)
    assert found == CopyProgress(0.5, 1000, 10.0)


def test_without_any_copied_byte_the_end_is_unknown() -> None:
    assert copy_progress(AT, partition(adding=(3,), isr=(1,)), {}, sizes(n1=1000), 10.0).seconds is None
    assert copy_progress(AT, partition(adding=(3,), isr=(1,), leader=None), {}, {}, 10.0).done is None


def test_a_new_replica_in_sync_is_done() -> None:
    assert copy_progress(AT, partition(adding=(3,), isr=(1, 2, 3)), {}, sizes(n1=9), 10.0) == CopyProgress(1.0, 0, 0.0)


def test_each_choice_of_an_unclean_election_shows_its_loss() -> None:
    def candidate(node: int, end: int | None, lost: int | None, *, leads: bool) -> ElectionCandidate:
        return ElectionCandidate(
            node_id=BrokerId(node),
            state="alive" if end is not None else "no answer",
            known=end is None,
            last_epoch=None,
            log_end=None if end is None else Offset(end),
            lost_records=lost,
            would_lead=leads,
        )

    candidates = (candidate(2, 90, 10, leads=True), candidate(3, None, None, leads=False))
    rows = candidate_rows([Election(at=AT, leader=None, error=None, candidates=candidates)])
    assert [(row["node"], row["lost"], row["choice"]) for row in rows] == [
        (2, 10, "yes"),
        (3, "unknown: start this node first, if possible", ""),
    ]


def test_a_move_as_a_user_types_it() -> None:
    found = parsed_move(" my-topic-7 ", "1, 2,3")
    assert (found.at, found.replicas) == (TopicPartition("my-topic", PartitionId(7)), [1, 2, 3])


@pytest.mark.parametrize(("at", "replicas"), [("orders", "1"), ("orders-0", ""), ("orders-0", "1;2"), ("-0", "1")])
def test_what_is_no_move_is_refused(at: str, replicas: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        parsed_move(at, replicas)


@pytest.mark.parametrize(
    ("active", "draining", "replicas", "expected"),
    [
        (True, False, 5, ["Drain"]),
        (True, True, 5, ["Cancel drain"]),
        (False, True, 0, ["Cancel drain", "Unregister"]),
        (False, False, 3, ["Drain"]),
    ],
)
def test_a_node_can_be_unregistered_when_it_is_stopped_and_empty(
    active: bool, draining: bool, replicas: int, expected: list[str]
) -> None:
    assert actions_of({"active": active, "draining": draining, "replicas": replicas}) == expected
