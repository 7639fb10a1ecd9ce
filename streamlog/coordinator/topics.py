"""The cluster's topics for the group coordinator, from one metadata image.

Patterns are RE2's: matching takes linear time whatever a client sends, where one heartbeat could keep a backtracking
engine busy for hours. The matches of a pattern are cached, and after a change of topics only new names are matched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import re2

from streamlog.errors import InvalidRegularExpressionError
from streamlog.groups.assignors.problem import TopicShape
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.model import TopicId

PATTERNS_MAX: Final = 1_000
"""Number of cached patterns; beyond it the one goes that has not been asked for the longest."""
NEW_PATTERN_BYTES_MAX: Final = 1 << 16
"""Size of one compiled pattern, which the time of a match grows with: 0.5 ms for a name at most. Ordinary ones, such as
alternatives of 1,000 characters or [a-z.-]{1,249}, are smaller.
"""
_PATTERN_BYTES_MAX: Final = 1 << 20
"""The same of one that a stored group has."""


class ImageTopics:
    """groups.decision.Topics from one image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._names: tuple[tuple[str, TopicId], ...] | None = None  # built for the first pattern
        self._matching: dict[str, tuple[TopicId, ...]] = {}  # the last that was asked for stands last
        self._before: dict[str, tuple[TopicId, ...]] = {}  # the same before the last change of topics
        self._added: tuple[tuple[str, TopicId], ...] = ()  # by that change
        self._removed: frozenset[TopicId] = frozenset()

    def following(self, image: MetadataImage, delta: MetadataDelta | None) -> tuple[ImageTopics, bool]:
        """The topics of the next image, and whether they differ for groups: in topics or partition counts. Leaders
        and ISRs change often and do not matter here.
        """
        topics = ImageTopics(image)
        if delta is None:
            return topics, True
        if not self._differs(image, delta):
            topics._names, topics._matching = self._names, self._matching
            topics._before, topics._added, topics._removed = self._before, self._added, self._removed
            return topics, False
        # Patterns that no group has asked for since the change before are left behind.
        changed = [topic_id for topic_id, _ in delta.changed_topics()]
        topics._before = self._matching
        topics._added = _named(image, (one for one in changed if one not in self._image.topics))
        topics._removed = frozenset(one for one in changed if one not in image.topics)
        return topics, True

    def _differs(self, image: MetadataImage, delta: MetadataDelta) -> bool:
        before = self._image.topics
        for topic_id, _ in delta.changed_topics():
            old, new = before.get(topic_id), image.topics.get(topic_id)
            if old is None or new is None or len(old.partitions) != len(new.partitions):
                return True
        return False

    def id_of(self, name: str) -> TopicId | None:
        topic = self._image.topic_named(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: TopicId) -> str | None:
        topic = self._image.topics.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, topic_id: TopicId) -> int:
        return len(self._image.topics[topic_id].partitions)

    def shape_of(self, topic_id: TopicId) -> TopicShape:
        topic = self._image.topics[topic_id]
        brokers = self._image.brokers
        racks = tuple(
            frozenset(
                broker.rack for replica in p.replicas if (broker := brokers.get(replica)) is not None and broker.rack
            )
            for p in topic.partitions
        )
        return TopicShape(partition_count=len(topic.partitions), racks=racks if any(racks) else ())

    def check_pattern(self, pattern: str) -> None:
        if pattern not in self._matching:
            _compiled(pattern, NEW_PATTERN_BYTES_MAX)

    def matching(self, pattern: str) -> tuple[TopicId, ...]:
        found = self._matching.pop(pattern, None)
        if found is None:
            before = self._before.pop(pattern, None)
            found = self._all_matching(pattern) if before is None else self._still_matching(pattern, before)
            if len(self._matching) >= PATTERNS_MAX:
                del self._matching[next(iter(self._matching))]
        self._matching[pattern] = found
        return found

    def _all_matching(self, pattern: str) -> tuple[TopicId, ...]:
        wanted = _compiled(pattern)
        if self._names is None:
            self._names = _named(self._image, self._image.topics)
        return tuple(topic_id for name, topic_id in self._names if wanted.fullmatch(name))

    def _still_matching(self, pattern: str, before: tuple[TopicId, ...]) -> tuple[TopicId, ...]:
        kept = before if self._removed.isdisjoint(before) else tuple(one for one in before if one not in self._removed)
        if not self._added:
            return kept
        wanted = _compiled(pattern)
        return kept + tuple(topic_id for name, topic_id in self._added if wanted.fullmatch(name))


def _named(image: MetadataImage, topic_ids: Iterable[TopicId]) -> tuple[tuple[str, TopicId], ...]:
    """Those of the image that patterns may match."""
    topics = ((topic_id, image.topics.get(topic_id)) for topic_id in topic_ids)
    return tuple((topic.name, one) for one, topic in topics if topic is not None and topic.name not in INTERNAL_TOPICS)


def _compiled(pattern: str, bytes_max: int = _PATTERN_BYTES_MAX) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = bytes_max
    try:
        return re2.compile(pattern, options)
    except re2.error as e:
        reason = e.args[0] if e.args else "?"
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegularExpressionError(
            f"{pattern[:100]!r} is not a valid regular expression: {reason}", field="subscription.pattern"
        ) from e
