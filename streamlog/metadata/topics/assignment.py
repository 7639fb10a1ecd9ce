"""Validation of replica lists given by a user, and new partitions with given replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamlog.errors import InvalidReplicaAssignmentError
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.records import Partition, Replicas

# Far above any use; it bounds every record of a partition.
REPLICATION_FACTOR_MAX: Final = 64


def check_assignment(replicas: Replicas, image: MetadataImage, existing: Replicas = ()) -> None:
    """InvalidReplicaAssignmentError unless it is a non-empty list of distinct registered nodes, and no node being
    drained gets a new replica. `existing`: the partition's current replicas.
    """
    if len(replicas) > REPLICATION_FACTOR_MAX:
        raise InvalidReplicaAssignmentError(
            f"{len(replicas)} replicas; a partition has at most {REPLICATION_FACTOR_MAX}",
            field="assignments",
            limit=REPLICATION_FACTOR_MAX,
        )
    if not replicas:
        raise InvalidReplicaAssignmentError("a partition needs at least one replica", field="assignments", limit=1)
    if len(frozenset(replicas)) != len(replicas):
        raise InvalidReplicaAssignmentError(f"replicas {list(replicas)}: a node is named twice", field="assignments")
    unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
    if unknown:
        raise InvalidReplicaAssignmentError(
            f"replicas {list(replicas)}: node {unknown[0]} is not registered", field="assignments"
        )
    draining = [b for b in replicas if b not in existing and image.brokers[b].draining]
    if draining:
        raise InvalidReplicaAssignmentError(
            f"replicas {list(replicas)}: node {draining[0]} is being drained", field="assignments"
        )


def check_assignments(assignments: Sequence[Replicas], image: MetadataImage, replication_factor: int) -> None:
    """The same for all new partitions of a topic, which must have the same number of replicas."""
    for replicas in assignments:
        check_assignment(replicas, image)
        if len(replicas) != replication_factor:
            raise InvalidReplicaAssignmentError(
                f"replicas {list(replicas)}: all partitions of a topic must have the same number, {replication_factor}",
                field="assignments",
                limit=replication_factor,
            )


def new_partition(replicas: Replicas, image: MetadataImage) -> Partition:
    """Its log is empty, so all active replicas are in sync. InvalidReplicaAssignmentError if none is active."""
    isr = tuple(broker_id for broker_id in replicas if image.brokers[broker_id].active)
    if not isr:
        raise InvalidReplicaAssignmentError(
            f"replicas {list(replicas)}: none of these nodes is active", field="assignments"
        )
    isr = replicas if isr == replicas else isr
    return Partition(replicas=replicas, isr=isr, leader=isr[0], last_leader=isr[0])
