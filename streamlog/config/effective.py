"""The effective value of a setting that is given in several places, highest precedence first.

    a node's setting:    per-broker dynamic > cluster-wide dynamic > server.properties, --override > default
    a topic's setting:   the topic's own > the node's synonyms, through the same layers > default

Within one layer a topic's synonyms have the precedence of `topic_defaults`, so a cluster-wide log.retention.hours
overrides a log.retention.ms in server.properties, as in Kafka.

A layer has texts, as given and as stored in the metadata. They are validated when they are given (`load`, `dynamic`);
a value that a node of another release accepted and this one does not raises InvalidConfigError here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from streamlog.config.setting import HIDDEN, Setting, Table
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.topic_defaults import SYNONYMS, Synonym
from streamlog.config.settings.topic_settings import TOPIC
from streamlog.errors import InvariantError

T = TypeVar("T")

NO_VALUES: Final[Mapping[str, str]] = {}


class Source(enum.Enum):
    """The source of a value, with Kafka's names (DescribeConfigs)."""

    DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"  # of this node
    DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"  # of all nodes
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"  # server.properties, --override; of a client: its arguments
    DEFAULT_CONFIG = "DEFAULT_CONFIG"


class Layer(Struct, frozen=True):
    """The values of one source: name -> text. Unknown names are ignored."""

    source: Source
    values: Mapping[str, str]

    def __repr__(self) -> str:
        """Without the values, which may be secrets."""
        return f"Layer({self.source.value}, {sorted(self.values)})"


def node_layers(
    static: Mapping[str, str],
    *,
    cluster: Mapping[str, str] = NO_VALUES,
    node: Mapping[str, str] = NO_VALUES,
) -> tuple[Layer, ...]:
    """The layers of a node, highest precedence first: the two dynamic resources in the metadata, its file."""
    return (
        Layer(Source.DYNAMIC_BROKER_CONFIG, node),
        Layer(Source.DYNAMIC_DEFAULT_BROKER_CONFIG, cluster),
        Layer(Source.STATIC_BROKER_CONFIG, static),
    )


class ConfigSynonym(Struct, frozen=True):
    """A value given for a setting in one source (Kafka's ConfigSynonym)."""

    name: str  # the synonym used there
    text: str  # as given there, in the synonym's unit; HIDDEN where it is a secret
    source: Source


class Effective(Struct, frozen=True, kw_only=True):
    """The effective value, and all given values, of which it is the first."""

    setting: Setting[Any]
    value: object
    source: Source
    synonyms: tuple[ConfigSynonym, ...]

    def __repr__(self) -> str:
        return f"Effective({self.setting.name}={self.text}, {self.source.value})"

    @property
    def text(self) -> str | None:
        """For people: None where there is no value, HIDDEN where it is a secret."""
        if self.value is None:
            return None
        return HIDDEN if self.setting.sensitive else self.setting.format(self.value)


class Config:
    """The effective values of one table. Immutable; made by the functions below."""

    def __init__(self, table: Table, values: Sequence[Effective]) -> None:
        self.table: Final = table
        self._values = {value.setting.name: value for value in values}

    def __getitem__(self, setting: Setting[T]) -> T:
        """Typed by the setting. InvariantError for a setting of another table."""
        return cast(T, self.effective(setting).value)

    def __iter__(self) -> Iterator[Effective]:
        """In the table's order."""
        return iter(self._values.values())

    def effective(self, setting: Setting[Any]) -> Effective:
        found = self._values.get(setting.name)
        if found is None or found.setting is not setting:
            raise InvariantError(f"{setting.name} is not a setting of a {self.table.title}")
        return found

    def has(self, setting: Setting[Any]) -> bool:
        """Whether a setting whose name has a part that the user chooses is given."""
        return setting.name in self._values

    def is_given(self, setting: Setting[Any]) -> bool:
        return self.effective(setting).source is not Source.DEFAULT_CONFIG


def plain_config(table: Table, layers: Sequence[Layer]) -> Config:
    """The Config of a node, or of a client with one layer. InvalidConfigError."""
    further = table.further({name: None for layer in layers for name in layer.values})
    return Config(table, [_plain(setting, layers) for setting in (*table, *further)])


def node_config(layers: Sequence[Layer]) -> Config:
    """InvalidConfigError."""
    return plain_config(NODE, layers)


def node_value(setting: Setting[T], layers: Sequence[Layer]) -> T:
    """One value of a node, without resolving the others. InvalidConfigError."""
    return cast(T, _plain(setting, layers).value)


def topic_config(own: Mapping[str, str], layers: Sequence[Layer]) -> Config:
    """The Config of a topic with its `own` values (possibly none), on a node with these layers. InvalidConfigError."""
    return Config(TOPIC, [_of_topic(setting, own, layers) for setting in TOPIC])


def _plain(setting: Setting[Any], layers: Sequence[Layer]) -> Effective:
    found = [_Found.of(Synonym(setting), layer) for layer in layers if setting.name in layer.values]
    return _nearest(setting, found, default=setting)


def _of_topic(setting: Setting[Any], own: Mapping[str, str], layers: Sequence[Layer]) -> Effective:
    synonyms = SYNONYMS[setting.name]
    found = [_Found.of(Synonym(setting), Layer(Source.DYNAMIC_TOPIC_CONFIG, own))] if setting.name in own else []
    found += [
        _Found.of(synonym, layer) for layer in layers for synonym in synonyms if synonym.setting.name in layer.values
    ]
    return _nearest(setting, found, default=synonyms[-1].setting)


class _Found(Struct, frozen=True):
    value: object  # in the unit of the requested setting
    synonym: ConfigSynonym

    @classmethod
    def of(cls, synonym: Synonym, layer: Layer) -> _Found:
        setting = synonym.setting
        text = layer.values[setting.name]
        described = ConfigSynonym(setting.name, HIDDEN if setting.sensitive else text, layer.source)
        return cls(synonym.in_unit(setting.parse(text)), described)


def _nearest(setting: Setting[Any], found: Sequence[_Found], default: Setting[Any]) -> Effective:
    """`default`: the setting whose name is reported with the default."""
    synonyms = [one.synonym for one in found]
    if setting.default is not None:
        synonyms.append(ConfigSynonym(default.name, default.format(default.default), Source.DEFAULT_CONFIG))
    nearest = found[0] if found else None
    return Effective(
        setting=setting,
        value=nearest.value if nearest else setting.default,
        source=nearest.synonym.source if nearest else Source.DEFAULT_CONFIG,
        synonyms=tuple(synonyms),
    )
