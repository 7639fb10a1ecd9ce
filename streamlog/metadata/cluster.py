"""Cluster-wide decisions: bootstrap, feature level, blocks of producer ids, a change of the controller."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import FeatureUpdateFailedError, InvalidRequestError
from streamlog.metadata.decision import (
    BalanceTimer,
    BrokerSessionTimer,
    ControllerContext,
    MetadataDecision,
    SetControllerTimer,
)
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.partitions.settle import Settle, settle
from streamlog.metadata.records import (
    ClusterRecord,
    MetadataVersion,
    MetadataVersionRecord,
    ProducerIdsRecord,
)
from streamlog.model import BrokerEpoch, BrokerId, ProducerId

# Ids of one block: how many producers a node can serve before it requests another. Kafka's PRODUCER_ID_BLOCK_SIZE.
PRODUCER_ID_BLOCK: Final = 1_000
CLUSTER_ID_LENGTH_MAX: Final = 64


class Bootstrap(Struct, frozen=True, kw_only=True):
    """Submitted by the first leader of an empty quorum; does nothing if the cluster has an id."""

    cluster_id: str
    metadata_version: MetadataVersion = METADATA_VERSION_MAX


class Bootstrapped(Struct, frozen=True, kw_only=True):
    cluster_id: str  # the cluster's actual id


class TakeOver(Struct, frozen=True, kw_only=True):
    """This node has become the active controller."""


class UpdateMetadataVersion(Struct, frozen=True, kw_only=True):
    """Sent by an operator once all nodes run the new release."""

    level: MetadataVersion


class AllocateProducerIds(Struct, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class ProducerIdBlock(Struct, frozen=True, kw_only=True):
    """The ids in [first, first + count) belong to the node and are never allocated again."""

    first: ProducerId
    count: int


def bootstrap(command: Bootstrap, image: MetadataImage, context: ControllerContext) -> MetadataDecision[Bootstrapped]:
    if image.metadata_version:
        return MetadataDecision(response=Bootstrapped(cluster_id=image.cluster_id))
    if not 0 < len(command.cluster_id) <= CLUSTER_ID_LENGTH_MAX:
        raise InvalidRequestError(
            f"a cluster id must have 1 to {CLUSTER_ID_LENGTH_MAX} characters",
            field="cluster_id",
            limit=CLUSTER_ID_LENGTH_MAX,
        )
    records = (MetadataVersionRecord(level=command.metadata_version), ClusterRecord(cluster_id=command.cluster_id))
    return MetadataDecision(response=Bootstrapped(cluster_id=command.cluster_id), records=records)


def take_over(command: TakeOver, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    """Restart the sessions of all unfenced nodes; settle what the previous controller left, whose file may have had
    another min.insync.replicas.
    """
    sessions = [
        SetControllerTimer(BrokerSessionTimer(broker.broker_id), context.settings.session_timeout_ms)
        for broker in image.brokers.values()
        if not broker.fenced
    ]
    balance = SetControllerTimer(BalanceTimer(), context.settings.leader_imbalance_check_interval_ms)
    return replace(settle(Settle(), image, context), timers=(*sessions, balance))


def update_metadata_version(
    command: UpdateMetadataVersion, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[MetadataVersion]:
    """FeatureUpdateFailedError if the level would fall, or a registered node (active or not) does not support it: it
    would stop when it returns. The response is the previous level.
    """
    before = image.metadata_version
    supported = min([METADATA_VERSION_MAX, *(broker.metadata_version_max for broker in image.brokers.values())])
    if command.level < before:
        raise FeatureUpdateFailedError(
            f"metadata.version is {before}: it cannot be lowered", field="metadata.version", limit=before
        )
    if command.level > supported:
        raise FeatureUpdateFailedError(
            f"metadata.version {command.level} is not supported by all nodes: {_behind(command.level, image)}; upgrade "
            "them, or unregister those that will not return",
            field="metadata.version",
            limit=supported,
        )
    records = () if command.level == before else (MetadataVersionRecord(level=command.level),)
    return MetadataDecision(response=before, records=records)


def allocate_producer_ids(
    command: AllocateProducerIds, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[ProducerIdBlock]:
    """BrokerIdNotRegisteredError, StaleBrokerEpochError."""
    image.require_broker(command.broker_id, command.broker_epoch)
    first = image.next_producer_id
    record = ProducerIdsRecord(next_producer_id=ProducerId(first + PRODUCER_ID_BLOCK))
    return MetadataDecision(response=ProducerIdBlock(first=first, count=PRODUCER_ID_BLOCK), records=(record,))


def _behind(level: MetadataVersion, image: MetadataImage) -> str:
    behind = [
        f"node {broker.broker_id} supports up to {broker.metadata_version_max}"
        for broker in image.brokers.values()
        if broker.metadata_version_max < level
    ]
    return ", ".join([*behind, f"this controller up to {METADATA_VERSION_MAX}"][:3])
