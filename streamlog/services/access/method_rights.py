"""The table: which right each method for clients needs, and what its response hides.

`admit` gets each message of the call before the handler does, `reveal` each response. Methods on partitions of several
topics (produce, fetch, offsets) check each partition where they look up its leader, and refuse it alone
(`PartitionLeaders.guarded`); lists of topics are filtered where they are made (`visible`). Their rows say so.

A method that is not in the table is refused (`gate`). The names of methods between nodes are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from msgspec import Struct

from streamlog.access.acl import CLUSTER_NAME, AclOperation, AclResourceType
from streamlog.api.pb import admin_pb2 as pb
from streamlog.errors import ClusterAuthorizationError
from streamlog.services.access.guard import NAMES_MAX, Guard, check_names

Check: TypeAlias = Callable[[Guard, Any], None]

_O: Final = AclOperation
_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_TRANSACTION: Final = AclResourceType.TRANSACTIONAL_ID


class MethodRight(Struct, frozen=True):
    needs: str  # for people: docs/security.md lists it
    admit: Check | None = None  # None: nothing, or checked by the handler for each partition
    reveal: Check | None = None
    ends_on_grant: bool = False  # of streams that skip what may not be seen


def _few(names: Iterable[str]) -> Iterable[str]:
    """As many as a request may have, and one more, which `Guard.require` refuses."""
    return islice(names, NAMES_MAX + 1)


def _cluster(operation: AclOperation) -> MethodRight:
    return MethodRight(f"{operation.name} on the cluster", lambda guard, _: guard.require_cluster(operation))


def _topics(operation: AclOperation, names: Callable[[Any], Iterable[str]]) -> MethodRight:
    def admit(guard: Guard, request: Any) -> None:
        guard.require(operation, _TOPIC, *_few(names(request)))

    return MethodRight(f"{operation.name} on each topic", admit)


def _groups(operation: AclOperation, names: Callable[[Any], Iterable[str]], reveal: Check | None = None) -> MethodRight:
    def admit(guard: Guard, request: Any) -> None:
        guard.require(operation, _GROUP, *_few(names(request)))

    return MethodRight(f"{operation.name} on each group", admit, reveal)


# -- topics and records


def _create_topics(guard: Guard, request: Any) -> None:
    check_names(len(request.topics))
    for topic in request.topics:
        refusal = guard.creation_refusal(topic.name)
        if refusal is not None:
            raise refusal


def _delete_topics(guard: Guard, request: Any) -> None:
    guard.require(_O.DELETE, _TOPIC, *_few(request.topics))
    check_names(len(request.topic_ids))
    for topic_id in request.topic_ids:
        refusal = guard.topic_refusal("DELETE", "", topic_id)
        if refusal is not None:
            raise refusal


def _configs(topic: AclOperation, field: str) -> MethodRight:
    def admit(guard: Guard, request: Any) -> None:
        check_names(len(getattr(request, field)))
        for one in getattr(request, field):
            resource = one if field == "resources" else one.resource
            if resource.type == pb.CONFIG_RESOURCE_TYPE_TOPIC:
                guard.require(topic, _TOPIC, resource.name)
            else:
                guard.require_cluster(topic)

    return MethodRight(f"{topic.name} on each topic, or on the cluster for configs of nodes", admit)


def _produce(guard: Guard, request: Any) -> None:
    if request.transactional_id:
        guard.require(_O.WRITE, _TRANSACTION, request.transactional_id)


def _init_producer_id(guard: Guard, request: Any) -> None:
    if request.transactional_id:
        guard.require(_O.WRITE, _TRANSACTION, request.transactional_id)
    elif not guard.may(_O.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME) and not guard.may_for_any(
        _O.WRITE, _TOPIC
    ):
        raise ClusterAuthorizationError(
            f"{guard.principal} may write to no topic, so it gets no producer id; an administrator can allow it with "
            "streamlogctl acl add --producer",
            field="cluster",
        )


def _publish_stream(guard: Guard, request: Any) -> None:
    if request.topic:
        guard.require(_O.WRITE, _TOPIC, request.topic)
    if request.transactional.transactional_id:
        guard.require(_O.WRITE, _TRANSACTION, request.transactional.transactional_id)
    check_names(len(request.offsets))
    for one in request.offsets:
        guard.require(_O.READ, _GROUP, one.group)
        guard.require(_O.READ, _TOPIC, *_few(offset.topic for offset in one.offsets))


def _subscribed(guard: Guard, topics: Iterable[str], pattern: str, operation: AclOperation) -> None:
    guard.require(operation, _TOPIC, *_few(topics))
    refusal = guard.pattern_refusal(operation) if pattern else None
    if refusal is not None:
        raise refusal


def _consume(guard: Guard, request: Any) -> None:
    if request.HasField("join"):
        guard.require(_O.READ, _GROUP, request.join.group)
        _subscribed(guard, request.join.topics, request.join.pattern, _O.READ)


# -- groups and transactions


def _heartbeat(guard: Guard, request: Any) -> None:
    guard.require(_O.READ, _GROUP, request.group)
    _subscribed(guard, request.subscription.topics, request.subscription.pattern, _O.DESCRIBE)


def _membership(guard: Guard, request: Any) -> None:
    _heartbeat(guard, request.heartbeat)


def _commit(guard: Guard, request: Any) -> None:
    guard.require(_O.READ, _GROUP, request.group)
    guard.require(_O.READ, _TOPIC, *_few(offset.topic for offset in request.offsets))


def _abort_transaction(guard: Guard, request: Any) -> None:
    """Of an id: what InitProducerId does to it, which needs the same right (as Kafka's forceTerminateTransaction)."""
    is_by_id = request.transactional_id and not request.HasField("partition")
    if not is_by_id or not guard.may(_O.WRITE, _TRANSACTION, request.transactional_id):
        guard.require_cluster(_O.ALTER)


def _commit_transaction(guard: Guard, request: Any) -> None:
    guard.require(_O.WRITE, _TRANSACTION, request.transactional_id)
    _commit(guard, request)


def _fetch_offsets(guard: Guard, request: Any) -> None:
    guard.require(_O.DESCRIBE, _GROUP, request.group)
    guard.require(_O.DESCRIBE, _TOPIC, *_few(one.topic for one in request.partitions))


def _delete_offsets(guard: Guard, request: Any) -> None:
    guard.require(_O.DELETE, _GROUP, request.group)
    guard.require(_O.READ, _TOPIC, *_few(one.topic for one in request.partitions))


def _keep(rows: Any, wanted: Callable[[Any], bool]) -> None:
    """Of a repeated field."""
    kept = [row for row in rows if wanted(row)]
    if len(kept) != len(rows):
        copies = [type(row).FromString(row.SerializeToString()) for row in kept]
        del rows[:]
        rows.extend(copies)


def _sees_topic(guard: Guard) -> Callable[[Any], bool]:
    return lambda row: guard.may(_O.DESCRIBE, _TOPIC, row.topic)


def _shown_offsets(guard: Guard, response: Any) -> None:
    _keep(response.offsets, _sees_topic(guard))


def _shown_groups(guard: Guard, response: Any) -> None:
    for group in response.groups:
        for member in group.members:
            _keep(member.assignment.topics, _sees_topic(guard))
            _keep(member.target.topics, _sees_topic(guard))
            names = [name for name in member.subscription.topics if guard.may(_O.DESCRIBE, _TOPIC, name)]
            del member.subscription.topics[:]
            member.subscription.topics.extend(names)


def _describe_transactions(guard: Guard, request: Any) -> None:
    guard.require(_O.DESCRIBE, _TRANSACTION, *_few(request.transactional_ids))


def _shown_transactions(guard: Guard, response: Any) -> None:
    for one in response.transactions:
        _keep(one.partitions, _sees_topic(guard))


def _end_transaction(guard: Guard, request: Any) -> None:
    guard.require(_O.WRITE, _TRANSACTION, request.transactional_id)


NOTHING: Final = MethodRight("nothing")
_ADMIN: Final = "/streamlog.v1.Admin/"
_BATCHES: Final = "/streamlog.v1.Batches/"
_RECORDS: Final = "/streamlog.v1.Records/"
_GROUPS: Final = "/streamlog.v1.Groups/"
_TRANSACTIONS: Final = "/streamlog.v1.Transactions/"

METHOD_RIGHTS: Final[Mapping[str, MethodRight]] = {
    "/grpc.health.v1.Health/Check": NOTHING,
    "/grpc.health.v1.Health/List": NOTHING,
    "/grpc.health.v1.Health/Watch": NOTHING,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": NOTHING,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": NOTHING,
    "/streamlog.v1.Cluster/Describe": NOTHING,
    _ADMIN + "CreateTopics": MethodRight("CREATE on the cluster, or on each topic", _create_topics),
    _ADMIN + "DeleteTopics": MethodRight("DELETE on each topic", _delete_topics),
    _ADMIN + "ListTopics": MethodRight("nothing; lists topics with DESCRIBE"),
    _ADMIN + "DescribeTopics": MethodRight("DESCRIBE on each topic"),
    _ADMIN + "CreatePartitions": _topics(_O.ALTER, lambda request: (one.topic for one in request.topics)),
    _ADMIN + "DescribeConfigs": _configs(_O.DESCRIBE_CONFIGS, "resources"),
    _ADMIN + "AlterConfigs": _configs(_O.ALTER_CONFIGS, "alterations"),
    _ADMIN + "ElectLeaders": _cluster(_O.ALTER),
    _ADMIN + "AlterPartitionReassignments": _cluster(_O.ALTER),
    _ADMIN + "ListPartitionReassignments": _cluster(_O.DESCRIBE),
    _ADMIN + "DescribeCluster": _cluster(_O.DESCRIBE),
    _ADMIN + "DrainNode": _cluster(_O.ALTER),
    _ADMIN + "UnregisterNode": _cluster(_O.ALTER),
    _ADMIN + "UpdateMetadataVersion": _cluster(_O.ALTER),
    _ADMIN + "AddVoter": _cluster(_O.ALTER),
    _ADMIN + "RemoveVoter": _cluster(_O.ALTER),
    _ADMIN + "DescribeLogDirs": _cluster(_O.DESCRIBE),
    _ADMIN + "AlterReplicaLogDirs": _cluster(_O.ALTER),
    _ADMIN + "DigestReplicas": _cluster(_O.DESCRIBE),
    _ADMIN + "DeleteRecords": _topics(_O.DELETE, lambda request: (one.topic for one in request.partitions)),
    _ADMIN + "RepairReplicas": _cluster(_O.ALTER),
    _ADMIN + "ListGroups": MethodRight("nothing; lists groups with DESCRIBE, or all with DESCRIBE on the cluster"),
    _ADMIN + "DescribeGroups": _groups(_O.DESCRIBE, lambda request: request.groups, _shown_groups),
    _ADMIN + "DeleteGroups": _groups(_O.DELETE, lambda request: request.groups),
    _ADMIN + "DeleteGroupOffsets": MethodRight("DELETE on the group, READ on each topic", _delete_offsets),
    _ADMIN + "ListTransactions": MethodRight("nothing; lists ids with DESCRIBE"),
    _ADMIN + "DescribeTransactions": MethodRight(
        "DESCRIBE on each transactional id", _describe_transactions, _shown_transactions
    ),
    _ADMIN + "AbortTransaction": MethodRight(
        "WRITE on the transactional id, or ALTER on the cluster; ALTER on the cluster for a hanging one",
        _abort_transaction,
    ),
    _ADMIN + "FindHangingTransactions": _cluster(_O.DESCRIBE),
    _ADMIN + "DescribeBrokerLoggers": _cluster(_O.DESCRIBE_CONFIGS),
    _ADMIN + "AlterBrokerLoggers": _cluster(_O.ALTER_CONFIGS),
    _ADMIN + "CreateAcls": _cluster(_O.ALTER),
    _ADMIN + "DeleteAcls": _cluster(_O.ALTER),
    _ADMIN + "DescribeAcls": _cluster(_O.DESCRIBE),
    _ADMIN + "TestAccess": _cluster(_O.DESCRIBE),
    _ADMIN + "CreateUser": _cluster(_O.ALTER),
    _ADMIN + "AlterUser": _cluster(_O.ALTER),
    _ADMIN + "DeleteUser": _cluster(_O.ALTER),
    _ADMIN + "ListUsers": _cluster(_O.DESCRIBE),
    _ADMIN + "AlterClientQuotas": _cluster(_O.ALTER_CONFIGS),
    _ADMIN + "DescribeClientQuotas": _cluster(_O.DESCRIBE_CONFIGS),
    _BATCHES + "Metadata": MethodRight("DESCRIBE on each topic; to create it, CREATE"),
    _BATCHES + "WatchMetadata": MethodRight("nothing; reports topics with DESCRIBE", ends_on_grant=True),
    _BATCHES + "Produce": MethodRight("WRITE on each topic, and on the transactional id", _produce),
    _BATCHES + "ProduceStream": MethodRight("WRITE on each topic, and on the transactional id", _produce),
    _BATCHES + "Fetch": MethodRight("READ on each topic"),
    _BATCHES + "FetchStream": MethodRight("READ on each topic"),
    _BATCHES + "ListOffsets": MethodRight("DESCRIBE on each topic"),
    _BATCHES + "OffsetForLeaderEpoch": MethodRight("DESCRIBE on each topic"),
    _BATCHES + "InitProducerId": MethodRight(
        "WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
        _init_producer_id,
    ),
    _RECORDS + "Publish": _topics(_O.WRITE, lambda request: (request.topic,)),
    _RECORDS + "PublishStream": MethodRight(
        "WRITE on each topic and on the transactional id; for offsets READ on group and topics", _publish_stream
    ),
    _RECORDS + "Subscribe": _topics(_O.READ, lambda request: (one.topic for one in request.subscriptions)),
    _RECORDS + "Consume": MethodRight("READ on the group and on each topic; for a pattern on all topics", _consume),
    _GROUPS + "FindCoordinator": _groups(_O.DESCRIBE, lambda request: request.groups),
    _GROUPS + "GroupHeartbeat": MethodRight(
        "READ on the group, DESCRIBE on each topic; for a pattern on all topics", _heartbeat
    ),
    _GROUPS + "GroupMembership": MethodRight(
        "READ on the group, DESCRIBE on each topic; for a pattern on all topics", _membership
    ),
    _GROUPS + "CommitOffsets": MethodRight("READ on the group and on each topic", _commit),
    _GROUPS + "FetchOffsets": MethodRight("DESCRIBE on the group and on each topic", _fetch_offsets, _shown_offsets),
    _TRANSACTIONS + "EndTransaction": MethodRight("WRITE on the transactional id", _end_transaction),
    _TRANSACTIONS + "CommitTransactionOffsets": MethodRight(
        "WRITE on the transactional id, READ on the group and on each topic", _commit_transaction
    ),
}
