"""Starting and cancelling the drain of a node. Its reassignments are in metadata.partitions.drain_moves."""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from streamlog.errors import InvalidReplicaAssignmentError, InvalidRequestError
from streamlog.metadata.configs.rules import Rulebook
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision
from streamlog.metadata.image.delta import look_ahead
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import Role
from streamlog.metadata.partitions.drain_moves import DrainStatus, progress
from streamlog.metadata.partitions.reassignment import cancelled, reassignments
from streamlog.metadata.partitions.settle import settled
from streamlog.metadata.records import Broker, BrokerChangeRecord, MetadataRecord
from streamlog.metadata.topics.placement import candidates
from streamlog.model import BrokerId


class DrainBroker(Struct, frozen=True, kw_only=True):
    broker_id: BrokerId
    cancel: bool = False


def drain(command: DrainBroker, image: MetadataImage, context: ControllerContext) -> MetadataDecision[DrainStatus]:
    """Start, cancel, or (if started already) report the progress. BrokerIdNotRegisteredError; InvalidRequestError if
    the other nodes are too few to take all replicas.
    """
    broker = image.require_broker(command.broker_id)
    if command.cancel:
        return _cancel(broker, image, context)
    if broker.draining:
        return MetadataDecision(response=progress(image, broker.broker_id))
    _check_room(broker, image)
    record = BrokerChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, draining=True)
    return settled(image, context, [record], progress(image, broker.broker_id))


def _cancel(broker: Broker, image: MetadataImage, context: ControllerContext) -> MetadataDecision[DrainStatus]:
    records: list[MetadataRecord] = []
    if broker.draining:
        records.append(BrokerChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, draining=False))
    rulebook = Rulebook(image, context.settings)
    leaving = (item for item in reassignments(image) if broker.broker_id in item[1].removing)
    for key, partition in islice(leaving, BATCH_RECORDS):
        try:
            record = cancelled(key, partition, rulebook.of_topic(image.topics[key[0]]))
        except InvalidReplicaAssignmentError:
            continue  # only the new replicas have everything: that move must complete
        records += [record] if record is not None else []
    return settled(image, context, records, progress(look_ahead(image, records), broker.broker_id))


def _check_room(broker: Broker, image: MetadataImage) -> None:
    """Every partition of the node needs another node without a replica of it."""
    others = [node for node in candidates(image) if node.broker_id != broker.broker_id]
    for key in image.roles.partitions(Role.REPLICA, broker.broker_id):
        replicas = image.partition(key).replicas
        if all(node.broker_id in replicas for node in others):
            raise InvalidRequestError(
                f"node {broker.broker_id} cannot be drained: partition {image.topics[key[0]].name}-{key[1]} has "
                f"{len(replicas)} replicas, and no other active node can take one; add a node first",
                field="broker_id",
                limit=len(others),
            )
