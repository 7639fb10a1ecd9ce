"""Options of format("streamlog"), as one table: names, values, and where each applies.

    text by name --Options.parse--> Options(known names, valid values, no contradictions)

Names are those of format("kafka"), case-insensitive. Unknown, invalid and contradictory options are refused when the
source is created, at `load()`; options that do not apply to a stream, or to a batch query, as soon as the kind of query
is known, before anything is read of the cluster. References of settings are read (streamlog.config.providers).

`streamlog.NAME` is the client setting NAME (docs/configuration.md); `kafka.bootstrap.servers` is accepted for
`streamlog.bootstrap.servers`, so that a query for Kafka runs unchanged.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from enum import Flag, auto
from typing import Any, Final

from msgspec import Struct

from streamlog.config import load_admin, load_consumer, load_producer
from streamlog.config.references import is_of_providers
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config_providers import with_chosen_values
from streamlog.errors import InvalidConfigError
from streamlog.spark.failures import OptionError


class Use(Flag):
    """Where an option applies."""

    STREAM = auto()
    BATCH = auto()
    SINK = auto()
    READ = STREAM | BATCH


class Option(Struct, frozen=True, kw_only=True):
    name: str
    use: Use
    parse: Callable[[str], object]  # ValueError with the reason
    default: str  # as in docs/spark.md
    doc: str


def _count(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < minimum:
            raise ValueError(f"must be a whole number of at least {minimum}")
        return int(text)

    return parse


def _truth(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.strip().lower() == "true"


_DURATION: Final = re.compile(r"\s*([0-9]{1,12})\s*(ms|s|m|min|h|d)?\s*")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a duration such as 500ms, 30s, 15m")
    return int(match[1]) * _UNIT_MS[match[2]]


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ValueError("must name a topic")
    return names


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def _sink_id(text: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", text):
        raise ValueError("must be 1 to 100 characters of a-z, A-Z, 0-9, '.', '_', '-'")
    return text


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(found, dict) or not found:
        raise ValueError('must be a JSON object such as {"topic": {"0": 23}}')
    return found


def _assignment(text: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in _object(text).items():
        if not isinstance(partitions, list) or not partitions or not all(_is_number(one) for one in partitions):
            raise ValueError('must be JSON such as {"topic": [0, 1]}')
        found[topic] = tuple(sorted(set(partitions)))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _by_partition(minimum: int) -> Callable[[str], dict[str, dict[int, int]]]:
    def parse(text: str) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for topic, offsets in _object(text).items():
            if not isinstance(offsets, dict) or not offsets:
                raise ValueError(f'for topic {topic} must be an object of partitions, such as {{"0": 23}}')
            for partition, number in offsets.items():
                valid = isinstance(number, int) and not isinstance(number, bool) and number >= minimum
                if not partition.isdecimal() or not valid:
                    raise ValueError(f"for topic {topic}, partition {partition} must be a number of at least {minimum}")
                found.setdefault(topic, {})[int(partition)] = number
        return found

    return parse


_OFFSETS: Final = _by_partition(-2)


def _place(text: str) -> str | dict[str, dict[int, int]]:
    if text.strip().lower() in ("earliest", "latest"):
        return text.strip().lower()
    if not text.strip().startswith("{"):
        raise ValueError("must be earliest, latest, or JSON of offsets")
    return _OFFSETS(text)


def _strategy(text: str) -> str:
    if text.strip().lower() not in ("error", "latest"):
        raise ValueError("must be error or latest")
    return text.strip().lower()


_TABLE: Final = (
    Option(name="subscribe", use=Use.READ, parse=_topics, default="", doc="Topics to read, separated by commas."),
    Option(name="subscribePattern", use=Use.READ, parse=_pattern, default="",
           doc="A regular expression that matches whole names of topics, also of topics created later."),
    Option(name="assign", use=Use.READ, parse=_assignment, default="",
           doc='Partitions to read, as JSON: {"orders": [0, 1]}.'),
    Option(name="startingOffsets", use=Use.READ, parse=_place, default="latest (stream), earliest (batch)",
           doc='Where to start: earliest, latest (stream), or JSON {"orders": {"0": 23, "1": -2}}; -2 is earliest, -1 '
               "latest. For a stream, only at its first start: later it resumes from its checkpoint."),
    Option(name="startingTimestamp", use=Use.READ, parse=_count(0), default="",
           doc="Start at the first record of this time (ms since 1970) or later. Overrides the other two."),
    Option(name="startingOffsetsByTimestamp", use=Use.READ, parse=_by_partition(0), default="",
           doc='A time for each partition: {"orders": {"0": 1763733600000}}. Overrides startingOffsets.'),
    Option(name="startingOffsetsByTimestampStrategy", use=Use.READ, parse=_strategy, default="error",
           doc="Where a partition has no record of that time or later: error, or latest: start at its end."),
    Option(name="endingOffsets", use=Use.BATCH, parse=_place, default="latest",
           doc="Where to end, exclusive: latest, or JSON of offsets; -1 is latest."),
    Option(name="endingTimestamp", use=Use.BATCH, parse=_count(0), default="",
           doc="End before the first record of this time or later. Overrides the other two."),
    Option(name="endingOffsetsByTimestamp", use=Use.BATCH, parse=_by_partition(0), default="",
           doc="A time for each partition. Overrides endingOffsets."),
    Option(name="failOnDataLoss", use=Use.READ, parse=_truth, default="true",
           doc="Whether the query fails where records to be read were lost: deleted by retention or with their topic, "
               "or truncated. false: they are skipped, and a warning is logged."),
    Option(name="maxOffsetsPerTrigger", use=Use.STREAM, parse=_count(1), default="",
           doc="Maximum number of offsets in a micro-batch, in proportion to the partitions' backlogs."),
    Option(name="maxBytesPerTrigger", use=Use.STREAM, parse=_count(1), default="",
           doc="Approximate maximum size of a micro-batch, by the mean size of the topics' records on disk."),
    Option(name="minOffsetsPerTrigger", use=Use.STREAM, parse=_count(1), default="",
           doc="Wait until there are so many offsets, or until maxTriggerDelay has passed."),
    Option(name="maxTriggerDelay", use=Use.STREAM, parse=_duration_ms, default="15m",
           doc="How long minOffsetsPerTrigger may delay a micro-batch."),
    Option(name="minPartitions", use=Use.READ, parse=_count(1), default="",
           doc="Minimum number of tasks: large ranges are split by offset; small ones are combined"
               " (to 8 MB or 100,000 records a task) down to this number."),
    Option(name="maxRecordsPerPartition", use=Use.READ, parse=_count(1), default="",
           doc="Maximum number of offsets in a task; ranges are not combined then."),
    Option(name="includeHeaders", use=Use.READ, parse=_truth, default="false",
           doc="Whether there is a column headers: array<struct<key: string, value: binary>>."),
    Option(name="topic", use=Use.SINK, parse=_name, default="",
           doc="The topic to write to; overrides column topic."),
    Option(name="includeTimestamp", use=Use.SINK, parse=_truth, default="false",
           doc="Whether column timestamp becomes the records' timestamp. false: the time of writing."),
    Option(name="sinkId", use=Use.SINK, parse=_sink_id, default="the query's id (stream)",
           doc="For a batch: a name under which it is written once, however often it is run."),
    Option(name="sinkBatch", use=Use.SINK, parse=_count(0), default="",
           doc="For a batch in foreachBatch, with sinkId: the number of the micro-batch. It is written unless this"
               " number or a higher one was written under that sinkId."),
)  # fmt: skip

TABLE: Final[Mapping[str, Option]] = {option.name.lower(): option for option in _TABLE}
# Spark's own options, which it passes on.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname"})
_PREFIX: Final = "streamlog."
_SERVERS: Final = "bootstrap.servers"
_KAFKA_SERVERS: Final = "kafka.bootstrap.servers"
_SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
# Settings that a user cannot set, and why.
_FIXED: Final = {
    "group.id": "the query keeps its own offsets, in its checkpoint",
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the query keeps its own offsets, in its checkpoint",
    "transactional.id": "the sink names its transactions",
    "transaction.two.phase.commit.enable": "the sink sets it",
    "enable.idempotence": "the sink is always idempotent",
    "acks": "the sink always writes with acks=all",
}


class Options:
    """Valid options. Immutable; sent to every task."""

    def __init__(self, values: Mapping[str, object], client: Mapping[str, str]) -> None:
        self._values = dict(values)
        self.client = dict(client)  # settings of clients, without their prefix

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """OptionError for the first invalid one, in the table's order."""
        texts = {name.lower(): str(text) for name, text in given.items() if name.lower() not in _SPARKS}
        client = _client_settings(texts)
        values: dict[str, object] = {}
        for name in texts:
            if name not in TABLE:
                raise OptionError(name, _unknown(name))
        for name, option in TABLE.items():
            if name in texts:
                try:
                    values[option.name] = option.parse(texts[name])
                except ValueError as error:
                    raise OptionError(option.name, f"{_shown(texts[name])} {error}") from None
        _check_together(values)
        return cls(values, client)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """None: not given."""
        return self._values.get(name)

    def number(self, name: str) -> int | None:
        value = self._values.get(name)
        return value if isinstance(value, int) else None

    def truth(self, name: str) -> bool:
        return bool(self._values.get(name, TABLE[name.lower()].default == "true"))

    def check_use(self, use: Use, what: str) -> None:
        """OptionError for an option that does not apply. `what`: the kind of query, for the message."""
        for name in self._values:
            option = TABLE[name.lower()]
            if not option.use & use:
                raise OptionError(name, f"does not apply to {what}")
        if use is Use.SINK:
            return
        if not any(name in self._values for name in _SUBSCRIPTIONS):
            raise OptionError("subscribe", "is missing: give one of subscribe, subscribePattern, assign")
        if use is Use.BATCH and self._values.get("startingOffsets") == "latest":
            raise OptionError("startingOffsets", "cannot be latest for a batch: it would read nothing")
        if use is Use.BATCH and self._values.get("endingOffsets") == "earliest":
            raise OptionError("endingOffsets", "cannot be earliest: it would read nothing")
        if use is Use.BATCH:
            self._check_bounds()

    def _check_bounds(self) -> None:
        for name, number, word in (("startingOffsets", -1, "latest"), ("endingOffsets", -2, "earliest")):
            offsets = self._values.get(name)
            if isinstance(offsets, dict) and any(number in one.values() for one in offsets.values()):
                raise OptionError(name, f"cannot be {number} ({word}) for a batch: it would read nothing")


