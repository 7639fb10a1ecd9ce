"""The file of rules and channels: TOML -> `AlarmSettings`, strictly validated. Pure; `rule_storage` has the disk.

    metrics = ["http://node1:9644/metrics"]   # for sync_latency
    defaults = true                           # false: without the default rules

    [rules.billing-lag]
    kind = "lag_records"
    above = 10_000
    groups = ["billing*"]
    for = "5m"
    channels = ["ops"]

    [channels.ops]
    type = "slack"
    url = "${env:SLACK_URL}"

An error names the rule or channel, the field and the reason; the first one of each rule and channel is reported. Edits
change the text of one table, and keep comments and order of everything else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

import tomlkit
from msgspec import Struct, field
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from streamlog.console.alarms.channels import Channel
from streamlog.console.alarms.durations import duration_text
from streamlog.console.alarms.rules import DEFAULT_RULES, KEEP_FIRING_FOR_S, KINDS, AlarmRule, RuleKind, Unit
from streamlog.console.alarms.settings.channel_fields import read_channel
from streamlog.console.alarms.settings.fields import FieldProblem, Fields
from streamlog.monitor import Severity

T = TypeVar("T")

RULES_MAX: Final = 500
CHANNELS_MAX: Final = 50
METRICS_MAX: Final = 100
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)


class RuleFileError(Exception):
    """`problems`: a sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class AlarmSettings(Struct, frozen=True, kw_only=True):
    """`rules`: the default ones too, as far as the file does not replace them."""

    rules: Mapping[str, AlarmRule] = field(default_factory=dict)
    own: frozenset[str] = frozenset()  # names of the rules that are in the file
    channels: Mapping[str, Channel] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()


DEFAULT_SETTINGS: Final = AlarmSettings(rules={rule.name: rule for rule in DEFAULT_RULES})


