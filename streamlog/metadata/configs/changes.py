"""Runtime changes of the configs of topics and nodes (IncrementalAlterConfigs, KIP-339).

The config layer defines which configs exist and their values (`ConfigRules`); this module decides their consequences.
The changes of one resource are atomic.

Two configs bear on elections, and their consequences belong to the change:
- `min.insync.replicas`: a partition that now has enough in-sync replicas has no ELR any more (SEMANTICS 4). It must be
  cleared before the new value applies, since records committed after that are missing from those replicas; so the ELRs
  are cleared in the same command, or in earlier ones.
- `unclean.leader.election.enable`: leaderless partitions may get a leader at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from streamlog.config import ConfigChange, Operation, Scope
from streamlog.errors import BrokerIdNotRegisteredError, InvalidConfigError, InvalidRequestError, StreamlogError
from streamlog.metadata.configs.rules import MIN_INSYNC_REPLICAS, Rulebook
from streamlog.metadata.decision import BATCH_RECORDS, ConfigRules, ControllerContext, MetadataDecision, Then
from streamlog.metadata.image.delta import look_ahead
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.partitions.settle import eligibility_lost, settled
from streamlog.metadata.records import (
    ALL_BROKERS,
    ConfigRecord,
    ConfigTarget,
    ConfigTargetType,
    PartitionChangeRecord,
)
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS

# Kafka's limit on the length of a value.
VALUE_LENGTH_MAX: Final = 32_767
CHANGES_PER_REQUEST_MAX: Final = BATCH_RECORDS // 2


class ResourceChange(Struct, frozen=True, kw_only=True):
    resource: ConfigTarget
    changes: tuple[ConfigChange, ...]


class AlterConfigs(Struct, frozen=True, kw_only=True):
    resources: tuple[ResourceChange, ...]
    validate_only: bool = False


class ConfigResult(Struct, frozen=True, kw_only=True):
    resource: ConfigTarget
    error: StreamlogError | None = None  # if set, none of the resource's changes was made


def alter_configs(
    command: AlterConfigs, image: MetadataImage, context: ControllerContext
) -> MetadataDecision[tuple[ConfigResult, ...]]:
    """InvalidRequestError for the whole request; in each result UnknownTopicOrPartitionError,
    BrokerIdNotRegisteredError, InvalidConfigError.
    """
    _check_request(command)
    records: list[ConfigRecord] = []
    results = []
    for wanted in command.resources:
        try:
            changed = _resource_changed(wanted, image, context.configs)
            _check_internal(wanted.resource, changed, context)
            records += changed
            results.append(ConfigResult(resource=wanted.resource))
        except StreamlogError as error:
            results.append(ConfigResult(resource=wanted.resource, error=error))
    response = tuple(results)
    if command.validate_only:
        return MetadataDecision(response=response)
    losing = list(islice(_eligibility_lost(records, image, context), BATCH_RECORDS // 2 + 1))
    if len(losing) > BATCH_RECORDS // 2:
        return MetadataDecision(response=response, records=tuple(losing), then=Then.AGAIN)
    decision = settled(image, context, [*losing, *records], response)
    if any(
        record.name == MIN_INSYNC_REPLICAS and record.resource.type is ConfigTargetType.BROKER for record in records
    ):
        # The settings here have the old value, which counts where none replaces it.
        return replace(decision, then=Then.SETTLE)
    return decision


def scope_of(resource: ConfigTarget) -> Scope:
    """The resource in the config layer's terms."""
    if resource.type is ConfigTargetType.TOPIC:
        return Scope.TOPIC
    return Scope.ALL_NODES if resource == ALL_BROKERS else Scope.NODE


def changed_value(resource: ConfigTarget, change: ConfigChange, old: str | None, rules: ConfigRules) -> str | None:
    """The text to store, None for none; InvalidConfigError if the resource cannot have that config or value."""
    name, given = change.name, change.value
    if len(given) > VALUE_LENGTH_MAX:
        raise InvalidConfigError(
            f"the value of {name} has {len(given)} characters; the limit is {VALUE_LENGTH_MAX}",
            field=name,
            limit=VALUE_LENGTH_MAX,
        )
    value = rules.changed_value(scope_of(resource), name, change.operation, given, old)
    if value is not None and len(value) > VALUE_LENGTH_MAX:
        raise InvalidConfigError(
            f"{name} would have {len(value)} characters; the limit is {VALUE_LENGTH_MAX}",
            field=name,
            limit=VALUE_LENGTH_MAX,
        )
    return value


def _check_request(command: AlterConfigs) -> None:
    resources = [wanted.resource for wanted in command.resources]
    if len(frozenset(resources)) != len(resources):
        raise InvalidRequestError("a resource is named twice in one request", field="resources")
    count = sum(len(wanted.changes) for wanted in command.resources)
    if count > CHANGES_PER_REQUEST_MAX:
        raise InvalidRequestError(
            f"{count} changes of configs in one request; the limit is {CHANGES_PER_REQUEST_MAX}",
            field="changes",
            limit=CHANGES_PER_REQUEST_MAX,
        )


def _resource_changed(wanted: ResourceChange, image: MetadataImage, rules: ConfigRules) -> list[ConfigRecord]:
    removes = all(change.operation is Operation.DELETE for change in wanted.changes)
    if not (removes and image.config(wanted.resource)):  # an earlier release has stored some for node '01'
        check_exists(wanted.resource, image)
    names = [change.name for change in wanted.changes]
    if len(frozenset(names)) != len(names):
        raise InvalidConfigError("a config is changed twice in one request", field=names[0])
    values: dict[str, str] = dict(image.config(wanted.resource).items())
    records = []
    for change in wanted.changes:
        old = values.pop(change.name, None)
        new = changed_value(wanted.resource, change, old, rules)
        if new is not None:
            values[change.name] = new
        if new != old:
            records.append(ConfigRecord(resource=wanted.resource, name=change.name, value=new))
    rules.check_together(scope_of(wanted.resource), values)
    return records


def _check_internal(resource: ConfigTarget, records: list[ConfigRecord], context: ControllerContext) -> None:
    """InvalidConfigError if an internal topic would get another config than the cluster's own: one second of retention
    would delete all offsets of all groups. A change back to the cluster's own config is always possible.
    """
    internal = INTERNAL_TOPICS.get(resource.name) if resource.type is ConfigTargetType.TOPIC else None
    if internal is None:
        return
    own = internal.all_configs(context.settings)
    for record in records:
        if record.value != own.get(record.name):
            right = f"{record.name}={own[record.name]}" if record.name in own else f"no {record.name} of its own"
            raise InvalidConfigError(
                f"topic {resource.name!r} is internal: its configs cannot be changed, it has {right}",
                field=record.name,
                limit=own.get(record.name, ""),
            )


def check_exists(resource: ConfigTarget, image: MetadataImage) -> None:
    if resource.type is ConfigTargetType.TOPIC:
        image.require_topic(resource.name)
    elif resource != ALL_BROKERS and all(str(broker_id) != resource.name for broker_id in image.brokers):
        # As the node writes it: configs of node '01' would be stored, and apply to none.
        raise BrokerIdNotRegisteredError(f"{resource.name!r} is not the id of a registered node", field="resource")


def _eligibility_lost(
    records: list[ConfigRecord], image: MetadataImage, context: ControllerContext
) -> Iterator[PartitionChangeRecord]:
    """Under the new configs."""
    if all(record.name != MIN_INSYNC_REPLICAS for record in records):
        return
    yield from eligibility_lost(image, Rulebook(look_ahead(image, records), context.settings))
