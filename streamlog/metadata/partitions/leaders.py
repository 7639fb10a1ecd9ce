"""Elections on request, and the balancing of leaders to the preferred replicas (SEMANTICS 4).

The preferred leader of a partition is its first replica. After failures others lead; balancing moves leaderships back
to nodes that lack more than `leader.imbalance.per.broker.percentage` of what they should lead, a bounded number at
a time, so that not all clients look up new leaders at once.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, TypeAlias

from msgspec import Struct

from streamlog.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    PreferredLeaderNotAvailableError,
    StreamlogError,
)
from streamlog.metadata.configs.rules import Rulebook, TopicRules
from streamlog.metadata.decision import (
    BATCH_RECORDS,
    BalanceTimer,
    ControllerContext,
    MetadataDecision,
    SetControllerTimer,
    Then,
)
from streamlog.metadata.image.image import MetadataImage, require_partition
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.election import Occasion, revise
from streamlog.metadata.partitions.recovery import (
    Candidate,
    PartitionAnswers,
    candidates,
    current_states,
    leaderless,
    silent,
)
from streamlog.metadata.partitions.replica_states import ReplicaState
from streamlog.metadata.partitions.settle import revisions
from streamlog.metadata.records import MetadataRecord, Partition, PartitionChangeRecord
from streamlog.model import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, PartitionId

# Leaderships moved in one step. Kafka's MAX_ELECTIONS_PER_IMBALANCE.
BALANCE_MAX: Final = 1_000
# The delay of the next step if BALANCE_MAX was reached.
BALANCE_STEP_MS: Final = 10_000


class RequestedElection(enum.Enum):
    PREFERRED = 0
    UNCLEAN = 1  # of partitions without a leader, by an operator who accepts that committed records may be lost:
    # the longest log among the live nodes, all of which must have answered


class ElectLeaders(Struct, frozen=True, kw_only=True):
    type: RequestedElection
    partitions: tuple[tuple[str, PartitionId], ...] | None = (
        None  # topic and partition; None: all that need an election
    )
    dry_run: bool = False  # unclean: report the choice and the candidates, change nothing
    answers: tuple[PartitionAnswers, ...] = ()  # unclean: the replicas' states as reported by the nodes


class ResignLeadership(Struct, frozen=True, kw_only=True):
    """From the leader of the partition in this epoch: it needs a moment without a role."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    key: PartitionKey
    leader_epoch: LeaderEpoch


class ElectionResult(Struct, frozen=True, kw_only=True):
    topic: str
    partition_id: PartitionId
    leader: BrokerId = NO_BROKER  # the current one, newly elected or not
    error: StreamlogError | None = None
    candidates: tuple[Candidate, ...] = ()  # of a dry run


class BalanceLeaders(Struct, frozen=True, kw_only=True):
    """The balance timer has fired."""


def elect_leaders(
    command: ElectLeaders, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[ElectionResult, ...]]:
    """InvalidRequestError for the whole request; in each result UnknownTopicOrPartitionError, ElectionNotNeededError,
    PreferredLeaderNotAvailableError, EligibleLeadersNotAvailableError. For all partitions, only those that got a leader
    are in the response, at most BATCH_RECORDS of them: repeat until there are none.
    """
    rulebook = Rulebook(image, context.settings)
    states = _states(command, image)
    if command.partitions is None and command.type is RequestedElection.PREFERRED:
        changes = list(islice(revisions(image, rulebook, _all_preferred(image), _PREFERRED), BATCH_RECORDS))
        return _decided([_elected(image, change) for change in changes], changes)
    named = _unclean_names(image, states) if command.partitions is None else command.partitions
    if len(named) > BATCH_RECORDS or len(frozenset(named)) != len(named):
        raise InvalidRequestError(
            f"the partitions of a request must be distinct and at most {BATCH_RECORDS}",
            field="partitions",
            limit=BATCH_RECORDS,
        )
    records: list[MetadataRecord] = []
    results = []
    for name, partition_id in named:
        try:
            if command.dry_run:
                results.append(_previewed(name, partition_id, image, rulebook, states))
                continue
            record = _elect(name, partition_id, command.type, image, rulebook, states)
            records.append(record)
            results.append(_elected(image, record))
        except StreamlogError as error:
            leader = _leader_of(image, name, partition_id)
            results.append(ElectionResult(topic=name, partition_id=partition_id, leader=leader, error=error))
    return _decided(results, records)


def resign_leadership(
    command: ResignLeadership, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[None]:
    """A new leader epoch: the first other replica in sync leads; where there is none, the same one again. Nothing if
    the epoch has ended, or the topic is deleted. StaleBrokerEpochError.
    """
    image.require_broker(command.broker_id, command.broker_epoch)
    topic_id, partition_id = command.key
    topic = image.topics.get(topic_id)
    partition = topic.partitions.get(partition_id) if topic is not None else None
    if partition is None or (partition.leader, partition.leader_epoch) != (command.broker_id, command.leader_epoch):
        return MetadataDecision(response=None)
    others = (b for b in partition.replicas if b in partition.isr and b != command.broker_id)
    leader = next(others, command.broker_id)
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id, leader=leader)
    return MetadataDecision(response=None, records=(record,))