def read_settings(text: str) -> AlarmSettings:
    """RuleFileError."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RuleFileError([f"not TOML: {error}"]) from None
    problems: list[str] = []
    top = Fields(content)
    with_defaults = True
    metrics: tuple[str, ...] = ()
    try:
        with_defaults = top.boolean("defaults", True)
        metrics = top.urls("metrics", METRICS_MAX)
    except FieldProblem as problem:
        problems.append(str(problem))
    channels = _tables(top, "channels", "channel", CHANNELS_MAX, read_channel, problems)
    rules = _tables(top, "rules", "rule", RULES_MAX, read_rule, problems)
    problems += [f"{name}: unknown; the file has rules, channels, metrics, defaults" for name in top.unread]
    for rule in rules.values():
        problems += [
            f"rule {rule.name}: channels: there is no channel {name}" for name in rule.channels if name not in channels
        ]
    if problems:
        raise RuleFileError(problems)
    defaults = {rule.name: rule for rule in DEFAULT_RULES} if with_defaults else {}
    return AlarmSettings(rules={**defaults, **rules}, own=frozenset(rules), channels=channels, metrics=metrics)


def _tables(
    top: Fields, key: str, what: str, count_max: int, read: Callable[[str, Fields], T], problems: list[str]
) -> dict[str, T]:
    """[key.NAME] of the file."""
    found: dict[str, T] = {}
    tables = top.take(key, {})
    if not isinstance(tables, dict):
        problems.append(f"{key}: must be tables, such as [{key}.NAME]")
        return found
    if len(tables) > count_max:
        problems.append(f"{key}: {len(tables)} are given; the limit is {count_max}")
        return found
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            problems.append(f"{what} {name!r}: the name must be at most 64 letters, digits, '.', '_' and '-'")
        elif not isinstance(table, dict):
            problems.append(f"{what} {name}: must be a table, such as [{key}.{name}]")
        else:
            fields = Fields(table)
            try:
                found[name] = read(name, fields)
            except FieldProblem as problem:
                problems.append(f"{what} {name}: {problem}")
            else:
                problems += [f"{what} {name}: {one}: unknown field" for one in fields.unread]
    return found


def read_rule(name: str, fields: Fields) -> AlarmRule:
    """FieldProblem."""
    kind = RuleKind(fields.choice("kind", [one.value for one in RuleKind]))
    described = KINDS[kind]
    for filter_name in ("topics", "groups", "nodes"):
        if filter_name in fields and filter_name not in described.filters:
            raise FieldProblem(filter_name, f"{kind.value} has no such filter")
        if filter_name in described.required and filter_name not in fields:
            raise FieldProblem(filter_name, f'{kind.value} needs patterns of names, such as ["orders*"]')
    return AlarmRule(
        name=name,
        kind=kind,
        severity=Severity(fields.choice("severity", [one.value for one in Severity], Severity.WARNING.value)),
        above=_above(kind, fields),
        for_s=fields.duration("for", 60.0),
        keep_firing_for_s=fields.duration("keep_firing_for", KEEP_FIRING_FOR_S),
        topics=fields.texts("topics", ("*",)),
        groups=fields.texts("groups", ("*",)),
        nodes=fields.integers("nodes"),
        channels=fields.texts("channels", ()),
        enabled=fields.boolean("enabled", True),
    )


def _above(kind: RuleKind, fields: Fields) -> float:
    described = KINDS[kind]
    if described.unit is Unit.NONE:
        if "above" in fields:
            raise FieldProblem("above", f"{kind.value} has no threshold")
        return 0.0
    if "above" not in fields and described.above is None:
        raise FieldProblem("above", f"{kind.value} needs a threshold")
    if described.unit is Unit.SECONDS:
        return fields.duration("above", described.above)
    if described.unit is Unit.SHARE:
        return fields.number("above", described.above, 0.0, 1.0)
    return fields.number("above", described.above, 0, 1e15)


def with_rule(text: str, rule: AlarmRule) -> str:
    """The file's text with this rule in place of the one of its name, or at the end."""
    document = _document(text)
    rules = document.get("rules")
    if rules is None:
        rules = document["rules"] = tomlkit.table(is_super_table=True)
    old = rules.get(rule.name)
    new = tomlkit.inline_table() if isinstance(rules, InlineTable) else tomlkit.table()
    table = cast(Table, new if old is None else old)
    fields = _fields(rule)
    for key in [key for key in table if key not in fields]:
        del table[key]
    for key, value in fields.items():
        if table.get(key) != value:
            table[key] = value
    if old is None:
        rules[rule.name] = table
    return tomlkit.dumps(document)


def without_rule(text: str, name: str) -> str:
    document = _document(text)
    rules = document.get("rules")
    if rules is not None and name in rules:
        del rules[name]
    return tomlkit.dumps(document)


def _document(text: str) -> Any:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise RuleFileError([f"not TOML: {error}"]) from None


def _fields(rule: AlarmRule) -> dict[str, Any]:
    """As the file has them; without what is the default."""
    described = KINDS[rule.kind]
    fields: dict[str, Any] = {"kind": rule.kind.value, "severity": rule.severity.value}
    if not rule.enabled:
        fields["enabled"] = False
    if described.unit is Unit.SECONDS:
        fields["above"] = duration_text(rule.above)
    elif described.unit is not Unit.NONE:
        fields["above"] = int(rule.above) if rule.above == int(rule.above) else rule.above
    fields["for"] = duration_text(rule.for_s)
    if rule.keep_firing_for_s != KEEP_FIRING_FOR_S:
        fields["keep_firing_for"] = duration_text(rule.keep_firing_for_s)
    for name, default in (("topics", ("*",)), ("groups", ("*",)), ("nodes", ())):
        value = getattr(rule, name)
        if name in described.filters and (value != default or name in described.required):
            fields[name] = list(value)
    if rule.channels:
        fields["channels"] = list(rule.channels)
    return fields
