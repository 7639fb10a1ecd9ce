"""Loads a configuration from a properties file, `--override k=v`, or arguments in a program.

    file < overrides; the last one of duplicate names wins

All errors are reported together in one InvalidConfigError, each with its file, line, name, value and range. Warnings:
an unknown name, with a suggestion; a Kafka setting that has no effect here, with the reason; a duplicate name; a value
that is valid but inadvisable. Pure: the caller reads the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, field

from streamlog.config.client_rules import CLIENT_RULES, CONSUMER_RULES, PRODUCER_RULES
from streamlog.config.effective import Config, Layer, Source, plain_config
from streamlog.config.kinds import format_value, shown
from streamlog.config.node_rules import NODE_RULES
from streamlog.config.properties import parse_properties
from streamlog.config.references import ReadReference, has_reference, is_of_providers, resolved
from streamlog.config.rule import Rule
from streamlog.config.setting import HIDDEN, Setting, Table
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.not_yet import NOT_YET, WARNED
from streamlog.config.unknown import explain
from streamlog.errors import InvalidConfigError

Values: TypeAlias = Mapping[str, object]
NOTHING: Final[Values] = {}
OVERRIDE: Final = "--override"
ARGUMENT: Final = "argument"
# Of problems and warnings in one message; a file of another program would fill the screen.
REPORTED_MAX: Final = 50
# Searching for the nearest name takes about a millisecond.
GUESSES_MAX: Final = 20


class PropertiesFile(Struct, frozen=True):
    name: str  # in error messages
    text: str

    def __repr__(self) -> str:
        """Without the text, which may hold secrets."""
        return f"PropertiesFile({self.name!r})"


class Loaded(Struct, frozen=True, kw_only=True):
    """`given`: the texts of known settings: the static layer, below the dynamic ones."""

    config: Config
    given: Mapping[str, str]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        """Without the values, which may be secrets."""
        return f"Loaded(given={sorted(self.given)}, warnings={self.warnings})"


class _Given(Struct, frozen=True):
    text: str
    place: str
    hidden: bool = False  # a reference stood here
    unread: bool = False  # which could not be read: reported already


class _Sources(Struct, frozen=True, kw_only=True):
    """Nearest last."""

    file: PropertiesFile | None = None
    overrides: Sequence[str] = ()
    values: Values = field(default_factory=dict)
    read: ReadReference | None = None  # of references; None: they are text


def load_node(
    file: PropertiesFile | None = None, overrides: Sequence[str] = (), *, read: ReadReference | None = None
) -> Loaded:
    """`overrides`: `name=value` each. `read`: for `${file:...}` and `${env:...}` (`references`). InvalidConfigError."""
    return _load(NODE, NODE_RULES, _Sources(file=file, overrides=overrides, read=read))


def load_producer(values: Values = NOTHING, *, file: PropertiesFile | None = None) -> Loaded:
    """`values`: setting -> text, or a value of its type; None: not given. InvalidConfigError."""
    return _load(PRODUCER, PRODUCER_RULES, _Sources(file=file, values=values))


def load_consumer(values: Values = NOTHING, *, file: PropertiesFile | None = None) -> Loaded:
    """As `load_producer`."""
    return _load(CONSUMER, CONSUMER_RULES, _Sources(file=file, values=values))


def load_admin(values: Values = NOTHING, *, file: PropertiesFile | None = None) -> Loaded:
    """As `load_producer`."""
    return _load(ADMIN, CLIENT_RULES, _Sources(file=file, values=values))


def _load(table: Table, rules: Sequence[Rule], sources: _Sources) -> Loaded:
    warnings: list[str] = []
    problems: list[InvalidConfigError] = []
    given = _read(table, sources, warnings, problems)
    if sources.read is not None:
        given = _resolved(given, sources.read, problems)
    unknown = [name for name in given if table.get(name) is None]
    for number, name in enumerate(unknown):
        warnings.append(f"{given[name].place}: {explain(table, name, guess=number < GUESSES_MAX)}")
    known = {name: one for name, one in given.items() if table.get(name) is not None}
    problems += _check_each(table, known)
    # A warning (an unknown name) may be the reason why a setting is missing.
    _raise_all(problems, warnings)
    static = {name: one.text for name, one in known.items()}
    config = plain_config(table, [Layer(Source.STATIC_BROKER_CONFIG, static)])
    _check_rules(config, rules, known, warnings)
    for one in config:
        name = one.setting.name
        if name in known and one.setting.sensitive and known[name].place == OVERRIDE and not known[name].hidden:
            warnings.append(
                f"{OVERRIDE}: other users see {name} in the list of processes: write it into a file, or give "
                f"{name}=${{file:PATH:KEY}}"
            )
        if name in known and name in WARNED and one.value != one.setting.default:
            warnings.append(f"{known[name].place}: {name} has no effect in this release: {NOT_YET[name]}")
    return Loaded(config=config, given=static, warnings=_shortened(warnings))


def _read(
    table: Table, sources: _Sources, warnings: list[str], problems: list[InvalidConfigError]
) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    if sources.file is not None:
        _read_file(sources.file, given, warnings)
    _read_overrides(sources.overrides, given, problems)
    for name, value in sources.values.items():
        if value is not None:
            setting = table.get(name)
            # A list is accepted as a tuple.
            value = tuple(value) if isinstance(value, list) else value
            given[name] = _Given(format_value(value) if setting is None else setting.format(value), ARGUMENT)
    return given


def _resolved(
    given: Mapping[str, _Given], read: ReadReference, problems: list[InvalidConfigError]
) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for name, one in given.items():
        if is_of_providers(name):
            continue
        found[name] = one
        if has_reference(one.text):
            try:
                found[name] = _Given(resolved(one.text, read), one.place, hidden=True)
            except ValueError as error:
                problems.append(InvalidConfigError(f"{one.place}: {name}: {error}", field=name))
                found[name] = _Given(one.text, one.place, hidden=True, unread=True)
    return found


def _read_file(file: PropertiesFile, given: dict[str, _Given], warnings: list[str]) -> None:
    for one in parse_properties(file.text, file.name):
        place = f"{file.name}:{one.line}"
        if one.key in given:
            warnings.append(f"{place}: {shown(one.key)} is also set in {given[one.key].place}; this value is used")
        given[one.key] = _Given(one.value, place)


def _read_overrides(overrides: Sequence[str], given: dict[str, _Given], problems: list[InvalidConfigError]) -> None:
    for text in overrides:
        name, separator, value = text.partition("=")
        if separator and name.strip():
            given[name.strip()] = _Given(value, OVERRIDE)
        else:
            # The text may be a secret without its name, so it is not quoted.
            problems.append(InvalidConfigError(f"{OVERRIDE}: must be name=value", field=OVERRIDE, limit="name=value"))


def _check_each(table: Table, known: Mapping[str, _Given]) -> list[InvalidConfigError]:
    problems = []
    for setting in (*table, *table.further(known)):
        one = known.get(setting.name)
        if one is None:
            if setting.required:
                message = f"{setting.name} must be set (range {setting.kind.limit}): {setting.doc}"
                problems.append(InvalidConfigError(message, field=setting.name, limit=setting.kind.limit))
            continue
        if one.unread:
            continue
        try:
            setting.parse(one.text)
        except InvalidConfigError as e:
            text = f"{setting.name}={HIDDEN}: is not valid (range {setting.kind.limit})" if one.hidden else str(e)
            problems.append(InvalidConfigError(f"{one.place}: {text}", **e.details))
    return problems


def _check_rules(config: Config, rules: Sequence[Rule], known: Mapping[str, _Given], warnings: list[str]) -> None:
    problems = []
    for rule in rules:
        complaint = rule.complaint(config)
        if complaint is None:
            continue
        line = _placed(rule.setting, known, complaint)
        if rule.hint:
            warnings.append(line)
        else:
            problems.append(InvalidConfigError(line, field=rule.setting.name, limit=rule.setting.kind.limit))
    _raise_all(problems, warnings)


def _placed(setting: Setting[object], known: Mapping[str, _Given], complaint: str) -> str:
    one = known.get(setting.name)
    return complaint if one is None else f"{one.place}: {complaint}"


def _shortened(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - REPORTED_MAX
    return (*lines[:REPORTED_MAX], f"and {more} more") if more > 0 else tuple(lines)


def _raise_all(problems: Sequence[InvalidConfigError], warnings: Sequence[str]) -> None:
    """The error's details are those of the first problem."""
    if problems:
        message = "\n".join(_shortened([*(str(problem) for problem in problems), *warnings]))
        raise InvalidConfigError(message, **problems[0].details)