def _client_settings(texts: dict[str, str]) -> dict[str, str]:
    """Removes the settings of clients from `texts`."""
    if _KAFKA_SERVERS in texts:
        servers = texts.pop(_KAFKA_SERVERS)
        if texts.setdefault(_PREFIX + _SERVERS, servers) != servers:
            raise OptionError("kafka.bootstrap.servers", "contradicts streamlog.bootstrap.servers: give one of them")
    client = {name: texts.pop(name) for name in list(texts) if name.startswith(_PREFIX)}
    client = {name.removeprefix(_PREFIX): text for name, text in client.items()}
    if not client.get(_SERVERS, "").strip():
        raise OptionError("streamlog.bootstrap.servers", "is missing: give addresses of nodes, host:port,...")
    for name in client:
        if name in _FIXED:
            raise OptionError(_PREFIX + name, f"cannot be set: {_FIXED[name]}")
        if not is_of_providers(name) and not any(table.get(name) for table in (CONSUMER, PRODUCER, ADMIN)):
            raise OptionError(_PREFIX + name, "is not a setting of clients; see docs/configuration.md")
    for table, load in ((CONSUMER, load_consumer), (PRODUCER, load_producer), (ADMIN, load_admin)):
        try:
            load(with_chosen_values(settings_for(table, client)))
        except InvalidConfigError as error:
            field = error.details.get("field")
            raise OptionError(f"{_PREFIX}{field}" if field else _PREFIX + "*", error.message) from None
    return client


