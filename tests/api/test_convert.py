"""Requests of the batch tier: what becomes of good ones, and what is said of bad ones (FAULTS, "Bad input")."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from streamlog.api.convert import groups, offsets
from streamlog.api.convert.admin import configs, placement
from streamlog.api.convert.admin import topics as admin_topics
from streamlog.api.convert.admin.partitions import isolation_level
from streamlog.api.convert.records import fetch, produce, publish_transactions, subscribe
from streamlog.api.errors import from_message
from streamlog.api.pb import admin_pb2, batches_pb2, common_pb2, groups_pb2, records_pb2
from streamlog.api.requests import (
    FETCH_WAIT_MS_MAX,
    PARTITIONS_PER_REQUEST_MAX,
    PRODUCE_TIMEOUT_MS_MAX,
    RECEIVE_BYTES_MAX,
    FetchSettings,
    OffsetPlace,
    PartitionRef,
)
from streamlog.errors import InvalidRequestError, InvalidTopicError, NotLeaderError, StreamlogError
from streamlog.model import Acks, IsolationLevel, LeaderEpoch, Offset, PartitionId, ProducerId, TopicId

ID = TopicId(bytes(range(16)))
MIB = 1 << 20


def batch_for(**fields: Any) -> batches_pb2.PartitionBatches:
    return batches_pb2.PartitionBatches(**{"topic": "t", "batches": b"x", **fields})


def producing(*partitions: batches_pb2.PartitionBatches, **fields: Any) -> batches_pb2.ProduceRequest:
    return batches_pb2.ProduceRequest(partitions=partitions, **fields)


def fetching(*partitions: batches_pb2.FetchPartition, **settings: Any) -> batches_pb2.FetchRequest:
    return batches_pb2.FetchRequest(partitions=partitions, settings=batches_pb2.FetchSettings(**settings))


def of(**fields: Any) -> batches_pb2.FetchPartition:
    return batches_pb2.FetchPartition(**{"topic": "t", **fields})


def test_a_produce_request_gets_its_defaults() -> None:
    request = produce.produce_request(producing(batch_for(partition=3, correlation_id=7)))
    assert (request.acks, request.timeout_ms, request.transactional_id) == (Acks.ALL, 30_000, "")
    (append,) = request.appends
    assert append.ref == PartitionRef(topic="t", topic_id=None, partition=PartitionId(3))
    assert (append.correlation_id, append.batches) == (7, b"x")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (common_pb2.ACKS_NONE, Acks.NONE),
        (common_pb2.ACKS_LEADER, Acks.LEADER),
        (common_pb2.ACKS_ALL, Acks.ALL),
        (common_pb2.ACKS_UNSPECIFIED, Acks.ALL),
    ],
)
def test_acks(number: common_pb2.Acks.ValueType, expected: Acks) -> None:
    assert produce.produce_request(producing(batch_for(), acks=number)).acks is expected


def test_every_value_of_every_enum_is_known() -> None:
    """A value that is added to a proto file is added to its table."""
    for acks_number in common_pb2.Acks.values():
        assert isinstance(produce.produce_request(producing(batch_for(), acks=acks_number)).acks, Acks)
    for level in common_pb2.IsolationLevel.values():
        assert isinstance(isolation_level(level), IsolationLevel)
    for operation in admin_pb2.ConfigOperation.values():
        change = admin_pb2.ConfigChange(name="n", operation=operation)
        alteration = admin_pb2.ConfigAlteration(
            resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name="t"), changes=[change]
        )
        configs.alter_configs(admin_pb2.AlterConfigsRequest(alterations=[alteration]))
    for election in admin_pb2.ElectionType.values():
        placement.elect_leaders(admin_pb2.ElectLeadersRequest(type=election))
    for action in set(admin_pb2.DrainAction.values()) - {admin_pb2.DRAIN_ACTION_UNSPECIFIED}:
        placement.drain(admin_pb2.DrainNodeRequest(action=action))
    for kind in set(admin_pb2.ConfigResourceType.values()) - {admin_pb2.CONFIG_RESOURCE_TYPE_UNSPECIFIED}:
        configs.config_resource(admin_pb2.ConfigResource(type=kind))
    for bound in set(common_pb2.OffsetBound.values()) - {common_pb2.OFFSET_BOUND_UNSPECIFIED}:
        offsets.list_offsets_request(
            batches_pb2.ListOffsetsRequest(queries=[batches_pb2.OffsetQuery(topic="t", bound=bound)])
        )


def test_epochs_that_are_absent_are_not_epoch_0() -> None:
    absent, first = batch_for(), batch_for(partition=1, leader_epoch=0)
    epochs = [append.ref.leader_epoch for append in produce.produce_request(producing(absent, first)).appends]
    assert epochs == [-1, 0]
    fetches = fetch.fetch_request(fetching(of(), of(partition=1, leader_epoch=0, last_fetched_epoch=0))).fetches
    assert [one.ref.leader_epoch for one in fetches] == [-1, 0]
    assert [one.last_fetched_epoch for one in fetches] == [-1, 0]


def test_fetch_settings_get_their_defaults_and_limits() -> None:
    assert fetch.fetch_request(fetching(of())).settings == FetchSettings(
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        bytes_min=1,
        wait_ms_max=500,
        response_bytes_max=MIB,
        receive_bytes_max=4 * MIB,
    )
    huge = 2**31 - 1
    most = fetching(
        of(partition_bytes_max=huge),
        isolation_level=common_pb2.ISOLATION_LEVEL_READ_COMMITTED,
        bytes_min=huge,
        wait_ms_max=huge,
        response_bytes_max=huge,
        receive_bytes_max=huge,
    )
    request = fetch.fetch_request(most)
    assert request.settings == FetchSettings(
        isolation_level=IsolationLevel.READ_COMMITTED,
        bytes_min=RECEIVE_BYTES_MAX,
        wait_ms_max=FETCH_WAIT_MS_MAX,
        response_bytes_max=RECEIVE_BYTES_MAX,
        receive_bytes_max=RECEIVE_BYTES_MAX,
    )
    assert request.fetches[0].bytes_max == RECEIVE_BYTES_MAX
    small = fetch.fetch_request(fetching(of(), receive_bytes_max=1_000, wait_ms_max=0)).settings
    assert (small.response_bytes_max, small.bytes_min, small.wait_ms_max) == (1_000, 1, 0)


def test_a_fetch_stream_keeps_its_settings_until_it_gets_others() -> None:
    first = fetch.fetch_change(batches_pb2.FetchStreamRequest(add=[of()]), first=True)
    assert first.settings is not None
    assert [one.ref.topic for one in first.add] == ["t"]
    later = batches_pb2.FetchStreamRequest(remove=[of(partition=2)])
    change = fetch.fetch_change(later, first=False)
    assert change.settings is None
    assert [ref.partition for ref in change.remove] == [2]


def test_places_of_offsets() -> None:
    query = batches_pb2.OffsetQuery
    queries = [
        query(topic="t", bound=common_pb2.OFFSET_BOUND_EARLIEST),
        query(topic="t", bound=common_pb2.OFFSET_BOUND_LATEST),
        query(topic="t", timestamp_ms=0),
        query(topic_id=ID, max_timestamp=True),
    ]
    request = offsets.list_offsets_request(batches_pb2.ListOffsetsRequest(queries=queries))
    places = [one.place for one in request.queries]
    assert places == [OffsetPlace.EARLIEST, OffsetPlace.LATEST, 0, OffsetPlace.MAX_TIMESTAMP]
    assert request.queries[3].ref == PartitionRef(topic="", topic_id=ID, partition=PartitionId(0))


def test_a_producer_keeps_its_id_only_with_its_epoch() -> None:
    fresh = produce.init_producer_id_request(batches_pb2.InitProducerIdRequest())
    assert (fresh.transactional_id, fresh.transaction_timeout_ms) == ("", 60_000)
    assert (fresh.producer_id, fresh.producer_epoch) == (-1, -1)
    kept = produce.init_producer_id_request(batches_pb2.InitProducerIdRequest(producer_id=0, producer_epoch=0))
    assert (kept.producer_id, kept.producer_epoch) == (0, 0)


BAD_NAMES = ["../x", "/", "a\0b", ".", "..", "x" * 250, "ä", "a b", "a\n"]


def init(**fields: Any) -> Message:
    return batches_pb2.InitProducerIdRequest(**fields)


def listing(**fields: Any) -> batches_pb2.ListOffsetsRequest:
    return batches_pb2.ListOffsetsRequest(queries=[batches_pb2.OffsetQuery(**{"topic": "t", **fields})])


def epochs(**fields: Any) -> batches_pb2.OffsetForLeaderEpochRequest:
    return batches_pb2.OffsetForLeaderEpochRequest(queries=[batches_pb2.EpochQuery(**{"topic": "t", **fields})])


INIT, LIST, EPOCHS = produce.init_producer_id_request, offsets.list_offsets_request, offsets.epoch_queries
PRODUCE, FETCH = produce.produce_request, fetch.fetch_request


@pytest.mark.parametrize(
    ("convert", "message", "field"),
    [
        (PRODUCE, producing(), "partitions"),
        (PRODUCE, producing(batch_for(), acks=99), "acks"),
        (PRODUCE, producing(batch_for(), timeout_ms=-1), "timeout_ms"),
        (PRODUCE, producing(batch_for(), transactional_id="x" * 250), "transactional_id"),
        (PRODUCE, producing(batch_for(), batch_for()), "partitions[1]"),
        (PRODUCE, producing(batch_for(), batch_for(partition=-1)), "partitions[1].partition"),
        (PRODUCE, producing(batch_for(leader_epoch=-1)), "partitions[0].leader_epoch"),
        (PRODUCE, producing(batch_for(batches=b"")), "partitions[0].batches"),
        (PRODUCE, producing(batch_for(topic="")), "partitions[0].topic"),
        (PRODUCE, producing(batch_for(topic_id=b"short")), "partitions[0].topic_id"),
        (FETCH, fetching(), "partitions"),
        (FETCH, fetching(of(), isolation_level=9), "settings.isolation_level"),
        (FETCH, fetching(of(), bytes_min=-1), "settings.bytes_min"),
        (FETCH, fetching(of(), wait_ms_max=-1), "settings.wait_ms_max"),
        (FETCH, fetching(of(), response_bytes_max=-5), "settings.response_bytes_max"),
        (FETCH, fetching(of(), receive_bytes_max=-5), "settings.receive_bytes_max"),
        (FETCH, fetching(of(fetch_offset=-1)), "partitions[0].fetch_offset"),
        (FETCH, fetching(of(partition_bytes_max=-1)), "partitions[0].partition_bytes_max"),
        (FETCH, fetching(of(last_fetched_epoch=-2)), "partitions[0].last_fetched_epoch"),
        (FETCH, fetching(of(topic_id=ID, topic=""), of(topic_id=ID, topic="")), "partitions[1]"),
        (LIST, batches_pb2.ListOffsetsRequest(), "queries"),
        (LIST, listing(), "queries[0].place"),
        (LIST, listing(max_timestamp=False), "queries[0].place"),
        (LIST, listing(bound=0), "queries[0].bound"),
        (LIST, listing(bound=77), "queries[0].bound"),
        (LIST, listing(timestamp_ms=-2), "queries[0].timestamp_ms"),
        (EPOCHS, batches_pb2.OffsetForLeaderEpochRequest(), "queries"),
        (EPOCHS, epochs(leader_epoch=-1), "queries[0].leader_epoch"),
        (EPOCHS, epochs(current_leader_epoch=-1), "queries[0].current_leader_epoch"),
        (INIT, init(transaction_timeout_ms=-1), "transaction_timeout_ms"),
        (INIT, init(producer_id=1), "producer_epoch"),
        (INIT, init(producer_epoch=1), "producer_epoch"),
        (INIT, init(producer_id=-1, producer_epoch=0), "producer_id"),
        (INIT, init(producer_id=1, producer_epoch=2**15), "producer_epoch"),
    ],
)
def test_a_bad_request_names_the_field(convert: Callable[[Any], object], message: Message, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        convert(message)
    assert caught.value.details["field"] == field
    assert not caught.value.retriable


@pytest.mark.parametrize("name", BAD_NAMES)
def test_topic_names_that_cannot_be_are_refused_everywhere(name: str) -> None:
    requests: list[tuple[Callable[[Any], object], Message, str]] = [
        (PRODUCE, producing(batch_for(topic=name)), "partitions[0].topic"),
        (FETCH, fetching(of(topic=name)), "partitions[0].topic"),
        (LIST, listing(topic=name, timestamp_ms=1), "queries[0].topic"),
        (EPOCHS, epochs(topic=name), "queries[0].topic"),
        (
            placement.elect_leaders,
            admin_pb2.ElectLeadersRequest(partitions=[common_pb2.TopicPartition(topic=name)]),
            "partitions[0].topic",
        ),
        (
            placement.alter_reassignments,
            admin_pb2.AlterPartitionReassignmentsRequest(reassignments=[admin_pb2.Reassignment(topic=name)]),
            "reassignments[0].topic",
        ),
    ]
    for convert, message, field in requests:
        with pytest.raises(InvalidTopicError) as caught:
            convert(message)
        assert caught.value.details["field"] == field


def test_the_clusters_own_topics_may_be_read() -> None:
    assert fetch.fetch_request(fetching(of(topic="__consumer_offsets"))).fetches[0].ref.topic == "__consumer_offsets"


def test_an_unknown_enum_value_is_refused_by_name() -> None:
    with pytest.raises(
        InvalidRequestError, match=re.escape("acks is 99, but must be one of ACKS_NONE, ACKS_LEADER, ACKS_ALL")
    ):
        produce.produce_request(producing(batch_for(), acks=99))
    with pytest.raises(InvalidRequestError, match="bound is OFFSET_BOUND_UNSPECIFIED"):
        offsets.list_offsets_request(listing(bound=0))


def test_too_many_partitions_are_refused_before_they_are_looked_at() -> None:
    many = [of(partition=-1)] * (PARTITIONS_PER_REQUEST_MAX + 1)
    with pytest.raises(InvalidRequestError) as caught:
        fetch.fetch_request(fetching(*many))
    assert caught.value.details == {"field": "partitions", "limit": PARTITIONS_PER_REQUEST_MAX}


def test_long_waits_are_lowered() -> None:
    assert produce.produce_request(producing(batch_for(), timeout_ms=2**31 - 1)).timeout_ms == PRODUCE_TIMEOUT_MS_MAX


def test_results_name_the_partition_as_it_was_asked_for() -> None:
    (append,) = produce.produce_request(producing(batch_for(topic_id=ID, partition=2, correlation_id=5))).appends
    done = produce.appended(append, base_offset=Offset(9), leader_epoch=LeaderEpoch(3), log_start=Offset(1))
    assert (done.topic, done.topic_id, done.partition, done.correlation_id) == ("t", ID, 2, 5)
    assert (done.base_offset, done.leader_epoch, done.log_append_time_ms, done.log_start) == (9, 3, -1, 1)
    assert not done.HasField("error")
    failed = produce.not_appended(append, NotLeaderError("elsewhere", leader=2))
    assert (failed.topic, failed.partition, failed.correlation_id, failed.base_offset) == ("t", 2, 5, -1)
    error: StreamlogError = from_message(failed.error)
    assert isinstance(error, NotLeaderError)
    assert error.details == {"leader": 2}


def test_what_was_fetched() -> None:
    (one,) = fetch.fetch_request(fetching(of(partition=1, correlation_id=8))).fetches
    read = fetch.fetched(
        one,
        high_watermark=Offset(10),
        last_stable_offset=Offset(7),
        log_start=Offset(2),
        aborted=[(ProducerId(5), Offset(3))],
    )
    assert (read.topic, read.partition, read.correlation_id) == ("t", 1, 8)
    assert (read.high_watermark, read.last_stable_offset, read.log_start) == (10, 7, 2)
    assert [(a.producer_id, a.first_offset) for a in read.aborted_transactions] == [(5, 3)]
    assert not read.HasField("diverging_epoch")
    end = offsets.epoch_end(LeaderEpoch(4), Offset(6))
    other = fetch.diverged(one, end, high_watermark=Offset(10), log_start=Offset(2))
    assert (other.diverging_epoch.leader_epoch, other.diverging_epoch.end_offset, other.batches) == (4, 6, b"")
    failed = fetch.not_fetched(one, NotLeaderError("elsewhere"))
    assert (failed.error.code, failed.high_watermark) == ("NOT_LEADER", -1)


def test_found_offsets_and_epochs() -> None:
    query = offsets.list_offsets_request(listing(timestamp_ms=5)).queries[0]
    none = offsets.found_offset(query)
    assert (none.topic, none.offset, none.timestamp_ms, none.leader_epoch) == ("t", -1, -1, -1)
    failed = offsets.found_offset(query, error=NotLeaderError("elsewhere"))
    assert failed.error.code == "NOT_LEADER"
    (asked,) = offsets.epoch_queries(epochs(leader_epoch=2))
    assert offsets.found_epoch(asked, offsets.epoch_end(LeaderEpoch(1), Offset(8))).end.end_offset == 8
    assert offsets.found_epoch(asked, NotLeaderError("elsewhere")).error.code == "NOT_LEADER"


def owning(count: int) -> groups_pb2.GroupHeartbeatRequest:
    topics = [groups_pb2.TopicPartitions(topic_id=ID, partitions=[0] * 10_000)] * (count // 10_000)
    rest = groups_pb2.TopicPartitions(topic_id=ID, partitions=range(count % 10_000))
    owned = groups_pb2.MemberPartitions(topics=[*topics, rest])
    return groups_pb2.GroupHeartbeatRequest(group="g", member_id="m", member_epoch=1, owned=owned)


def committing(count: int) -> records_pb2.PublishStreamRequest:
    places = [groups_pb2.OffsetToCommit(topic="t", partition=index) for index in range(5_000)]
    full = [records_pb2.TransactionOffsets(group=f"g{n}", offsets=places) for n in range(count // 5_000)]
    rest = records_pb2.TransactionOffsets(group="g", offsets=places[: count % 5_000])
    return records_pb2.PublishStreamRequest(offsets=[*full, rest] if rest.offsets else full)


def subscribing(count: int) -> records_pb2.SubscribeRequest:
    parts = [records_pb2.SubscribePartitions(topic=f"t{n}", partitions=range(5_000)) for n in range(count // 5_000)]
    rest = records_pb2.SubscribePartitions(topic="t", partitions=range(count % 5_000))
    return records_pb2.SubscribeRequest(subscriptions=[*parts, rest] if rest.partitions else parts)


def assigning(count: int) -> list[admin_pb2.ReplicaAssignment]:
    return [admin_pb2.ReplicaAssignment(replicas=[1])] * count


def creating(count: int) -> admin_pb2.CreateTopicsRequest:
    full = [admin_pb2.NewTopic(name=f"t{n}", assignments=assigning(2_000)) for n in range(count // 2_000)]
    rest = admin_pb2.NewTopic(name="t", assignments=assigning(count % 2_000))
    return admin_pb2.CreateTopicsRequest(topics=[*full, rest])


def growing(count: int) -> admin_pb2.CreatePartitionsRequest:
    full = [admin_pb2.TopicGrowth(topic=f"t{n}", assignments=assigning(2_000)) for n in range(count // 2_000)]
    rest = admin_pb2.TopicGrowth(topic="t", assignments=assigning(count % 2_000))
    return admin_pb2.CreatePartitionsRequest(topics=[*full, rest])


@pytest.mark.parametrize(
    ("convert", "asking", "limit", "field", "single"),
    [
        (lambda message: groups.heartbeat(message, "host"), owning, 100_000, "owned.topics", (groups, "partition_id")),
        (publish_transactions.offsets, committing, 10_000, "offsets", (publish_transactions, "to_commit")),
        (subscribe.subscribe_query, subscribing, 10_000, "subscriptions", (subscribe, "partition_id")),
        (admin_topics.create_topics, creating, 10_000, "topics", (admin_topics, "replicas")),
        (admin_topics.create_partitions, growing, 10_000, "topics", (admin_topics, "replicas")),
    ],
)
def test_lists_within_lists_are_counted_together_before_the_first_is_converted(
    convert: Callable[[Any], object],
    asking: Callable[[int], Message],
    limit: int,
    field: str,
    single: tuple[Any, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is within its own limit; their product took one request seconds of the node's loop."""
    convert(asking(limit))

    def untouched(*_: object) -> None:
        raise AssertionError("converted before it is counted")

    monkeypatch.setattr(*single, untouched)
    with pytest.raises(InvalidRequestError) as caught:
        convert(asking(limit + 1))
    assert caught.value.details == {"field": field, "limit": limit}
