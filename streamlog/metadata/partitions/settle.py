"""What an image still asks for: the consequences of what has been decided.

Fencing a node is one record; that it leaves its ISRs and that its leaderships move are consequences. They follow from
the image alone, so whoever changes the standing of a node or a rule changes just that and then settles; and a
controller that takes over settles what its predecessor left. An image at rest has nothing to settle:

- no node that is fenced or stopping is in an ISR (so none leads);
- no partition is without a leader that could have one;
- no reassignment goes on that could be over (a lower min.insync.replicas may end it);
- no internal topic has fewer replicas than it could have (streamlog.metadata.topics.internal_topics);
- of no node that is drained could another replica start to move (streamlog.metadata.brokers.drain).

A partition that is already right makes no record, so settling twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from msgspec import Struct

from streamlog.metadata.configs.rules import Rulebook, TopicRules
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
    """Do what is left to do."""


def settle(command: Settle, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    return settled(image, context, (), None)


def settled(
    image: MetadataImage,
    context: ControllerContext,
    records: Sequence[MetadataRecord],
    response: R,
    timers: Sequence[SetControllerTimer] = (),
) -> MetadataDecision[R]:
    """The decision for these records and what follows from them, as far as it goes into one command."""
    room = max(1, BATCH_RECORDS - len(records))
    following = list(islice(unsettled(look_ahead(image, records), context.settings), room + 1))
    return MetadataDecision(
        response=response,
        records=(*records, *following[:room]),
        timers=tuple(timers),
        then=Then.SETTLE if len(following) > room else Then.NOTHING,
    )


def unsettled(image: MetadataImage, settings: ControllerSettings) -> Iterator[PartitionChangeRecord]:
    """The changes of partitions that the image asks for, leaderships first; after all of them it is at rest."""
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


def revisions(
    image: MetadataImage,
    rulebook: Rulebook,
    keys: Iterable[PartitionKey],
    occasion: Occasion = NOTHING_SPECIAL,
) -> Iterator[PartitionChangeRecord]:
    """`revise` for each of the partitions that needs it; those that come twice are looked at once."""
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
