"""How requests and responses name a partition; the enums that both tiers share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, Protocol

from streamlog.api.convert.fields import (
    enum_value,
    leader_epoch,
    partition_id,
    topic_id,
    topic_name,
)
from streamlog.api.pb import common_pb2
from streamlog.api.requests import (
    PartitionRef,
)
from streamlog.errors import InvalidRequestError
from streamlog.model import (
    NO_LEADER_EPOCH,
    Acks,
    IsolationLevel,
    LeaderEpoch,
)

_ACKS: Final[Mapping[int, Acks]] = {
    common_pb2.ACKS_NONE: Acks.NONE,
    common_pb2.ACKS_LEADER: Acks.LEADER,
    common_pb2.ACKS_ALL: Acks.ALL,
}
_ISOLATION_LEVELS: Final[Mapping[int, IsolationLevel]] = {
    common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    common_pb2.ISOLATION_LEVEL_READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}


class NamesPartition(Protocol):
    """A message that names a partition."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partition(self) -> int: ...


class KnowsEpoch(Protocol):
    """A message with the leader epoch that the client knows."""

    @property
    def leader_epoch(self) -> int: ...
    def HasField(self, field_name: Literal["leader_epoch"], /) -> bool: ...


def acks(number: int, field: str = "acks") -> Acks:
    known = _ACKS.get(number)
    return enum_value(number, _ACKS, common_pb2.Acks, field, Acks.ALL) if known is None else known


def isolation_level(number: int, field: str = "isolation_level") -> IsolationLevel:
    default = IsolationLevel.READ_UNCOMMITTED
    return enum_value(number, _ISOLATION_LEVELS, common_pb2.IsolationLevel, field, default)


def known_epoch(message: KnowsEpoch) -> LeaderEpoch:
    """NO_LEADER_EPOCH: the client knows none."""
    return leader_epoch(message.leader_epoch) if message.HasField("leader_epoch") else NO_LEADER_EPOCH


def partition_ref(message: NamesPartition, epoch: LeaderEpoch = NO_LEADER_EPOCH) -> PartitionRef:
    return _checked_ref(message.topic, message.topic_id, message.partition, epoch)


@lru_cache(maxsize=4096)  # most streams name the same few partitions in all their messages
def _checked_ref(topic: str, id_: bytes, partition: int, epoch: LeaderEpoch) -> PartitionRef:
    if not (topic or id_):
        raise InvalidRequestError("topic or topic_id is required", field="topic")
    return PartitionRef(
        topic=topic_name(topic) if topic else "",
        topic_id=topic_id(id_) if id_ else None,
        partition=partition_id(partition),
        leader_epoch=epoch,
    )


def partition_key(ref: PartitionRef) -> tuple[str, int]:
    """Equal for partitions that are named alike. A duplicate by name and id is found when it is served."""
    return (ref.topic or (ref.topic_id or b"").hex(), ref.partition)


class TellsPartition(Protocol):
    topic: str
    topic_id: bytes
    partition: int


def set_partition(message: TellsPartition, ref: PartitionRef) -> None:
    message.topic = ref.topic
    message.topic_id = ref.topic_id or b""
    message.partition = ref.partition
