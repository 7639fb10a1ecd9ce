"""Explains an unknown name: why Kafka's setting has no effect here, whose setting it is, or which name is similar."""

from __future__ import annotations

from typing import Any, Final

from streamlog.config.kinds import shown
from streamlog.config.setting import GUESS_LENGTH_MAX, Setting, Table, alike
from streamlog.config.settings.client_settings import ADMIN, CONSUMER, PRODUCER
from streamlog.config.settings.kafka_only import why_not, why_not_family
from streamlog.config.settings.node_settings import NODE
from streamlog.config.settings.topic_defaults import SYNONYMS
from streamlog.config.settings.topic_settings import TOPIC
from streamlog.errors import InvalidConfigError

# Similar enough to be a typing error, among names of a family that has no effect here.
TYPO: Final = 0.93


def explain(table: Table, name: str, *, guess: bool = True) -> str:
    """A sentence or two about `name`, which is not in `table`. `guess=False` skips the search for the nearest name."""
    if len(name) > GUESS_LENGTH_MAX:
        return f"{shown(name)} is not a setting of {table.title}s"
    if name in SYNONYMS and table is NODE:
        return f"{name} is a setting of topics: the nodes' default for it is {SYNONYMS[name][0].setting.name}"
    of_topic = next((own for own, nodes in SYNONYMS.items() if any(s.setting.name == name for s in nodes)), None)
    if of_topic is not None and table is TOPIC:
        return f"{name} is a setting of nodes: a topic's is {of_topic}"
    owner = next((other.title for other in (NODE, TOPIC, PRODUCER, CONSUMER, ADMIN) if other.get(name)), None)
    if owner is not None and table is not NODE:
        return f"{name} is a setting of {owner}s, not of {table.title}s"
    nearest = table.nearest(name) if guess else None
    reason = why_not(name) or (None if nearest is not None and alike(name, nearest) >= TYPO else why_not_family(name))
    if reason is not None:
        return f"{name} has no effect here. {reason[0].upper()}{reason[1:]}"
    if owner is not None:
        return f"{name} is a setting of {owner}s, not of {table.title}s"
    return f"{shown(name)} is not a setting of {table.title}s" + (f"; did you mean {nearest}?" if nearest else "")


def require(table: Table, name: str) -> Setting[Any]:
    """The setting of that name. InvalidConfigError, with a suggestion."""
    found = table.get(name)
    if found is None:
        raise InvalidConfigError(explain(table, name), field=name[:GUESS_LENGTH_MAX])
    return found
