"""What a client, or another node, really sends: from here a call gets further into a node than by chance. By the type
of the request; a stream's messages in their order.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import Message

from streamlog.api.pb import (
    admin_pb2,
    batches_pb2,
    common_pb2,
    controller_pb2,
    coordination_pb2,
    groups_pb2,
    records_pb2,
    replication_pb2,
    transactions_pb2,
)
from streamlog.raft.pb import raft_pb2

from .batches import sound_batch
from .known import Known

Make = Callable[[random.Random, Known], list[Message]]


def templates(request: type[Message]) -> Make | None:
    return _TEMPLATES.get(request.DESCRIPTOR.full_name.rpartition(".")[2])


def _topic(rng: random.Random, known: Known) -> dict[str, Any]:
    name = rng.choice(sorted(known.topics))
    by_id = rng.random() < 0.5
    return {"topic_id": known.topics[name]} if by_id else {"topic": name}


def _place(rng: random.Random, known: Known) -> dict[str, Any]:
    return {"topic": rng.choice(sorted(known.topics)), "partition": rng.randrange(2)}


def _produce(rng: random.Random, known: Known, kind: Any) -> Message:
    batches = sound_batch(rng)
    part = batches_pb2.PartitionBatches(**_topic(rng, known), partition=rng.randrange(2), batches=batches)
    message: Message = kind(acks=rng.choice((1, 2, 3)), timeout_ms=1_000, partitions=[part])
    return message


def _settings(rng: random.Random) -> Any:
    return batches_pb2.FetchSettings(bytes_min=1, wait_ms_max=100, response_bytes_max=1 << 20)


def _fetch(rng: random.Random, known: Known) -> Any:
    return batches_pb2.FetchPartition(**_topic(rng, known), partition=rng.randrange(2), fetch_offset=0)


def _heartbeat(rng: random.Random, known: Known) -> Any:
    subscription = groups_pb2.GroupSubscription(topics=sorted(known.topics))
    return groups_pb2.GroupHeartbeatRequest(
        group=rng.choice(known.groups), member_id=f"m-{rng.randrange(5)}", subscription=subscription
    )


def _records(rng: random.Random, count: int = 3) -> list[Any]:
    return [records_pb2.PublishRecord(key=b"k", value=rng.randbytes(10)) for _ in range(count)]


def _offset(rng: random.Random, known: Known) -> Any:
    return groups_pb2.OffsetToCommit(**_place(rng, known), offset=1)


def _publish_stream(rng: random.Random, known: Known) -> list[Message]:
    topic = rng.choice(sorted(known.topics))
    kind = records_pb2.PublishStreamRequest
    if rng.random() < 0.5:
        return [kind(topic=topic, records=_records(rng)), kind(records=_records(rng))]
    writer = records_pb2.TransactionalWriter(transactional_id=f"fuzz-{rng.randrange(4)}")
    group = records_pb2.TransactionOffsets(group=rng.choice(known.groups), offsets=[_offset(rng, known)])
    return [
        kind(topic=topic, transactional=writer),
        kind(records=_records(rng)),
        kind(offsets=[group]),
        kind(end=rng.choice((records_pb2.TRANSACTION_END_COMMIT, records_pb2.TRANSACTION_END_ABORT))),
    ]


def _raft(rng: random.Random, known: Known) -> list[Message]:
    """A stranger, or one that says to be a voter, without its directory's id."""
    kind = raft_pb2.Envelope
    hello = raft_pb2.Hello(
        cluster_id=known.cluster_id, node_id=rng.choice((*known.node_ids, 9)), directory_id=rng.randbytes(16)
    )
    term = rng.choice((1, 2, 50, 1 << 32, (1 << 63) - 1, (1 << 64) - 1))
    far = rng.choice((0, 1, 5, 1 << 40, (1 << 64) - 1))
    entry = raft_pb2.Entry(index=far, term=term, data=b"\xff\xff")
    bodies = [
        kind(vote_request=raft_pb2.VoteRequest(term=term, last_index=far, last_term=term)),
        kind(pre_vote_request=raft_pb2.PreVoteRequest(term=term, last_index=far, last_term=term)),
        kind(append_request=raft_pb2.AppendRequest(term=term, round=1, prev_index=far, entries=[entry])),
        kind(append_request=raft_pb2.AppendRequest(term=term, round=1, commit_index=far, next_within_ms=100)),
        kind(snapshot_request=raft_pb2.SnapshotRequest(term=term, round=1, last_index=far, size=far, data=b"x")),
        kind(timeout_now=raft_pb2.TimeoutNow(term=term)),
        kind(vote_reply=raft_pb2.VoteReply(term=term, granted=True)),
        kind(append_reply=raft_pb2.AppendReply(term=term, round=1, matched=True, next_index=far)),
    ]
    return [kind(hello=hello), *rng.sample(bodies, rng.randint(1, 3))]