def balance_leaders(
    command: BalanceLeaders, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[None]:
    settings = context.settings
    interval_ms = settings.leader_imbalance_check_interval_ms
    if not settings.auto_leader_rebalance_enable:
        return MetadataDecision(response=None, timers=(SetControllerTimer(BalanceTimer(), interval_ms),))
    lacking = (_lacking(image, b.broker_id) for b in image.brokers.values() if b.active and not b.draining)
    keys = chain.from_iterable(
        keys for keys, share in lacking if share * 100 > settings.leader_imbalance_per_broker_percentage
    )
    moves = revisions(image, Rulebook(image, settings), keys, _PREFERRED)
    records = tuple(islice(moves, BALANCE_MAX))
    after_ms = min(BALANCE_STEP_MS, interval_ms) if len(records) == BALANCE_MAX else interval_ms
    return MetadataDecision(response=None, records=records, timers=(SetControllerTimer(BalanceTimer(), after_ms),))


def _decided(
    results: Sequence[ElectionResult], records: Sequence[MetadataRecord]
) -> MetadataDecision[tuple[ElectionResult, ...]]:
    # A partition that has a leader again may let a replica of a drained node move.
    return MetadataDecision(
        response=tuple(results), records=tuple(records), then=Then.SETTLE if records else Then.NOTHING
    )


_PREFERRED: Final = Occasion(prefer_first=True)

States: TypeAlias = Mapping[PartitionKey, tuple[ReplicaState, ...]]


def _states(command: ElectLeaders, image: MetadataImage) -> States:
    """The answers that are still valid."""
    return {one.key: current_states(one, image) for one in command.answers if leaderless(one, image) is not None}


def _unclean_names(image: MetadataImage, states: States) -> tuple[tuple[str, PartitionId], ...]:
    """All partitions for which a node has answered."""
    return tuple((image.topics[topic_id].name, partition_id) for topic_id, partition_id in states)


def _all_preferred(image: MetadataImage) -> Iterator[PartitionKey]:
    return chain.from_iterable(_lacking(image, broker_id)[0] for broker_id in image.brokers)


def _lacking(image: MetadataImage, broker_id: BrokerId) -> tuple[list[PartitionKey], float]:
    """The partitions that a node should lead but does not, and their share of those it should lead."""
    preferred = image.roles.partitions_without(Role.PREFERRED, Role.LEADER, broker_id)
    keys = list(preferred)
    return keys, len(keys) / max(1, image.roles.count(Role.PREFERRED, broker_id))


def _elect(
    name: str,
    partition_id: PartitionId,
    election: RequestedElection,
    image: MetadataImage,
    rulebook: Rulebook,
    states: States,
) -> PartitionChangeRecord:
    topic = image.require_topic(name)
    partition = require_partition(topic, partition_id)
    where = f"partition {name}-{partition_id}"
    rules: TopicRules = rulebook.of_topic(topic)
    occasion = _PREFERRED
    if election is RequestedElection.UNCLEAN:
        found = states.get((topic.topic_id, partition_id), ())
        _check_unclean(where, partition, rules, found)
        occasion = Occasion(allow_unclean=True, states=found)
    preferred = partition.replicas[0]
    if election is RequestedElection.PREFERRED:
        if partition.leader == preferred:
            raise ElectionNotNeededError(f"{where} is led by its preferred leader, {preferred}", leader=preferred)
        if preferred not in partition.isr or preferred not in rules.active:
            raise PreferredLeaderNotAvailableError(
                f"{where}: the preferred leader, {preferred}, is not in sync", leader=partition.leader
            )
    record = revise((topic.topic_id, partition_id), partition, rules, occasion)
    if record is None or record.leader is None:
        raise EligibleLeadersNotAvailableError(
            f"{where}: none of its replicas {list(partition.replicas)} is on a running node with an intact log: start "
            "one of these nodes"
        )
    return record


def _check_unclean(where: str, partition: Partition, rules: TopicRules, states: Sequence[ReplicaState]) -> None:
    if partition.leader != NO_BROKER:
        raise ElectionNotNeededError(f"{where} already has a leader, node {partition.leader}", leader=partition.leader)
    missing = silent(partition, rules, states)
    if missing:
        raise EligibleLeadersNotAvailableError(
            f"{where}: the running nodes {list(missing)} have not yet reported the ends of their logs, and the longest "
            "log must lead: retry"
        )


def _previewed(
    name: str, partition_id: PartitionId, image: MetadataImage, rulebook: Rulebook, states: States
) -> ElectionResult:
    topic = image.require_topic(name)
    partition = require_partition(topic, partition_id)
    if partition.leader != NO_BROKER:
        raise ElectionNotNeededError(f"partition {name}-{partition_id} has a leader", leader=partition.leader)
    rows = candidates(partition, rulebook.of_topic(topic), image, states.get((topic.topic_id, partition_id), ()))
    leader = next((row.broker_id for row in rows if row.would_lead), NO_BROKER)
    return ElectionResult(topic=name, partition_id=partition_id, leader=leader, candidates=rows)


def _elected(image: MetadataImage, record: PartitionChangeRecord) -> ElectionResult:
    leader = NO_BROKER if record.leader is None else record.leader
    return ElectionResult(topic=image.topics[record.topic_id].name, partition_id=record.partition_id, leader=leader)


def _leader_of(image: MetadataImage, name: str, partition_id: PartitionId) -> BrokerId:
    topic = image.topic_named(name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    return NO_BROKER if partition is None else partition.leader
