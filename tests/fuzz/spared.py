"""What a caller may do by right in a cluster without authorization, and what would prove nothing here: it is taken out
of a message. All else that a message can say is sent.

A topic or group of the well-behaved client is never named (`known.Known`), so nothing has to be spared there. Nodes,
settings of all nodes, and the epochs by which nodes speak for themselves are what remains.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from .catalogue import methods
from .known import Known

ABSENT_NODE: Final = 77
_PARTITIONS_MAX: Final = 4
_NOBODYS_EPOCH: Final = (1 << 62) + 1


def spare(message: Message, known: Known) -> None:
    change = _SPARED.get(message.DESCRIPTOR.full_name.rpartition(".")[2])
    if change is not None:
        change(message, known)


def _of_node(message: Any, known: Known) -> None:
    """Draining, unregistering, voting: of a node that is not there."""
    if message.node_id in known.node_ids:
        message.node_id = ABSENT_NODE


def _add_voter(message: Any, known: Known) -> None:
    """A voter that is not there takes the majority's measure up."""
    _of_node(message, known)
    message.ClearField("node_id")


def _of_broker(message: Any, known: Known) -> None:
    """A node's own words go by its epoch, which is no secret: another epoch."""
    if message.node_id in known.node_ids and message.broker_epoch < 1 << 40:
        message.broker_epoch = _NOBODYS_EPOCH


def _register(message: Any, known: Known) -> None:
    """A node that does not run, validly registered, would be assigned replicas."""
    if message.cluster_id == known.cluster_id and message.node_id not in known.node_ids:
        message.node_id = known.node_ids[0]


def _alter_configs(message: Any, known: Known) -> None:
    """Of nodes: checked, not done. Whole clusters can be slowed down by right."""
    if any(one.resource.name not in known.topics for one in message.alterations):
        message.validate_only = True


def _create_topics(message: Any, known: Known) -> None:
    """Few and small ones: each partition takes files on three nodes."""
    for topic in message.topics:
        if topic.partitions > _PARTITIONS_MAX or len(topic.assignments) > _PARTITIONS_MAX:
            message.validate_only = True
    if len(message.topics) > _PARTITIONS_MAX:
        message.validate_only = True


def _create_partitions(message: Any, known: Known) -> None:
    if any(topic.partition_count > _PARTITIONS_MAX for topic in message.topics):
        message.validate_only = True


def _delete_topics(message: Any, known: Known) -> None:
    """The fuzzer's own stay: valid messages need some."""
    names = [name for name in message.topics if name not in known.topics]
    del message.topics[:]
    message.topics.extend(names)
    ids = [one for one in message.topic_ids if one not in known.topics.values()]
    del message.topic_ids[:]
    message.topic_ids.extend(ids)


def _forward(message: Any, known: Known) -> None:
    """What it carries is spared as if it came by itself."""
    kind = _carried().get(message.method)
    if kind is None:
        return
    try:
        carried = kind.FromString(message.request)
    except DecodeError:
        return
    before = carried.SerializeToString()
    spare(carried, known)
    after = carried.SerializeToString()
    if after != before:
        message.request = after


@functools.cache
def _carried() -> dict[str, type[Message]]:
    return {method.path: method.request for method in methods()}


def _metadata_version(message: Any, known: Known) -> None:
    message.level = max(message.level, 1 << 20)


_SPARED: Final[dict[str, Callable[[Any, Known], None]]] = {
    "DrainNodeRequest": _of_node,
    "UnregisterNodeRequest": _of_node,
    "RemoveVoterRequest": _of_node,
    "AddVoterRequest": _add_voter,
    "UpdateMetadataVersionRequest": _metadata_version,
    "RegisterRequest": _register,
    "HeartbeatRequest": _of_broker,
    "AlterPartitionRequest": _of_broker,
    "ReportOfflineReplicasRequest": _of_broker,
    "ResignLeadershipRequest": _of_broker,
    "SuspectRequest": _of_broker,
    "AllocateProducerIdsRequest": _of_broker,
    "AlterConfigsRequest": _alter_configs,
    "CreateTopicsRequest": _create_topics,
    "CreatePartitionsRequest": _create_partitions,
    "DeleteTopicsRequest": _delete_topics,
    "ForwardRequest": _forward,
}