def _replicate(rng: random.Random, known: Known) -> list[Message]:
    """A broker epoch of no node: a follower that does not exist."""
    kind = replication_pb2.ReplicateRequest
    hello = replication_pb2.ReplicaHello(
        cluster_id=known.cluster_id,
        node_id=rng.choice((*known.node_ids, 9)),
        broker_epoch=rng.choice((0, 1 << 40, (1 << 64) - 1)),
        leader_id=rng.choice(known.node_ids),
    )
    follow = replication_pb2.Follow(slot=1, topic_id=rng.choice(sorted(known.topics.values())), fetch_offset=0)
    position = replication_pb2.Position(slot=1, log_end_offset=1, credit_bytes=1 << 20)
    return [kind(hello=hello), kind(follow=[follow]), kind(positions=[position])]


def _consume(rng: random.Random, known: Known) -> list[Message]:
    kind = records_pb2.ConsumeRequest
    join = records_pb2.ConsumeJoin(
        group=rng.choice(known.groups), topics=sorted(known.topics), offset_reset=records_pb2.OFFSET_RESET_EARLIEST
    )
    return [kind(join=join, credits=10), kind(credits=10)]


def _subscribe(rng: random.Random, known: Known) -> list[Message]:
    part = records_pb2.SubscribePartitions(
        topic=rng.choice(sorted(known.topics)), partitions=[0], start=records_pb2.StartPosition(offset=0)
    )
    return [
        records_pb2.SubscribeRequest(subscriptions=[part], isolation_level=common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED)
    ]


def _commit_in_transaction(rng: random.Random, known: Known) -> list[Message]:
    return [
        transactions_pb2.CommitTransactionOffsetsRequest(
            transactional_id="fuzz-1", producer_id=1, group=rng.choice(known.groups), offsets=[_offset(rng, known)]
        )
    ]


def _markers(rng: random.Random, known: Known) -> list[Message]:
    at = admin_pb2.AbortTransactionRequest().partition.__class__(**_place(rng, known))
    marker = coordination_pb2.Marker(producer_id=rng.randrange(3), commit=True, partitions=[at])
    return [coordination_pb2.WriteMarkersRequest(markers=[marker])]


def _new_topic(rng: random.Random, known: Known) -> list[Message]:
    topic = admin_pb2.NewTopic(
        name=f"made-{rng.randrange(1 << 20)}", partitions=1, replication_factor=1, configs={"retention.ms": "60000"}
    )
    return [admin_pb2.CreateTopicsRequest(topics=[topic])]


def _alter_config(rng: random.Random, known: Known) -> list[Message]:
    resource = admin_pb2.ConfigResource(
        type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=rng.choice(sorted(known.topics))
    )
    name, value = rng.choice((("retention.ms", "60000"), ("cleanup.policy", "compact"), ("max.message.bytes", "1000")))
    change = admin_pb2.ConfigChange(
        name=name, operation=rng.choice(admin_pb2.ConfigOperation.values()[1:]), value=value
    )
    return [
        admin_pb2.AlterConfigsRequest(alterations=[admin_pb2.ConfigAlteration(resource=resource, changes=[change])])
    ]


