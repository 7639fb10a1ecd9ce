"""What a Consume call says while it sends nothing else: what it waits for, and why.

    not a member                    --> JOINING: what the coordinator, or the way to it, answered last
    revoked, not given up           --> RELEASE: the client's acknowledgements, or `released`
    no partitions                   --> ASSIGNMENT: topics that do not exist; or other members have all partitions
    no credits                      --> CREDITS
    otherwise                       --> RECORDS

The first that applies. It is computed when it is sent, from the member and the metadata of this node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from streamlog.api.pb import common_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.errors import StreamlogError, UnknownTopicOrPartitionError
from streamlog.metadata.image.image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.services.common.topics import unknown_topic

_NAMES_MAX: Final = 100
"""Unknown topics in one message."""


class MemberStanding(Struct, frozen=True, kw_only=True):
    """What a member knows of itself."""

    is_member: bool
    trouble: StreamlogError | None  # why it has not joined yet
    assigned: int  # partitions


def unknown_topics(topics: Sequence[str], image: MetadataImage) -> list[str]:
    """Those of a join that do not exist."""
    return [name for name in topics if image.topic_named(name) is None]


def check_topics(topics: Sequence[str], image: MetadataImage) -> None:
    """UnknownTopicOrPartitionError, for a client that wants it."""
    for name in unknown_topics(topics, image):
        raise UnknownTopicOrPartitionError.restored(
            f"{unknown_topic(name).message} (on_unknown_topic is UNKNOWN_TOPIC_POLICY_FAIL)",
            {"field": "join.topics", "topic": name},
        ).permanent()


def consume_status(
    group: str,
    standing: MemberStanding,
    unknown: Sequence[str],
    pattern: str,
    held: Collection[TopicPartition],
    *,
    credits_left: int,
) -> pb.ConsumeStatus:
    """`unknown`: topics of the join that do not exist; `held`: revoked partitions that the client has not given up."""
    status = pb.ConsumeStatus(unknown_topics=unknown[:_NAMES_MAX], unreleased=_messages(held))
    if not standing.is_member:
        status.waiting_for = pb.CONSUME_WAIT_MEMBERSHIP
        why = "" if standing.trouble is None else f": {standing.trouble}"
        status.reason = f"joining group {group!r}{why}"
    elif held:
        status.waiting_for = pb.CONSUME_WAIT_RELEASE
        status.reason = (
            f"{len(held)} revoked partitions wait until their records are acknowledged, or the partitions released"
        )
    elif not standing.assigned:
        status.waiting_for = pb.CONSUME_WAIT_ASSIGNMENT
        status.reason = _without_partitions(group, unknown, pattern)
    elif not credits_left:
        status.waiting_for = pb.CONSUME_WAIT_CREDITS
        status.reason = "no credits are left: grant credits as records are processed"
    else:
        status.waiting_for = pb.CONSUME_WAIT_RECORDS
        status.reason = f"no new records in {standing.assigned} partitions"
    return status


def _without_partitions(group: str, unknown: Sequence[str], pattern: str) -> str:
    others = f"no partitions are assigned: the other members of group {group!r} have all of them, or must give some up"
    if not unknown:
        return f"{others}; or no topic matches pattern {pattern!r}" if pattern else others
    names = ", ".join(unknown[:3]) + (", ..." if len(unknown) > 3 else "")
    return f"{others}; these topics do not exist (yet): {names}"


def _messages(partitions: Iterable[TopicPartition]) -> list[common_pb2.TopicPartition]:
    return [common_pb2.TopicPartition(topic=one.topic, partition=one.partition) for one in sorted(partitions)]
