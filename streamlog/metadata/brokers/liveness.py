"""Is a node alive? Heartbeats, sessions, fencing, controlled shutdown (SEMANTICS 8).

A node heartbeats each `broker.heartbeat.interval.ms`. Each heartbeat starts its session anew; a session that lapses,
or a node whose stream broke and cannot be made again (the shell takes a short second look), is fenced: out of every
ISR, its leaderships moved. Sessions are timers of the active controller alone: whoever takes over starts them anew for
every node that is not fenced, so a fail-over fences nobody.

A heartbeat says that a node lives, not that it follows. One whose image is older than its session (`Context.horizon`)
knows neither its leaderships nor its topics: it is fenced like one that is silent, until it has caught up.

A node that stops asks for it in its heartbeats. From the first one on it is barred from ISRs, and it is told to stop
once it leads nothing; at that moment it is fenced as well, and its session is over.
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
    """A node's wall clock against a base of time that the controller gave it (streamlog.controller.clocks)."""

    base: int
    offset_ms: int


class ClockAnswer(Struct, frozen=True, kw_only=True):
    base: int
    time_ms: int  # of the base, when it answered
    reference_ms: int | None  # offset of the quorum's clock against the base; None: most nodes do not agree
    skews: tuple[tuple[BrokerId, int], ...] = ()  # of the nodes against the reference, the largest first


class BrokerHeartbeat(Struct, frozen=True, kw_only=True):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    applied_index: RaftIndex  # up to where the node has applied the metadata log
    want_fence: bool = False  # it cannot serve now, and says so itself
    want_shut_down: bool = False
    clock: ClockReport | None = None  # nothing is decided by it


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    caught_up: bool  # the node has applied its own registration
    fenced: bool
    should_shut_down: bool  # nothing depends on the node any more
    clock: ClockAnswer | None = None  # given by the shell


class FenceBroker(Struct, frozen=True, kw_only=True):
    """The node cannot be reached."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class ExpireSession(Struct, frozen=True, kw_only=True):
    """Its session timer is due."""

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
    """BrokerIdNotRegisteredError, StaleBrokerEpochError: another registration is none of this caller's business."""
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
