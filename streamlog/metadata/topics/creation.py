"""Topic creation (REQUIREMENTS "Topics").

Every number is checked before it is used, so a request for 10^9 partitions costs nothing. Each topic of a request has
its own result and is created completely or not at all; all of them are created in one command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from streamlog.config import ConfigChange
from streamlog.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    StreamlogError,
    TopicAlreadyExistsError,
)
from streamlog.metadata.configs.changes import changed_value, scope_of
from streamlog.metadata.decision import BATCH_RECORDS, ControllerContext, MetadataDecision
from streamlog.metadata.image.image import MetadataImage, collision_key
from streamlog.metadata.records import (
    ConfigRecord,
    ConfigTarget,
    ConfigTargetType,
    MetadataRecord,
    PartitionRecord,
    Replicas,
    TopicRecord,
)
from streamlog.metadata.topics.assignment import REPLICATION_FACTOR_MAX, check_assignments, new_partition
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.metadata.topics.names import check_name
from streamlog.metadata.topics.placement import Tally, TopicPlacer, candidates
from streamlog.model import PartitionId, TopicId

# New partitions of one request, over all its topics: a topic is created in one command, and placing takes as long as
# applying (Kafka's limit of 10,000 need not fit into an event loop). Larger topics are created by adding partitions.
PARTITIONS_PER_REQUEST_MAX: Final = BATCH_RECORDS


class CreatableTopic(Struct, frozen=True, kw_only=True):
    name: str
    partitions: int | None = None  # None: num.partitions, or as many as there are assignments
    replication_factor: int | None = None  # None: default.replication.factor, or that of the assignments
    assignments: tuple[Replicas, ...] = ()  # by partition; empty: placed by the controller
    configs: Mapping[str, str] = field(default_factory=dict)


class CreateTopics(Struct, frozen=True, kw_only=True):
    topics: tuple[CreatableTopic, ...]
    validate_only: bool = False


class CreateInternalTopic(Struct, frozen=True, kw_only=True):
    """A node needs an internal topic. The cluster determines its partitions, replicas and configs."""

    name: str


class TopicResult(Struct, frozen=True, kw_only=True):
    name: str
    topic_id: TopicId | None = None
    partitions: int = 0
    replication_factor: int = 0
    warning: str | None = None
    error: StreamlogError | None = None  # if set, this topic was not created


def create_topics(
    command: CreateTopics, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[TopicResult, ...]]:
    """InvalidRequestError for the whole request; in each result TopicAlreadyExistsError, InvalidTopicError,
    InvalidPartitionsError, InvalidReplicationFactorError, InvalidReplicaAssignmentError, InvalidConfigError.
    """
    creation = _Creation(command.topics, image, context)
    results = tuple(creation.create(topic) for topic in command.topics)
    return MetadataDecision(response=results, records=() if command.validate_only else tuple(creation.records))


def create_internal_topic(
    command: CreateInternalTopic, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[TopicResult]:
    """InvalidTopicError for a name that is not an internal topic's; TopicAlreadyExistsError;
    InvalidReplicationFactorError while no node is active.
    """
    internal = INTERNAL_TOPICS.get(command.name)
    if internal is None:
        raise InvalidTopicError(f"{command.name!r} is not an internal topic", field="name")
    topic = CreatableTopic(
        name=command.name,
        partitions=internal.partitions(context.settings),
        replication_factor=internal.replicas(context.settings, len(candidates(image))),
        configs=internal.all_configs(context.settings),
    )
    creation = _Creation([topic], image, context, internal=True)
    result = creation.create(topic)
    if result.error is not None:
        raise result.error
    return MetadataDecision(response=result, records=tuple(creation.records))


class _Creation:
    """One request: the placement of each topic counts for those after it."""

    def __init__(
        self,
        topics: tuple[CreatableTopic, ...] | list[CreatableTopic],
        image: MetadataImage,
        context: ControllerContext,
        *,
        internal: bool = False,
    ) -> None:
        self.records: list[MetadataRecord] = []
        self._image = image
        self._context = context
        self._internal = internal
        self._nodes = candidates(image)
        self._tally = Tally.of_cluster(image)
        self._names = Counter(topic.name for topic in topics)
        self._keys: dict[str, str] = {}  # collision key -> name, of the topics of this request
        self._partitions = 0  # created so far

    def create(self, topic: CreatableTopic) -> TopicResult:
        try:
            return self._create(topic)
        except StreamlogError as error:
            return TopicResult(name=topic.name, error=error)

    def _create(self, topic: CreatableTopic) -> TopicResult:
        warning = check_name(topic.name, strict=self._context.settings.strict_topic_names, internal=self._internal)
        self._check_free(topic.name)
        count, replication_factor = self._counts(topic)
        configs = self._configs(topic)
        assignments = topic.assignments or self._place(count, replication_factor)
        partitions = [new_partition(replicas, self._image) for replicas in assignments]
        topic_id = self._new_id()
        self._keys[collision_key(topic.name)] = topic.name
        self._partitions += count
        self.records.append(TopicRecord(topic_id=topic_id, name=topic.name))
        self.records += configs
        self.records += (
            PartitionRecord(topic_id=topic_id, partition_id=PartitionId(partition_id), partition=partition)
            for partition_id, partition in enumerate(partitions)
        )
        return TopicResult(
            name=topic.name,
            topic_id=topic_id,
            partitions=count,
            replication_factor=replication_factor,
            warning=warning,
        )

    def _check_free(self, name: str) -> None:
        if self._names[name] > 1:
            raise InvalidRequestError(f"topic {name!r} is named twice in one request", field="name")
        like = self._image.topic_like(name)
        taken = like.name if like is not None else self._keys.get(collision_key(name))
        if taken == name:
            raise TopicAlreadyExistsError(f"topic {name!r} already exists", field="name")
        if taken is not None:
            raise InvalidTopicError(
                f"topic name {name!r} collides with topic {taken!r}: they differ only in '.' and '_'",
                field="name",
                limit=taken,
            )

    def _counts(self, topic: CreatableTopic) -> tuple[int, int]:
        """Partitions and replication factor, both within their bounds."""
        if topic.assignments:
            return self._counts_by_hand(topic)
        settings, live = self._context.settings, len(self._nodes)
        count = settings.num_partitions if topic.partitions is None else topic.partitions
        check_partition_count(count, PARTITIONS_PER_REQUEST_MAX - self._partitions)
        factor = topic.replication_factor
        if factor is None:
            factor = settings.default_replication_factor or max(1, min(3, live))
        check_replication_factor(factor, live)
        return count, factor

    def _counts_by_hand(self, topic: CreatableTopic) -> tuple[int, int]:
        count, factor = len(topic.assignments), len(topic.assignments[0])
        check_partition_count(count, PARTITIONS_PER_REQUEST_MAX - self._partitions)
        for name, given, meant in (
            ("partitions", topic.partitions, count),
            ("replication_factor", topic.replication_factor, factor),
        ):
            if given is not None and given != meant:
                raise InvalidRequestError(
                    f"{name} is {given}, but the assignments imply {meant}: leave one of the two out",
                    field=name,
                    limit=meant,
                )
        check_assignments(topic.assignments, self._image, factor)
        return count, factor

    def _configs(self, topic: CreatableTopic) -> list[ConfigRecord]:
        resource = ConfigTarget(ConfigTargetType.TOPIC, topic.name)
        rules = self._context.configs
        values = {}
        for name, given in sorted(topic.configs.items()):
            value = changed_value(resource, ConfigChange(name=name, value=given), None, rules)
            if value is not None:
                values[name] = value
        rules.check_together(scope_of(resource), values)
        return [ConfigRecord(resource=resource, name=name, value=value) for name, value in values.items()]

    def _place(self, count: int, replication_factor: int) -> list[Replicas]:
        placer = TopicPlacer(self._nodes, self._tally)
        return [placer.place(replication_factor) for _ in range(count)]

    def _new_id(self) -> TopicId:
        """Random, never all zeros, which means "no topic" in Kafka's protocol."""
        return TopicId((self._context.random.getrandbits(128) | 1).to_bytes(16, "big"))


def check_partition_count(count: int, limit: int) -> None:
    """InvalidPartitionsError unless 1 <= count <= limit."""
    if count < 1:
        raise InvalidPartitionsError(f"{count} partitions: a topic needs at least 1", field="partitions", limit=1)
    if count > limit:
        raise InvalidPartitionsError(
            f"{count} partitions exceed the limit of one request ({limit}): create fewer, then add the others",
            field="partitions",
            limit=limit,
        )


def check_replication_factor(replication_factor: int, live: int) -> None:
    """InvalidReplicationFactorError unless 1 <= replication_factor <= live nodes."""
    if replication_factor < 1:
        raise InvalidReplicationFactorError(
            "Replication factor must be at least 1", field="replication_factor", limit=1
        )
    if replication_factor > REPLICATION_FACTOR_MAX:
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor}: must be at most {REPLICATION_FACTOR_MAX}",
            field="replication_factor",
            limit=REPLICATION_FACTOR_MAX,
        )
    if replication_factor > live:
        raise InvalidReplicationFactorError(
            f"replication factor {replication_factor} is larger than the number of active nodes, {live}",
            field="replication_factor",
            limit=live,
        )
