"""The controller: one command in, one decision out.

    shell (active controller's node)                               pure
    --------------------------------                               ----
    command of a node, an operator, a timer  ------------------->  decide(command, image, context)
    encode_batch(records), propose to the quorum  <--------------  Decision(response, records, timers, then)
    committed and applied on every node  ----------------------->  replay(image, records, index)
    set the timers; answer; continue as `then` says

Only the quorum's leader decides, on an image in which all its earlier decisions are applied. An uncommitted decision
has no effect: its response and its timers are dropped.

This module is the table of commands; the functions that decide them are in the packages beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, assert_never

from streamlog.metadata.access.acl_changes import CreateAcls, DeleteAcls, create_acls, delete_acls
from streamlog.metadata.access.quota_changes import AlterClientQuotas, alter_client_quotas
from streamlog.metadata.access.user_changes import (
    AlterUser,
    CreateUser,
    DeleteUser,
    alter_user,
    create_user,
    delete_user,
)
from streamlog.metadata.brokers.drain import DrainBroker, drain
from streamlog.metadata.brokers.liveness import (
    BrokerHeartbeat,
    ExpireSession,
    FenceBroker,
    expire_session,
    fence,
    heartbeat,
)
from streamlog.metadata.brokers.registration import RegisterBroker, UnregisterBroker, register, unregister
from streamlog.metadata.cluster import (
    AllocateProducerIds,
    Bootstrap,
    TakeOver,
    UpdateMetadataVersion,
    allocate_producer_ids,
    bootstrap,
    take_over,
    update_metadata_version,
)
from streamlog.metadata.configs.changes import AlterConfigs, alter_configs
from streamlog.metadata.decision import BalanceTimer, BrokerSessionTimer, ControllerContext, MetadataDecision, Timer
from streamlog.metadata.features import require_all_allowed
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.partitions.isr import (
    AlterPartition,
    ReportOfflineReplicas,
    alter_partition,
    report_offline_replicas,
)
from streamlog.metadata.partitions.leaders import (
    BalanceLeaders,
    ElectLeaders,
    ResignLeadership,
    balance_leaders,
    elect_leaders,
    resign_leadership,
)
from streamlog.metadata.partitions.reassignment import AlterReassignments, alter_reassignments
from streamlog.metadata.partitions.recovery import RecoverPartitions, recover
from streamlog.metadata.partitions.settle import Settle, settle
from streamlog.metadata.topics.creation import CreateInternalTopic, CreateTopics, create_internal_topic, create_topics
from streamlog.metadata.topics.deletion import DeleteTopics, delete_topics
from streamlog.metadata.topics.growth import CreatePartitions, create_partitions

Command: TypeAlias = (
    AllocateProducerIds
    | AlterClientQuotas
    | AlterConfigs
    | AlterPartition
    | AlterReassignments
    | AlterUser
    | BalanceLeaders
    | Bootstrap
    | CreateAcls
    | CreateInternalTopic
    | CreatePartitions
    | CreateTopics
    | CreateUser
    | DeleteAcls
    | DeleteTopics
    | DeleteUser
    | DrainBroker
    | ElectLeaders
    | ExpireSession
    | FenceBroker
    | BrokerHeartbeat
    | RecoverPartitions
    | RegisterBroker
    | ReportOfflineReplicas
    | ResignLeadership
    | Settle
    | TakeOver
    | UnregisterBroker
    | UpdateMetadataVersion
)

DECIDERS: Final[Mapping[type[Command], Callable[[Any, MetadataImage, ControllerContext], MetadataDecision[Any]]]] = {
    AllocateProducerIds: allocate_producer_ids,
    AlterClientQuotas: alter_client_quotas,
    AlterConfigs: alter_configs,
    AlterPartition: alter_partition,
    AlterReassignments: alter_reassignments,
    AlterUser: alter_user,
    BalanceLeaders: balance_leaders,
    Bootstrap: bootstrap,
    CreateAcls: create_acls,
    CreateInternalTopic: create_internal_topic,
    CreatePartitions: create_partitions,
    CreateTopics: create_topics,
    CreateUser: create_user,
    DeleteAcls: delete_acls,
    DeleteTopics: delete_topics,
    DeleteUser: delete_user,
    DrainBroker: drain,
    ElectLeaders: elect_leaders,
    ExpireSession: expire_session,
    FenceBroker: fence,
    BrokerHeartbeat: heartbeat,
    RecoverPartitions: recover,
    RegisterBroker: register,
    ReportOfflineReplicas: report_offline_replicas,
    ResignLeadership: resign_leadership,
    Settle: settle,
    TakeOver: take_over,
    UnregisterBroker: unregister,
    UpdateMetadataVersion: update_metadata_version,
}


def decide(command: Command, image: MetadataImage, context: ControllerContext) -> MetadataDecision[Any]:
    """The decision on one command. StreamlogError if it is refused as a whole; nothing changes then."""
    decision = DECIDERS[type(command)](command, image, context)
    require_all_allowed(decision.records, image.metadata_version)
    return decision


def command_for(timer: Timer) -> Command:
    """The command to decide when the timer fires."""
    match timer:
        case BrokerSessionTimer(broker_id):
            return ExpireSession(broker_id=broker_id)
        case BalanceTimer():
            return BalanceLeaders()
        case _:
            assert_never(timer)
