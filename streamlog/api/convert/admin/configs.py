"""Configs of topics and nodes: streamlog/v1/admin.proto to the controller's command, and its results back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from streamlog.api.convert.admin.topics import config_name, config_value
from streamlog.api.convert.fields import distinct, each, enum_value, inside, text, together
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.config import ConfigChange, Effective, Operation, Source, Update
from streamlog.errors import StreamlogError
from streamlog.metadata.configs.changes import (
    CHANGES_PER_REQUEST_MAX,
    AlterConfigs,
    ConfigResult,
    ResourceChange,
)
from streamlog.metadata.records import ConfigTarget, ConfigTargetType

RESOURCES_PER_REQUEST_MAX: Final = 1_000
# A topic's name, or a number.
_RESOURCE_NAME_LENGTH_MAX: Final = 249

_TYPES: Final[Mapping[int, ConfigTargetType]] = {
    pb.CONFIG_RESOURCE_TYPE_TOPIC: ConfigTargetType.TOPIC,
    pb.CONFIG_RESOURCE_TYPE_BROKER: ConfigTargetType.BROKER,
}
_OPERATIONS: Final[Mapping[int, Operation]] = {
    pb.CONFIG_OPERATION_SET: Operation.SET,
    pb.CONFIG_OPERATION_DELETE: Operation.DELETE,
    pb.CONFIG_OPERATION_APPEND: Operation.APPEND,
    pb.CONFIG_OPERATION_SUBTRACT: Operation.SUBTRACT,
}
_SOURCES: Final[Mapping[Source, pb.ConfigSource.ValueType]] = {
    Source.DEFAULT_CONFIG: pb.CONFIG_SOURCE_DEFAULT,
    Source.STATIC_BROKER_CONFIG: pb.CONFIG_SOURCE_STATIC_BROKER,
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG: pb.CONFIG_SOURCE_DYNAMIC_ALL_BROKERS,
    Source.DYNAMIC_BROKER_CONFIG: pb.CONFIG_SOURCE_DYNAMIC_BROKER,
    Source.DYNAMIC_TOPIC_CONFIG: pb.CONFIG_SOURCE_TOPIC,
}
# By Kafka's words for the types of values (streamlog.config.kinds).
_CONFIG_TYPES: Final[Mapping[str, pb.ConfigType.ValueType]] = {
    "boolean": pb.CONFIG_TYPE_BOOLEAN,
    "string": pb.CONFIG_TYPE_STRING,
    "int": pb.CONFIG_TYPE_INT,
    "long": pb.CONFIG_TYPE_LONG,
    "double": pb.CONFIG_TYPE_DOUBLE,
    "list": pb.CONFIG_TYPE_LIST,
    "password": pb.CONFIG_TYPE_PASSWORD,
}


def alter_configs(message: pb.AlterConfigsRequest) -> AlterConfigs:
    """InvalidRequestError."""
    together(
        (alteration.changes for alteration in message.alterations), "alterations", count_max=CHANGES_PER_REQUEST_MAX
    )
    resources = each(message.alterations, "alterations", _alteration, count_min=1, count_max=RESOURCES_PER_REQUEST_MAX)
    return AlterConfigs(resources=resources, validate_only=message.validate_only)


def _alteration(message: pb.ConfigAlteration) -> ResourceChange:
    with inside("resource"):
        resource = config_resource(message.resource)
    changes = each(message.changes, "changes", _change, count_min=1, count_max=CHANGES_PER_REQUEST_MAX)
    return ResourceChange(resource=resource, changes=changes)


def _change(message: pb.ConfigChange) -> ConfigChange:
    return ConfigChange(
        name=config_name(message.name),
        operation=enum_value(message.operation, _OPERATIONS, pb.ConfigOperation, "operation", Operation.SET),
        value=config_value(message.value),
    )


def altered(results: Iterable[ConfigResult]) -> pb.AlterConfigsResponse:
    response = pb.AlterConfigsResponse()
    for result in results:
        row = response.results.add(resource=resource_message(result.resource))
        if result.error is not None:
            row.error.CopyFrom(to_message(result.error))
    return response


def config_resource(message: pb.ConfigResource) -> ConfigTarget:
    """InvalidRequestError. Existence is not checked."""
    return ConfigTarget(
        enum_value(message.type, _TYPES, pb.ConfigResourceType, "type"),
        text(message.name, "name", length_max=_RESOURCE_NAME_LENGTH_MAX),
    )


def resource_message(resource: ConfigTarget) -> pb.ConfigResource:
    is_topic = resource.type is ConfigTargetType.TOPIC
    number = pb.CONFIG_RESOURCE_TYPE_TOPIC if is_topic else pb.CONFIG_RESOURCE_TYPE_BROKER
    return pb.ConfigResource(type=number, name=resource.name)


def describe_configs(message: pb.DescribeConfigsRequest) -> tuple[tuple[ConfigTarget, ...], frozenset[str]]:
    """The resources, and the names of configs (empty: all). InvalidRequestError."""
    resources = each(message.resources, "resources", config_resource, count_min=1, count_max=RESOURCES_PER_REQUEST_MAX)
    distinct([(one.type.name, one.name) for one in resources], "resources")
    names = each(message.names, "names", lambda name: config_name(name, ""), count_max=CHANGES_PER_REQUEST_MAX)
    return resources, frozenset(names)


def described(resource: ConfigTarget, values: Iterable[Effective]) -> pb.ConfigDescription:
    entries = [_entry(value, resource) for value in values]
    return pb.ConfigDescription(
        resource=resource_message(resource), entries=sorted(entries, key=lambda entry: entry.name)
    )


def not_described(resource: ConfigTarget, error: StreamlogError) -> pb.ConfigDescription:
    return pb.ConfigDescription(resource=resource_message(resource), error=to_message(error))


def _entry(value: Effective, resource: ConfigTarget) -> pb.ConfigEntry:
    setting = value.setting
    entry = pb.ConfigEntry(
        name=setting.name,
        source=_SOURCES[value.source],
        type=_CONFIG_TYPES[setting.kind.type_name],
        read_only=resource.type is ConfigTargetType.BROKER and setting.update is Update.READ_ONLY,
        sensitive=setting.sensitive,
        valid_values=setting.kind.limit,
        documentation=setting.doc,
    )
    if value.value is not None and not setting.sensitive:
        entry.value = setting.format(value.value)
    if setting.default is not None and not setting.sensitive:
        entry.default_value = setting.format(setting.default)
    return entry
