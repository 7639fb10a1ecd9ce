"""Topics of a list or a query, as a caller may see them.

A topic that is not to be seen is missing from a list; named in a query, it is refused the same way whether it exists or
not; by its id it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamlog.errors import UnknownTopicIdError
from streamlog.ports import CallGuard
from streamlog.services.common.paging import TopicEntry


def listed(entries: Iterable[TopicEntry], guard: CallGuard | None) -> Iterable[TopicEntry]:
    """Of all topics, those that may be seen."""
    if guard is None:
        return entries
    return (entry for entry in entries if guard.topic_refusal("DESCRIBE", entry.name) is None)


def queried(entries: list[TopicEntry], names: Iterable[str], guard: CallGuard | None) -> list[TopicEntry]:
    """Of the topics that a query names by `names` or by id. By rising name and id."""
    if guard is None:
        return entries
    named = frozenset(names)
    shown = (_shown(entry, named, guard) for entry in entries)
    return sorted(shown, key=lambda entry: (entry.name, entry.topic_id))


def _shown(entry: TopicEntry, named: frozenset[str], guard: CallGuard) -> TopicEntry:
    if not entry.name:
        return entry
    refusal = guard.topic_refusal("DESCRIBE", entry.name)
    if refusal is None:
        return entry
    guard.named_refused(entry.name)
    if entry.name in named:
        return TopicEntry(entry.name, b"", error=refusal)
    unknown = UnknownTopicIdError(
        f"no topic has the id {entry.topic_id.hex()}; it may have been deleted", field="topic_id"
    )
    return TopicEntry("", entry.topic_id, error=unknown)
