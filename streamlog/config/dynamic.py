"""Changes of settings while the cluster runs (IncrementalAlterConfigs, KIP-339): validation and new values.

Three kinds of resources have dynamic settings: a topic, one node, all nodes. Here is which settings each can change,
their values, and how APPEND and SUBTRACT change a list; the controller applies the change. Texts are stored in
canonical form (`true`, not ` TRUE `).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from streamlog.config.effective import Config, Layer, node_config, topic_config
from streamlog.config.kinds import ListOf, shown
from streamlog.config.node_rules import NODE_RULES, TOPIC_RULES
from streamlog.config.rule import Rule
from streamlog.config.setting import Setting, Update
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.topic_settings import TOPIC
from streamlog.config.unknown import require
from streamlog.errors import InvalidConfigError


class Scope(enum.Enum):
    """The resource whose setting is changed."""

    TOPIC = "topic"
    NODE = "node"
    ALL_NODES = "all nodes"


class Operation(enum.Enum):
    SET = 0
    DELETE = 1  # back to the default
    APPEND = 2  # to a list
    SUBTRACT = 3  # from a list


class ConfigChange(Struct, frozen=True, kw_only=True):
    """`value` is not used by DELETE; for APPEND and SUBTRACT it is items separated by commas."""

    name: str
    operation: Operation = Operation.SET
    value: str = ""


def changed_value(scope: Scope, name: str, operation: Operation, given: str, old: str | None) -> str | None:
    """The canonical text to store after `operation` with `given`; None: no value.

    `old`: the resource's own value; None: APPEND and SUBTRACT start from the default. DELETE is allowed for any name
    that has a value, so that values of a newer release can be removed. InvalidConfigError, with `field` and `limit`.
    """
    match operation:
        case Operation.DELETE:
            if old is None:
                require(TOPIC if scope is Scope.TOPIC else NODE, name)
            return None
        case Operation.SET:
            return check_value(scope, name, given)
        case Operation.APPEND | Operation.SUBTRACT:
            return _changed_list(_changeable(scope, name), operation, given, old)


def check_value(scope: Scope, name: str, text: str) -> str:
    """The canonical form of `text`. InvalidConfigError: the resource has no such setting, or the value is invalid."""
    setting = _changeable(scope, name)
    return setting.format(setting.parse(text))


def check_together(scope: Scope, values: Mapping[str, str], layers: Sequence[Layer] = ()) -> None:
    """Checks the rules between all `values` that a resource has after a change, over the node's `layers`.

    For a node, `layers` include `values`. InvalidConfigError.
    """
    if scope is Scope.TOPIC:
        _check_rules(topic_config(values, layers), TOPIC_RULES)
    else:
        _check_rules(node_config(layers), NODE_RULES)


def _changeable(scope: Scope, name: str) -> Setting[Any]:
    if scope is Scope.TOPIC:
        return require(TOPIC, name)
    setting = require(NODE, name)
    if setting.update is Update.READ_ONLY:
        raise InvalidConfigError(
            f"{name} cannot be changed while the node runs: set it in server.properties and restart the node",
            field=name,
            limit=setting.update.value,
        )
    if scope is Scope.NODE and setting.update is Update.CLUSTER_WIDE:
        raise InvalidConfigError(
            f"{name} cannot differ between nodes: change it for all nodes", field=name, limit=setting.update.value
        )
    return setting


def _changed_list(setting: Setting[Any], operation: Operation, given: str, old: str | None) -> str:
    if not isinstance(setting.kind, ListOf):
        raise InvalidConfigError(
            f"{setting.name} is not a list: set it instead", field=setting.name, limit=setting.kind.type_name
        )
    separator = setting.kind.separator
    items = _items(setting, setting.format(setting.default) if old is None else old)
    named = _items(setting, given)
    if operation is Operation.APPEND:
        text = separator.join(dict.fromkeys([*items, *named]))
    else:
        text = separator.join(item for item in items if item not in named)
    try:
        return setting.format(setting.parse(text))
    except InvalidConfigError as e:
        done = "append" if operation is Operation.APPEND else "subtract"
        raise InvalidConfigError(f"{done} {shown(given)}: {e}", **e.details) from None


def _items(setting: Setting[Any], text: str) -> tuple[str, ...]:
    separator = setting.kind.separator if isinstance(setting.kind, ListOf) else ","
    return tuple(item.strip() for item in text.split(separator) if item.strip())


def _check_rules(config: Config, rules: Sequence[Rule]) -> None:
    for rule in rules:
        complaint = None if rule.hint else rule.complaint(config)
        if complaint is not None:
            raise InvalidConfigError(complaint, field=rule.setting.name, limit=rule.setting.kind.limit)
