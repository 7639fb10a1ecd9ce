"""Heartbeats, sessions, fencing, controlled shutdown (SEMANTICS 8).

A node sends a heartbeat each `broker.heartbeat.interval.ms`. Each one restarts its session. A node is fenced (removed
from every ISR, its leaderships moved) when its session expires, or when a stream to it broke and a short probe finds
its process gone. Sessions are timers of the active controller only: a new controller restarts them for every unfenced
node, so a failover fences no node.

A heartbeat proves that a node runs, not that it keeps up with the metadata. A node whose image is older than a session
timeout (`ControllerContext.horizon`) is fenced like a silent one, until it has caught up.

A node requests its controlled shutdown in heartbeats. From the first request on it is barred from ISRs. Once it leads
nothing, the response lets it stop, it is fenced, and its session ends.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from streamlog.metadata.decision import BrokerSessionTimer, ControllerContext, MetadataDecision, SetControllerTimer
from streamlog.metadata.image.delta import look_ahead
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import Role
from streamlog.metadata.partitions.settle import settled
from streamlog.metadata.records import Broker, BrokerChangeRecord
from streamlog.model import BrokerEpoch, BrokerId, RaftIndex


class ClockReport(Struct, frozen=True, kw_only=True):
    """A node's wall clock relative to the controller's time base (streamlog.controller.clocks)."""

    base: int
    offset_ms: int


class ClockAnswer(Struct, frozen=True, kw_only=True):
    base: int
    time_ms: int  # of the base, at the response
    reference_ms: int | None  # offset of the quorum's clock from the base; None: no majority agrees
    skews: tuple[tuple[BrokerId, int], ...] = ()  # of the nodes from the reference, the largest first


class BrokerHeartbeat(Struct, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    applied_index: RaftIndex  # up to where the node has applied the metadata log
    want_fence: bool = False  # it cannot serve now and asks to be fenced
    want_shut_down: bool = False
    clock: ClockReport | None = None  # no decision depends on it


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    caught_up: bool  # the node has applied its own registration
    fenced: bool
    should_shut_down: bool  # no partition depends on the node any more
    clock: ClockAnswer | None = None  # set by the shell, as is:
    metadata_index: RaftIndex = RaftIndex(0)  # up to where the controller has applied the metadata log


class FenceBroker(Struct, frozen=True, kw_only=True):
    """The node's process is gone."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class ExpireSession(Struct, frozen=True, kw_only=True):
    """Its session timer has fired."""

    broker_id: BrokerId


def heartbeat(
    command: BrokerHeartbeat, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[HeartbeatResponse]:
    """BrokerIdNotRegisteredError, StaleBrokerEpochError: the node must register again."""
    broker = image.require_broker(command.broker_id, command.broker_epoch)
    if command.want_shut_down or broker.stopping:
        return _stop(broker, image, context)
    caught_up = command.applied_index >= broker.epoch
    lags = command.applied_index < context.horizon
    fenced = command.want_fence or lags or (broker.fenced and not caught_up)
    response = HeartbeatResponse(caught_up=caught_up, fenced=fenced, should_shut_down=False)
    session = SetControllerTimer(BrokerSessionTimer(broker.broker_id), context.settings.session_timeout_ms)
    if fenced == broker.fenced:
        return MetadataDecision(response=response, timers=(session,))
    return settled(image, context, [_change(broker, fenced=fenced)], response, [session])


def fence(command: FenceBroker, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    """BrokerIdNotRegisteredError, StaleBrokerEpochError: the caller means an earlier registration."""
    broker = image.require_broker(command.broker_id, command.broker_epoch)
    return _fence(broker, image, context)


def expire_session(command: ExpireSession, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    broker = image.brokers.get(command.broker_id)
    if broker is None:
        return MetadataDecision(
            response=None, timers=(SetControllerTimer(BrokerSessionTimer(command.broker_id), None),)
        )
    return _fence(broker, image, context)


def _fence(broker: Broker, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    records = [] if broker.fenced else [_change(broker, fenced=True)]
    return settled(image, context, records, None, [SetControllerTimer(BrokerSessionTimer(broker.broker_id), None)])


def _stop(broker: Broker, image: MetadataImage, context: ControllerContext) -> MetadataDecision[HeartbeatResponse]:
    records = [] if broker.stopping else [_change(broker, stopping=True)]
    response = HeartbeatResponse(caught_up=True, fenced=broker.fenced, should_shut_down=False)
    session = SetControllerTimer(BrokerSessionTimer(broker.broker_id), context.settings.session_timeout_ms)
    decision = settled(image, context, records, response, [session])
    if look_ahead(image, decision.records).roles.any(Role.LEADER, broker.broker_id):
        return decision
    return replace(
        decision,
        response=HeartbeatResponse(caught_up=True, fenced=True, should_shut_down=True),
        records=decision.records if broker.fenced else (*decision.records, _change(broker, fenced=True)),
        timers=(SetControllerTimer(BrokerSessionTimer(broker.broker_id), None),),
    )


def _change(broker: Broker, *, fenced: bool | None = None, stopping: bool | None = None) -> BrokerChangeRecord:
    return BrokerChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=fenced, stopping=stopping)
