"""What a leader answers about its log: offsets, times, epochs; and a node that does not lead."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from streamlog.api.requests import OffsetPlace
from streamlog.broker.leading.offset_lookup import offset_for
from streamlog.errors import (
    LeaderNotAvailableError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from streamlog.model import Acks, LeaderEpoch, Offset, PartitionId
from tests.broker.rig import (
    ME,
    OTHER,
    P0,
    UNCOMMITTED,
    Rig,
    append_to,
    topic_id,
)
from tests.storage.batches import batch


def test_offsets_outside_the_log_are_refused_with_both_ends(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.append(b"a")
    assert rig.read(1) == rig.read(0) == b""  # not committed yet: to be waited for
    with pytest.raises(OffsetOutOfRangeError) as refused:
        rig.read(2)
    assert (refused.value.details["log_start"], refused.value.details["log_end"]) == (0, 1)


def test_places_and_times(rig: Rig) -> None:
    rig.create()
    rig.rest()
    for index in range(3):
        data = batch([b"v"], timestamp=1000 + 10 * index)
        rig.do(partial(append_to, rig.leader(), data, Acks.LEADER))
    rig.rest()
    leader = rig.leader()

    def offset_of(place: OffsetPlace | int) -> tuple[int, int]:
        found = rig.machine.run(offset_for(leader, place, UNCOMMITTED))
        return found.offset, found.timestamp_ms

    assert offset_of(OffsetPlace.EARLIEST) == (0, -1)
    assert offset_of(OffsetPlace.LATEST) == (3, -1)
    assert offset_of(OffsetPlace.MAX_TIMESTAMP) == (2, 1020)
    assert offset_of(1005) == (1, 1010)
    assert offset_of(1021) == (-1, -1)


def test_the_largest_time_is_that_of_a_record_that_is_not_deleted(rig: Rig) -> None:
    """A deleted one in the same segment was searched for, and the log was said to have none."""
    rig.create()
    rig.rest()
    for time_ms in (9000, 1000, 1010, 1020):
        rig.do(partial(append_to, rig.leader(), batch([b"v"], timestamp=time_ms), Acks.LEADER))
    rig.rest()
    leader = rig.leader()
    found = rig.machine.run(offset_for(leader, OffsetPlace.MAX_TIMESTAMP, UNCOMMITTED))
    assert (found.offset, found.timestamp_ms) == (0, 9000)
    rig.do(partial(leader.log.advance_log_start, Offset(1)))
    rig.do(leader.on_log_start_moved)
    found = rig.machine.run(offset_for(leader, OffsetPlace.MAX_TIMESTAMP, UNCOMMITTED))
    assert (found.offset, found.timestamp_ms) == (3, 1020)


def test_kip_207_a_new_leader_waits_before_it_returns_the_end(rig: Rig) -> None:
    rig.create(replicas=(ME, OTHER))
    rig.rest()
    rig.append(b"a")
    rig.change(leader=ME)  # a new epoch; what is in the log was committed by the old leader, for all this one knows
    leader = rig.leader()

    async def latest() -> int:
        return (await offset_for(leader, OffsetPlace.LATEST, UNCOMMITTED)).offset

    async def asking() -> tuple[bool, int]:
        asked = asyncio.get_running_loop().create_task(latest())
        await asyncio.sleep(1)
        early = asked.done()
        leader.on_position(OTHER, Offset(1))
        return early, await asked

    assert rig.machine.run(asking()) == (False, 1)


def test_kip_320_divergence_and_ends_of_epochs(rig: Rig) -> None:
    rig.create()
    rig.rest()
    rig.produce(b"a")
    rig.change(leader=ME)
    rig.produce(b"b")
    leader = rig.leader()
    assert leader.leader_epoch == 1
    end = leader.end_offset_for(LeaderEpoch(0))
    assert (end.epoch, end.end_offset) == (0, 1)
    assert leader.divergence(LeaderEpoch(0), Offset(1)) is None
    diverging = leader.divergence(LeaderEpoch(0), Offset(2))
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (0, 1)


def test_a_node_that_does_not_lead_names_the_leader(rig: Rig) -> None:
    rig.create(replicas=(OTHER, ME), leader=OTHER)
    rig.create("leaderless", 2, replicas=(OTHER, ME), leader=OTHER)
    rig.change(2, leader=-1)
    rig.rest()
    with pytest.raises(NotLeaderError) as refused:
        rig.leader()
    assert dict(refused.value.details) == {"leader": OTHER, "address": "node2:9092", "leader_epoch": 0}
    with pytest.raises(LeaderNotAvailableError):
        rig.leader("leaderless")
    with pytest.raises(UnknownTopicOrPartitionError):
        rig.leader("other")
    with pytest.raises(UnknownTopicOrPartitionError):
        rig.replicas.leader("t", None, PartitionId(1))
    with pytest.raises(UnknownTopicIdError):
        rig.leader("t", 2)
    with pytest.raises(UnknownTopicIdError):
        rig.replicas.leader("", topic_id(9), P0)


def test_a_leader_is_found_by_name_and_by_id(rig: Rig) -> None:
    rig.create()
    rig.rest()
    assert rig.replicas.leader("", topic_id(1), P0) is rig.leader("t") is rig.leader("t", 1)