def _reassign(rng: random.Random, known: Known) -> list[Message]:
    target = admin_pb2.ReplicaAssignment(replicas=rng.sample(known.node_ids, rng.randint(1, len(known.node_ids))))
    one = admin_pb2.Reassignment(**_place(rng, known), target=target)
    return [admin_pb2.AlterPartitionReassignmentsRequest(reassignments=[one])]


def _forward(rng: random.Random, known: Known) -> list[Message]:
    """As a node that is not the controller passes on what an administrator asks for."""
    name, make = rng.choice(
        (
            ("CreateTopics", _new_topic),
            ("AlterConfigs", _alter_config),
            ("AlterPartitionReassignments", _reassign),
        )
    )
    [carried] = make(rng, known)
    request = bytearray(carried.SerializeToString())
    if rng.random() < 0.5:
        request[rng.randrange(len(request))] ^= 1 << rng.randrange(8)
    return [controller_pb2.ForwardRequest(method=f"/streamlog.v1.Admin/{name}", request=bytes(request))]


_TEMPLATES: Final[dict[str, Make]] = {
    "ProduceRequest": lambda rng, known: [_produce(rng, known, batches_pb2.ProduceRequest)],
    "ProduceStreamRequest": lambda rng, known: [_produce(rng, known, batches_pb2.ProduceStreamRequest)] * 2,
    "FetchRequest": lambda rng, known: [
        batches_pb2.FetchRequest(settings=_settings(rng), partitions=[_fetch(rng, known)])
    ],
    "FetchStreamRequest": lambda rng, known: [
        batches_pb2.FetchStreamRequest(settings=_settings(rng), add=[_fetch(rng, known)])
    ],
    "ListOffsetsRequest": lambda rng, known: [
        batches_pb2.ListOffsetsRequest(
            queries=[batches_pb2.OffsetQuery(**_topic(rng, known), partition=0, timestamp_ms=1)]
        )
    ],
    "OffsetForLeaderEpochRequest": lambda rng, known: [
        batches_pb2.OffsetForLeaderEpochRequest(queries=[batches_pb2.EpochQuery(**_topic(rng, known), partition=0)])
    ],
    "InitProducerIdRequest": lambda rng, known: [
        batches_pb2.InitProducerIdRequest(transactional_id=f"fuzz-{rng.randrange(4)}", transaction_timeout_ms=1_000)
    ],
    "PublishRequest": lambda rng, known: [
        records_pb2.PublishRequest(topic=rng.choice(sorted(known.topics)), records=_records(rng))
    ],
    "PublishStreamRequest": _publish_stream,
    "SubscribeRequest": _subscribe,
    "ConsumeRequest": _consume,
    "GroupHeartbeatRequest": lambda rng, known: [_heartbeat(rng, known)],
    "GroupMembershipRequest": lambda rng, known: [
        groups_pb2.GroupMembershipRequest(heartbeat=_heartbeat(rng, known)) for _ in range(2)
    ],
    "CommitOffsetsRequest": lambda rng, known: [
        groups_pb2.CommitOffsetsRequest(group=rng.choice(known.groups), offsets=[_offset(rng, known)])
    ],
    "CommitTransactionOffsetsRequest": _commit_in_transaction,
    "WriteMarkersRequest": _markers,
    "CreateTopicsRequest": _new_topic,
    "AlterConfigsRequest": _alter_config,
    "AlterPartitionReassignmentsRequest": _reassign,
    "WatchRequest": lambda rng, known: [raft_pb2.WatchRequest(cluster_id=known.cluster_id)],
    "Envelope": _raft,
    "ForwardRequest": _forward,
    "ReplicateRequest": _replicate,
}