def settings_for(table: Any, client: Mapping[str, str]) -> dict[str, str]:
    """The settings that a client of this table knows, and which references in them it may read."""
    return {name: text for name, text in client.items() if is_of_providers(name) or table.get(name)}


def _check_together(values: Mapping[str, object]) -> None:
    given = [name for name in _SUBSCRIPTIONS if name in values]
    if len(given) > 1:
        raise OptionError(given[1], f"contradicts {given[0]}: give one of them")
    for name, partner in (
        ("maxTriggerDelay", ("minOffsetsPerTrigger",)),
        ("startingOffsetsByTimestampStrategy", ("startingTimestamp", "startingOffsetsByTimestamp")),
        ("sinkBatch", ("sinkId",)),
    ):
        if name in values and not any(one in values for one in partner):
            raise OptionError(name, f"has no effect without {' or '.join(partner)}")
    least, most = values.get("minOffsetsPerTrigger"), values.get("maxOffsetsPerTrigger")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise OptionError("minOffsetsPerTrigger", f"{least} exceeds maxOffsetsPerTrigger={most}")
    if "maxOffsetsPerTrigger" in values and "maxBytesPerTrigger" in values:
        raise OptionError("maxBytesPerTrigger", "contradicts maxOffsetsPerTrigger: give one of them")


def _unknown(name: str) -> str:
    if name == "path":
        return "is not supported: give one of subscribe, subscribePattern, assign"
    if name.startswith("kafka."):
        return f"is not known: settings of clients start with streamlog., as streamlog.{name.removeprefix('kafka.')}"
    near = difflib.get_close_matches(name[:100], TABLE, n=1)
    guess = f"; did you mean {TABLE[near[0]].name}?" if near else ""
    return f"is not known{guess}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
