"""Nodes join and leave the cluster (SEMANTICS 8).

    unknown --register--> fenced --heartbeat, caught up--> active --silence, broken stream--> fenced
                            ^                                |
                            |                                +--wants to stop-> stopping --> fenced, stopping
                            +----------------- register again ------------------------------------+

A registration gives a node a new broker epoch: the index of its command. First the previous incarnation is removed
from the image: a node that returns while it still leads, or that stopped uncleanly and is still in an ISR or ELR, loses
that in the same command, or in earlier ones if they are too many. If the registration were recorded first, a crash in
between would let two incarnations of a node lead in one epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import (
    DuplicateBrokerIdError,
    InconsistentClusterError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from streamlog.metadata.configs.rules import Rulebook
from streamlog.metadata.decision import (
    BATCH_RECORDS,
    BrokerSessionTimer,
    ControllerContext,
    MetadataDecision,
    SetControllerTimer,
    Then,
)
from streamlog.metadata.features import LISTENERS
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import Role
from streamlog.metadata.partitions.election import Occasion
from streamlog.metadata.partitions.settle import revisions, settled
from streamlog.metadata.records import (
    EPOCH_FROM_INDEX,
    Broker,
    BrokerChangeRecord,
    BrokerListener,
    BrokerRecord,
    MetadataVersion,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from streamlog.model import INT32_MAX, BrokerEpoch, BrokerId

# A host name has at most 253 characters; the same limit is used for racks and the like.
TEXT_LENGTH_MAX: Final = 253
DIRECTORIES_MAX: Final = 1_000
ID_BYTES: Final = 16
LISTENERS_MAX: Final = 8
LISTENER_NAME_MAX: Final = 64


class RegisterBroker(Struct, frozen=True, kw_only=True):
    cluster_id: str
    broker_id: BrokerId
    incarnation_id: bytes  # 16 random bytes, new with each start of the process
    host: str
    port: int
    rack: str = ""
    metadata_version_min: MetadataVersion
    metadata_version_max: MetadataVersion
    directory_ids: tuple[bytes, ...] = ()
    previous_broker_epoch: BrokerEpoch = EPOCH_FROM_INDEX  # from the clean-shutdown mark; EPOCH_FROM_INDEX: none
    listeners: tuple[BrokerListener, ...] = ()  # as Broker's


class Registered(Struct, frozen=True, kw_only=True):
    """The broker epoch is `image.brokers[broker_id].epoch` once the records are applied."""

    broker_id: BrokerId


class UnregisterBroker(Struct, frozen=True, kw_only=True):
    """Remove the registration of a node that will not return."""

    broker_id: BrokerId


def register(command: RegisterBroker, image: MetadataImage, context: ControllerContext) -> MetadataDecision[Registered]:
    """InconsistentClusterError, DuplicateBrokerIdError, UnsupportedVersionError, InvalidRequestError."""
    _check(command, image)
    response = Registered(broker_id=command.broker_id)
    session = SetControllerTimer(BrokerSessionTimer(command.broker_id), context.settings.session_timeout_ms)
    existing = image.brokers.get(command.broker_id)
    if existing is not None:
        if existing.incarnation_id == command.incarnation_id and not existing.stopping:
            return MetadataDecision(response=response, timers=(session,))  # a retry: registered already
        if command.broker_id in context.sessions:
            raise DuplicateBrokerIdError(
                f"node {command.broker_id} is running as another process (at {existing.host}:{existing.port}): give "
                "this one another node.id, or wait until the session of the other one has expired",
                field="broker_id",
                limit=context.settings.session_timeout_ms,
            )
        if existing.active or image.roles.any(Role.LEADER, existing.broker_id):
            fenced = BrokerChangeRecord(broker_id=existing.broker_id, broker_epoch=existing.epoch, fenced=True)
            return replace(settled(image, context, [fenced], response), then=Then.AGAIN)
    leaving = list(islice(_leaving(command, existing, image, context), BATCH_RECORDS))
    if len(leaving) == BATCH_RECORDS:
        return MetadataDecision(response=response, records=tuple(leaving), then=Then.AGAIN)
    record = BrokerRecord(broker=_broker(command, existing))
    # A partition may have a leader now, which lets a replica of a drained node move.
    then = Then.SETTLE if leaving else Then.NOTHING
    return MetadataDecision(response=response, records=(*leaving, record), timers=(session,), then=then)


def unregister(command: UnregisterBroker, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    """BrokerIdNotRegisteredError; InvalidRequestError while it runs or has replicas."""
    broker = image.require_broker(command.broker_id)
    if not broker.fenced or command.broker_id in context.sessions:
        raise InvalidRequestError(f"node {broker.broker_id} is running: stop it first", field="broker_id")
    replicas = image.roles.count(Role.REPLICA, broker.broker_id)
    if replicas:
        raise InvalidRequestError(
            f"node {broker.broker_id} still has {replicas} replicas: drain it first",
            field="broker_id",
            limit=0,
        )
    record = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    return MetadataDecision(response=None, records=(record,))


def _check(command: RegisterBroker, image: MetadataImage) -> None:
    if command.cluster_id != image.cluster_id:
        raise InconsistentClusterError(
            f"node {command.broker_id} belongs to cluster {command.cluster_id!r}, but this is {image.cluster_id!r}",
            field="cluster_id",
        )
    if not command.metadata_version_min <= image.metadata_version <= command.metadata_version_max:
        raise UnsupportedVersionError(
            f"node {command.broker_id} supports metadata.version {command.metadata_version_min} to "
            f"{command.metadata_version_max}, but the cluster is at {image.metadata_version}: install the release "
            "that the other nodes run",
            field="metadata.version",
            limit=image.metadata_version,
        )
    if command.listeners and image.metadata_version < LISTENERS:
        raise UnsupportedVersionError(
            f"node {command.broker_id} has several listeners, which needs metadata.version {LISTENERS}, and the "
            f"cluster is at {image.metadata_version}: once all nodes run this release, 'streamlogctl cluster upgrade'; "
            "until then give the node one listener",
            field="listeners",
            limit=image.metadata_version,
        )
    if len({one.name for one in command.listeners}) != len(command.listeners):
        raise InvalidRequestError("listeners must have different names", field="listeners")
    limits = (
        ("broker_id", command.broker_id, 0, INT32_MAX),
        ("metadata_version_min", command.metadata_version_min, 0, INT32_MAX),
        ("metadata_version_max", command.metadata_version_max, 0, INT32_MAX),
        ("port", command.port, 1, 65_535),
        ("host", len(command.host), 1, TEXT_LENGTH_MAX),
        ("rack", len(command.rack), 0, TEXT_LENGTH_MAX),
        ("incarnation_id", len(command.incarnation_id), ID_BYTES, ID_BYTES),
        ("directory_ids", len(command.directory_ids), 0, DIRECTORIES_MAX),
        *(("directory_ids", len(directory_id), ID_BYTES, ID_BYTES) for directory_id in command.directory_ids),
        ("listeners", len(command.listeners), 0, LISTENERS_MAX),
        *(("listeners", len(one.name), 1, LISTENER_NAME_MAX) for one in command.listeners),
        *(("listeners", len(one.host), 1, TEXT_LENGTH_MAX) for one in command.listeners),
        *(("listeners", one.port, 1, 65_535) for one in command.listeners),
    )
    for name, value, low, high in limits:
        if not low <= value <= high:
            raise InvalidRequestError(
                f"{name} (or its length) is {value}, but must be from {low} to {high}", field=name, limit=high
            )


def _leaving(
    command: RegisterBroker, existing: Broker | None, image: MetadataImage, context: ControllerContext
) -> Iterator[PartitionChangeRecord]:
    """What a returning node loses: ISR and ELR if it stopped uncleanly; last leader and last known ELR if a log
    directory is missing. Its offline replicas are online again, or will be reported again.
    """
    if existing is None:
        return
    unclean = command.previous_broker_epoch != existing.epoch
    lost_disk = any(directory_id not in command.directory_ids for directory_id in existing.directory_ids)
    roles = [Role.OFFLINE]
    if unclean or lost_disk:
        roles += [Role.ISR, Role.ELR]
    keys = chain.from_iterable(image.roles.partitions(role, command.broker_id) for role in roles)
    if lost_disk:
        keys = chain(keys, image.roles.partitions(Role.LEADERLESS))
        keys = chain(keys, image.roles.partitions(Role.LAST_KNOWN_ELR, command.broker_id))
    occasion = Occasion(
        unclean_stops=(command.broker_id,) if unclean or lost_disk else (),
        lost_disks=(command.broker_id,) if lost_disk else (),
        repaired=(command.broker_id,),
    )
    yield from revisions(image, Rulebook(image, context.settings), keys, occasion)


def _broker(command: RegisterBroker, existing: Broker | None) -> Broker:
    return Broker(
        broker_id=command.broker_id,
        epoch=EPOCH_FROM_INDEX,
        incarnation_id=command.incarnation_id,
        host=command.host,
        port=command.port,
        rack=command.rack,
        metadata_version_min=command.metadata_version_min,
        metadata_version_max=command.metadata_version_max,
        directory_ids=tuple(sorted(command.directory_ids)),
        draining=existing is not None and existing.draining,
        listeners=tuple(sorted(command.listeners, key=lambda one: one.name)),
    )
