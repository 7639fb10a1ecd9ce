"""Reassignment of replicas to other nodes (AlterPartitionReassignments, KIP-455).

While a partition is reassigned, its replicas are the target, in the requested order, followed by those to be removed;
`adding` are the new ones, `removing` those to be removed. The new ones catch up as followers; when all of them are in
sync, `revise` removes the old ones, in the same change that adds the last new one to the ISR. A reassignment is durable
and needs no supervision: it continues under the next controller. Until it is complete it can be replaced or cancelled.

The nodes throttle the fetches of replicas in `adding`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import (
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    StreamlogError,
)
from streamlog.metadata.configs.rules import Rulebook, TopicRules
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision, Then
from streamlog.metadata.image.image import MetadataImage, require_partition
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.election import difference, revised, without
from streamlog.metadata.partitions.replica_states import known_complete
from streamlog.metadata.records import MetadataRecord, Partition, PartitionChangeRecord, Replicas
from streamlog.metadata.topics.assignment import check_assignment
from streamlog.model import PartitionId


class PartitionReassignment(Struct, frozen=True, kw_only=True):
    topic: str
    partition_id: PartitionId
    replicas: Replicas | None  # the preferred leader first; None: cancel


class AlterReassignments(Struct, frozen=True, kw_only=True):
    reassignments: tuple[PartitionReassignment, ...]


class PartitionReassignmentResult(Struct, frozen=True, kw_only=True):
    topic: str
    partition_id: PartitionId
    error: StreamlogError | None = None  # if set, the partition is unchanged


def alter_reassignments(
    command: AlterReassignments, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[PartitionReassignmentResult, ...]]:
    """InvalidRequestError for the whole request; in each result UnknownTopicOrPartitionError,
    InvalidReplicaAssignmentError, NoReassignmentInProgressError.
    """
    _check_request(command)
    rulebook = Rulebook(image, context.settings)
    records: list[MetadataRecord] = []
    results = []
    for asked in command.reassignments:
        error = None
        try:
            record = _alter(asked, image, rulebook)
            records += [record] if record is not None else []
        except StreamlogError as refusal:
            error = refusal
        results.append(PartitionReassignmentResult(topic=asked.topic, partition_id=asked.partition_id, error=error))
    # An immediate or cancelled reassignment may let another replica of a drained node move.
    return MetadataDecision(
        response=tuple(results), records=tuple(records), then=Then.SETTLE if records else Then.NOTHING
    )


def reassignments(image: MetadataImage) -> Iterator[tuple[PartitionKey, Partition]]:
    """The partitions that are being reassigned."""
    return ((key, image.partition(key)) for key in image.roles.partitions(Role.REASSIGNED))


def moved(key: PartitionKey, partition: Partition, target: Replicas, rules: TopicRules) -> PartitionChangeRecord | None:
    """The change that starts the reassignment to `target`, or completes it at once if nothing has to be copied."""
    before = without(partition.replicas, partition.adding)
    removing = without(partition.replicas, target)
    wanted = replace(partition, replicas=(*target, *removing), adding=without(target, before), removing=removing)
    return difference(key, partition, revised(partition, wanted, rules))


def cancelled(key: PartitionKey, partition: Partition, rules: TopicRules) -> PartitionChangeRecord | None:
    """The change that restores the partition's former replicas, the removed ones last.

    InvalidReplicaAssignmentError while only new replicas have everything that was acknowledged: it would be removed
    with them.
    """
    isr = without(partition.isr, partition.adding)
    complete = partition.isr or partition.elr or known_complete(partition)
    if complete and not without(complete, partition.adding):
        raise InvalidReplicaAssignmentError(
            f"the reassignment cannot be cancelled now: only the new replicas {list(complete)} have all acknowledged "
            "records: cancel it once another replica is in sync",
            field="replicas",
        )
    wanted = replace(
        partition,
        replicas=without(partition.replicas, partition.adding),
        isr=isr,
        adding=(),
        removing=(),
        offline=without(partition.offline, partition.adding),
    )
    return difference(key, partition, revised(partition, wanted, rules))


def _check_request(command: AlterReassignments) -> None:
    keys = [(asked.topic, asked.partition_id) for asked in command.reassignments]
    if len(frozenset(keys)) != len(keys):
        raise InvalidRequestError("a partition is named twice in one request", field="reassignments")
    if len(keys) > BATCH_RECORDS:
        raise InvalidRequestError(
            f"{len(keys)} reassignments in one request; the limit is {BATCH_RECORDS}",
            field="reassignments",
            limit=BATCH_RECORDS,
        )


def _alter(asked: PartitionReassignment, image: MetadataImage, rulebook: Rulebook) -> PartitionChangeRecord | None:
    topic = image.require_topic(asked.topic)
    partition = require_partition(topic, asked.partition_id)
    key = (topic.topic_id, asked.partition_id)
    rules = rulebook.of_topic(topic)
    if asked.replicas is None:
        if not (partition.adding or partition.removing):
            raise NoReassignmentInProgressError(
                f"partition {topic.name}-{asked.partition_id} is not being reassigned", field="partition"
            )
        return cancelled(key, partition, rules)
    check_assignment(asked.replicas, image, partition.replicas)
    dead = [b for b in without(asked.replicas, partition.replicas) if image.brokers[b].fenced]
    if dead:
        raise InvalidReplicaAssignmentError(
            f"replicas {list(asked.replicas)}: node {dead[0]} is not active, so it cannot take over", field="replicas"
        )
    return moved(key, partition, asked.replicas, rules)
