"""Unclean recovery (KIP-966): leaderless partitions get a leader by the reported state of the replicas' logs.

The shell queries the nodes (streamlog.controller.recovery) and submits their answers; the leader is decided here, by
the rules of `replica_states`, and recorded like every other election. Answers belong to one leader epoch and one
registration: others are ignored, and the shell queries again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from streamlog.metadata.configs.rules import Rulebook, TopicRules
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision, Then
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import PartitionKey, Role
from streamlog.metadata.partitions.election import Occasion, revise
from streamlog.metadata.partitions.replica_states import (
    ReplicaState,
    chosen,
    is_proof,
    known_complete,
    longest,
    lost_records,
)
from streamlog.metadata.records import Partition, PartitionChangeRecord, Replicas
from streamlog.model import NO_BROKER, BrokerId, LeaderEpoch


class PartitionAnswers(Struct, frozen=True, kw_only=True):
    key: PartitionKey
    leader_epoch: LeaderEpoch  # of the image used for the query
    states: tuple[ReplicaState, ...]


class RecoverPartitions(Struct, frozen=True, kw_only=True):
    """The nodes' answers; at most BATCH_RECORDS partitions."""

    answers: tuple[PartitionAnswers, ...]


class Candidate(Struct, frozen=True, kw_only=True):
    """A candidate of an unclean election."""

    broker_id: BrokerId
    condition: str  # of the node: alive, fenced, stopping, unregistered; or of its replica: disk failed, damaged
    state: ReplicaState | None = None  # None: it has not answered
    lost_records: int | None = None  # compared with the longest known log; None: unknown
    known: bool = False  # it was in sync or eligible last
    would_lead: bool = False


def recover(command: RecoverPartitions, image: MetadataImage, context: ControllerContext) -> MetadataDecision[None]:
    rulebook = Rulebook(image, context.settings)
    records = tuple(_changes(command, image, rulebook))[:BATCH_RECORDS]
    return MetadataDecision(response=None, records=records, then=Then.SETTLE if records else Then.NOTHING)


def _changes(command: RecoverPartitions, image: MetadataImage, rulebook: Rulebook) -> Iterator[PartitionChangeRecord]:
    for answers in command.answers:
        partition = leaderless(answers, image)
        if partition is None:
            continue
        rules = rulebook.of_topic(image.topics[answers.key[0]])
        record = revise(answers.key, partition, rules, Occasion(states=current_states(answers, image)))
        if record is not None and record.leader is not None:
            yield record


def leaderless(answers: PartitionAnswers, image: MetadataImage) -> Partition | None:
    """The partition, if it has no leader and had none since the query."""
    topic = image.topics.get(answers.key[0])
    partition = None if topic is None else topic.partitions.get(answers.key[1])
    if partition is None or partition.leader != NO_BROKER or partition.leader_epoch != answers.leader_epoch:
        return None
    return partition


def current_states(answers: PartitionAnswers, image: MetadataImage) -> tuple[ReplicaState, ...]:
    """The states whose node has not registered again since."""
    return tuple(
        state
        for state in answers.states
        if (broker := image.brokers.get(state.broker_id)) is not None and broker.epoch == state.broker_epoch
    )


def proven(answers: PartitionAnswers, image: MetadataImage) -> bool:
    """Whether an election by these answers loses nothing that was acknowledged."""
    partition = leaderless(answers, image)
    if partition is None:
        return False
    active = frozenset(broker.broker_id for broker in image.brokers.values() if broker.active)
    states = current_states(answers, image)
    fit = [s for s in states if s.broker_id in active and s.broker_id not in partition.offline and not s.damaged]
    return is_proof(partition, fit)


def to_query(image: MetadataImage, after: PartitionKey | None = None) -> Iterator[tuple[PartitionKey, Replicas]]:
    """The leaderless partitions, and their replicas on active nodes with working disks; those behind `after` first."""
    keys = list(image.roles.partitions(Role.LEADERLESS))
    start = 0 if after is None else sum(1 for key in keys if key <= after)
    active = frozenset(broker.broker_id for broker in image.brokers.values() if broker.active)
    for key in (*keys[start:], *keys[:start]):
        partition = image.partition(key)
        nodes = tuple(b for b in partition.replicas if b in active and b not in partition.offline)
        if nodes:
            yield key, nodes


def silent(partition: Partition, rules: TopicRules, states: Sequence[ReplicaState]) -> Replicas:
    """Active nodes with a working disk that have not answered."""
    answered = {state.broker_id for state in states}
    return tuple(
        b for b in partition.replicas if b in rules.active and b not in partition.offline and b not in answered
    )


def waited_for(partition: Partition, states: Sequence[ReplicaState]) -> Replicas:
    """The nodes that could prove a choice, or are needed for the best one: those in sync, eligible or last known that
    have not answered. If there are none: all others that have not answered.
    """
    able = {state.broker_id for state in states if not state.damaged}
    wanted = (*partition.isr, *partition.elr, *known_complete(partition))
    found = tuple(b for b in partition.replicas if b in wanted and b not in able)
    return found or tuple(b for b in partition.replicas if b not in able)


def candidates(
    partition: Partition, rules: TopicRules, image: MetadataImage, states: Sequence[ReplicaState]
) -> tuple[Candidate, ...]:
    """What an operator's election would choose from, in the order of the replicas."""
    reference = longest(states)
    by_id: Mapping[BrokerId, ReplicaState] = {state.broker_id: state for state in states}
    fit = tuple(b for b in partition.replicas if b in rules.active and b not in partition.offline)
    choice = chosen(partition, fit, (), states, rules.recovery, by_hand=True)
    known = (*partition.isr, *partition.elr, *known_complete(partition))
    rows = []
    for broker_id in partition.replicas:
        state = by_id.get(broker_id)
        row = Candidate(
            broker_id=broker_id,
            condition=_condition(broker_id, partition, image, state),
            known=broker_id in known,
            would_lead=choice is not None and choice.leader == broker_id,
        )
        if state is not None and reference is not None:
            row = replace(row, state=state, lost_records=lost_records(state, reference))
        rows.append(row)
    return tuple(rows)


def _condition(broker_id: BrokerId, partition: Partition, image: MetadataImage, state: ReplicaState | None) -> str:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return "unregistered"
    if broker.fenced:
        return "fenced"
    if broker.stopping:
        return "stopping"
    if broker_id in partition.offline:
        return "disk failed"
    if state is None:
        return "no answer"
    return "damaged" if state.damaged else "alive"
