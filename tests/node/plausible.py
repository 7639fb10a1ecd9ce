"""Requests that a node could mean: names, ids and epochs of the cluster that is there."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from streamlog.model import BrokerId
from streamlog.node import Node

F = FieldDescriptor
DEPTH_MAX: Final = 5


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


class Plausible:
    """Fills messages with what a node could mean."""

    def __init__(self, node: Node) -> None:
        image = node.view.image
        topic = image.require_topic("t")
        broker = image.brokers[BrokerId(1)]
        self.cluster_id = image.cluster_id
        self.broker_epoch = broker.epoch
        self._absent = frozenset({"error", "batches", "producer_token"})
        self._by_name: dict[str, Any] = {
            "topic": "t",
            "topics": "t",
            "name": "t",
            "topic_id": topic.topic_id,
            "cluster_id": image.cluster_id,
            "node_id": 1,
            "leader_id": 1,
            "broker_epoch": broker.epoch,
            "leader_epoch": topic.partitions[0].leader_epoch,
            "partition_epoch": topic.partitions[0].partition_epoch,
            "replicas": 1,
            "group": "g",
            "groups": "g",
            "transactional_id": "x",
            "incarnation_id": bytes(16),
            "directory_ids": bytes(16),
            "page_token": "",
            "receive_bytes_max": 1 << 20,
        }

    def names(self, *absent: str, **values: Any) -> None:
        """What fields of these names have; `absent` ones nothing."""
        self._absent |= frozenset(absent)
        self._by_name |= values

    def fill(self, message: Any, depth: int = 0) -> None:
        seen: set[str] = set()
        for field in message.DESCRIPTOR.fields:
            oneof = field.containing_oneof
            if is_map(field) or field.name in self._absent:
                continue
            if oneof is not None and len(oneof.fields) > 1:
                if oneof.name in seen:
                    continue
                seen.add(oneof.name)
            if field.message_type is not None:
                if depth < DEPTH_MAX:
                    child = getattr(message, field.name)
                    self.fill(child.add() if field.is_repeated else child, depth + 1)
                    if not field.is_repeated:
                        child.SetInParent()
                continue
            value = self._value(field)
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)

    def _value(self, field: FieldDescriptor) -> Any:
        if field.name in self._by_name:
            value = self._by_name[field.name]
            if isinstance(value, str) == (field.type == F.TYPE_STRING) and isinstance(value, bytes) == (
                field.type == F.TYPE_BYTES
            ):
                return value
        match field.type:
            case F.TYPE_STRING:
                return "a"
            case F.TYPE_BYTES:
                return bytes(16)
            case F.TYPE_BOOL:
                return False
            case F.TYPE_ENUM:
                assert field.enum_type is not None
                return field.enum_type.values[-1].number
        return 0
