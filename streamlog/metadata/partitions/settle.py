"""Settling: the pending consequences of what has been decided.

Fencing a node is one record; that it leaves its ISRs and its leaderships move are consequences. They follow from the
image alone, so a command that changes the state of a node or a rule records just that and then settles; a new
controller settles what the previous one left. An image at rest has nothing to settle:

- no fenced or stopping node is in an ISR (so none leads);
- no partition that could have a leader is without one;
- no partition with enough in-sync replicas has an ELR;
- no reassignment is pending that could be completed (a lower min.insync.replicas may complete it);
- no internal topic has fewer replicas than it could have (streamlog.metadata.topics.internal_topics);
- no further replica of a node being drained could start to move (streamlog.metadata.brokers.drain).

A partition that is settled already causes no record, so settling is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from msgspec import Struct

from streamlog.metadata.configs.rules import Rulebook, TopicRules, effective_min_isr
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision, SetControllerTimer, Then
from streamlog.metadata.image.delta import look_ahead
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.drain_moves import moves
from streamlog.metadata.partitions.election import NOTHING_SPECIAL, Occasion, revise
from streamlog.metadata.records import MetadataRecord, PartitionChangeRecord
from streamlog.metadata.settings import ControllerSettings
from streamlog.metadata.topics.internal_topics import growth
from streamlog.model import TopicId

R = TypeVar("R")


class Settle(Struct, frozen=True, kw_only=True):
    """Decide the pending consequences."""


def settle(command: Settle, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    losing = list(islice(eligibility_lost(image, Rulebook(image, context.settings)), BATCH_RECORDS))
    if len(losing) == BATCH_RECORDS:
        return MetadataDecision(response=None, records=tuple(losing), then=Then.AGAIN)
    return settled(image, context, losing, None)


def settled(
    image: MetadataImage,
    context: ControllerContext,
    records: Sequence[MetadataRecord],
    response: R,
    timers: Sequence[SetControllerTimer] = (),
) -> MetadataDecision[R]:
    """The decision with these records and their consequences, as far as they fit into one command."""
    room = max(1, BATCH_RECORDS - len(records))
    following = list(islice(unsettled(look_ahead(image, records), context.settings), room + 1))
    return MetadataDecision(
        response=response,
        records=(*records, *following[:room]),
        timers=tuple(timers),
        then=Then.SETTLE if len(following) > room else Then.NOTHING,
    )


def unsettled(image: MetadataImage, settings: ControllerSettings) -> Iterator[PartitionChangeRecord]:
    """The pending changes of partitions, leaderships first; after all of them the image is at rest."""
    inactive = [broker.broker_id for broker in image.brokers.values() if not broker.active]
    led = (key for broker_id in inactive for key in image.roles.partitions(Role.LEADER, broker_id))
    followed = (key for broker_id in inactive for key in image.roles.partitions(Role.ISR, broker_id))
    leaderless = image.roles.partitions(Role.LEADERLESS)
    reassigned = image.roles.partitions(Role.REASSIGNED)
    changes: list[PartitionChangeRecord] = []
    for change in revisions(image, Rulebook(image, settings), chain(led, followed, leaderless, reassigned)):
        changes.append(change)
        yield change
    ahead = look_ahead(image, changes)
    growing = list(growth(ahead, settings))
    yield from growing
    yield from moves(look_ahead(ahead, growing), settings)


def eligibility_lost(image: MetadataImage, rulebook: Rulebook) -> Iterator[PartitionChangeRecord]:
    """Clear the ELR (current and last known) of each partition that has enough in-sync replicas by these rules."""
    with_elr = frozenset(
        key
        for broker_id in image.brokers
        for role in (Role.ELR, Role.LAST_KNOWN_ELR)
        for key in image.roles.partitions(role, broker_id)
    )
    minimum: dict[TopicId, int | None] = {}
    for topic_id, partition_id in sorted(with_elr):
        topic = image.topics[topic_id]
        if topic_id not in minimum:
            minimum[topic_id] = rulebook.of_topic(topic).min_insync_replicas
        partition = topic.partitions[partition_id]
        if len(partition.isr) >= effective_min_isr(minimum[topic_id], partition):
            yield PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=partition_id,
                elr=() if partition.elr else None,
                last_known_elr=() if partition.last_known_elr else None,
            )


def revisions(
    image: MetadataImage,
    rulebook: Rulebook,
    keys: Iterable[PartitionKey],
    occasion: Occasion = NOTHING_SPECIAL,
) -> Iterator[PartitionChangeRecord]:
    """The result of `revise` for each distinct partition that changes."""
    seen: set[PartitionKey] = set()
    rules: dict[TopicId, TopicRules] = {}
    for key in keys:
        if key in seen:
            continue
        seen.add(key)
        if key[0] not in rules:
            rules[key[0]] = rulebook.of_topic(image.topics[key[0]])
        record = revise(key, image.partition(key), rules[key[0]], occasion)
        if record is not None:
            yield record
