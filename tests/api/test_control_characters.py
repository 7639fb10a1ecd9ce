"""Ids and names with control characters are refused where they are decoded, by field: they would be shown in tables,
in logs, in other programs' terminals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamlog.api.convert import cluster, controller, groups, transactions
from streamlog.api.convert.admin import configs, group_admin, topics, transaction_admin
from streamlog.api.convert.records import consume, produce, publish_transactions
from streamlog.api.pb import (
    admin_pb2,
    batches_pb2,
    common_pb2,
    controller_pb2,
    coordination_pb2,
    groups_pb2,
    records_pb2,
    transactions_pb2,
)
from streamlog.errors import InvalidGroupIdError, InvalidRequestError, StreamlogError

CONTROLS = ["a\nb", "\x1b[2J", "a\x00", "a\x7f", "\x9b31m", "a\u2028b", "a\u202eb", "\u2066a"]


def heartbeat(**of: str) -> object:
    subscription = groups_pb2.GroupSubscription(
        topics=["t"], pattern=of.pop("pattern", ""), assignor=of.pop("assignor", ""), rack=of.pop("rack", "")
    )
    values: dict[str, Any] = {"group": "g", "member_id": "m", **of}
    return groups.heartbeat(groups_pb2.GroupHeartbeatRequest(subscription=subscription, **values), "host")


def join(**of: str) -> object:
    values: dict[str, Any] = {"group": "g", **of}
    return consume.join(records_pb2.ConsumeRequest(join=records_pb2.ConsumeJoin(topics=["t"], **values)))


def commit(group: str = "g", member_id: str = "m") -> object:
    offset = common_pb2.OffsetToCommit if hasattr(common_pb2, "OffsetToCommit") else groups_pb2.OffsetToCommit
    return groups.commit_request(
        groups_pb2.CommitOffsetsRequest(
            group=group, member=groups_pb2.GroupMember(member_id=member_id), offsets=[offset(topic="t")]
        )
    )


def new_topic(key: str = "retention.ms", value: str = "1") -> object:
    return topics.create_topics(
        admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t", configs={key: value})])
    )


def resource(name: str) -> object:
    return configs.config_resource(admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name))


CASES: dict[str, tuple[Callable[[str], object], str]] = {
    "member: group": (lambda text: heartbeat(group=text), "group"),
    "member: member_id": (lambda text: heartbeat(member_id=text), "member_id"),
    "member: instance_id": (lambda text: heartbeat(instance_id=text), "instance_id"),
    "member: client_id": (lambda text: heartbeat(client_id=text), "client_id"),
    "member: pattern": (lambda text: heartbeat(pattern=text), "subscription.pattern"),
    "member: assignor": (lambda text: heartbeat(assignor=text), "subscription.assignor"),
    "member: rack": (lambda text: heartbeat(rack=text), "subscription.rack"),
    "stream: group": (lambda text: join(group=text), "join.group"),
    "stream: instance_id": (lambda text: join(instance_id=text), "join.instance_id"),
    "stream: client_id": (lambda text: join(client_id=text), "join.client_id"),
    "stream: pattern": (lambda text: join(pattern=text), "join.pattern"),
    "stream: rack": (lambda text: join(rack=text), "join.rack"),
    "commit: group": (lambda text: commit(group=text), "group"),
    "commit: member_id": (lambda text: commit(member_id=text), "member.member_id"),
    "admin: groups": (lambda text: group_admin.groups(["g", text]), "groups[1]"),
    "admin: transactional ids": (
        lambda text: transaction_admin.ids(admin_pb2.DescribeTransactionsRequest(transactional_ids=[text])),
        "transactional_ids[0]",
    ),
    "end: transactional_id": (
        lambda text: transactions.end_request(transactions_pb2.EndTransactionRequest(transactional_id=text)),
        "transactional_id",
    ),
    "init: transactional_id": (
        lambda text: produce.init_producer_id_request(batches_pb2.InitProducerIdRequest(transactional_id=text)),
        "transactional_id",
    ),
    "stream: transactional_id": (
        lambda text: publish_transactions.writer(records_pb2.TransactionalWriter(transactional_id=text)),
        "transactional.transactional_id",
    ),
    "between nodes: transactional_id": (
        lambda text: transactions.add_request(coordination_pb2.AddPartitionsRequest(transactional_id=text)),
        "transactional_id",
    ),
    "new topic: config": (lambda text: new_topic(key=text), "topics[0].configs"),
    "new topic: value": (lambda text: new_topic(value=text), "topics[0].configs"),
    "config: resource": (resource, "name"),
    "voter: address": (
        lambda text: cluster.add_voter(admin_pb2.AddVoterRequest(node_id=4, address=text)),
        "address",
    ),
    "node: host": (lambda text: controller.register(controller_pb2.RegisterRequest(host=text)), "host"),
    "node: rack": (lambda text: controller.register(controller_pb2.RegisterRequest(rack=text)), "rack"),
}


@pytest.mark.parametrize("text", CONTROLS, ids=ascii)
@pytest.mark.parametrize("case", CASES)
def test_refused_with_the_name_of_the_field(case: str, text: str) -> None:
    decode, field = CASES[case]
    with pytest.raises(StreamlogError) as caught:
        decode(text)
    assert isinstance(caught.value, InvalidRequestError | InvalidGroupIdError)
    assert str(caught.value.details["field"]).startswith(field)
    assert text not in caught.value.message


@pytest.mark.parametrize("text", ["orders", "Ærø 1", "价格", "a b~", "\u00a0x"])
def test_other_text_passes(text: str) -> None:
    heartbeat(group=text, member_id=text, instance_id=text, client_id=text, rack=text)
    join(group=text, instance_id=text, client_id=text)
