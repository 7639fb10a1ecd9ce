"""Patterns of topics: what is computed, how often, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.coordinator import topics
from streamlog.coordinator.topics import PATTERNS_MAX, ImageTopics
from streamlog.errors import InvalidRegularExpressionError
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.delta import MetadataDelta
from streamlog.metadata.image.image import EMPTY_IMAGE, MetadataImage
from streamlog.metadata.records import (
    MetadataRecord,
    MetadataVersionRecord,
    Partition,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from streamlog.model import BrokerId, PartitionId, RaftIndex
from tests.broker.rig import topic_id

NODE = BrokerId(1)
PARTITION = Partition(replicas=(NODE,), isr=(NODE,), leader=NODE)


def test_a_pattern_that_is_asked_for_stays_known_however_many_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache was cleared once it was full: then a decision computed the topics of all its members again."""
    compiled: list[str] = []
    compile_one = topics._compiled

    def counted(pattern: str) -> Any:
        compiled.append(pattern)
        return compile_one(pattern)

    monkeypatch.setattr(topics, "_compiled", counted)
    known = ImageTopics(EMPTY_IMAGE)
    for n in range(3 * PATTERNS_MAX):
        known.matching("orders-.*")
        known.matching(f"x{n}")
    assert compiled.count("orders-.*") == 1
    assert len(known._matching) == PATTERNS_MAX


def test_a_new_pattern_may_not_be_large_and_those_of_stored_groups_stay() -> None:
    """27 characters with nested repetitions took two seconds of the loop with 1,000 topics."""
    known = ImageTopics(EMPTY_IMAGE)
    nested = "(?:(?:(?:.?){10}){10}){10}z"
    with pytest.raises(InvalidRegularExpressionError, match="too large"):
        known.check_pattern(nested)
    assert known.matching(nested) == ()
    for ordinary in ("|".join(f"orders-{n:04}" for n in range(83)), "(?i)[a-z0-9._-]{1,249}", r"\w{1,249}", ".*"):
        known.check_pattern(ordinary)


def changed(image: MetadataImage, *records: MetadataRecord) -> tuple[MetadataImage, MetadataDelta]:
    delta = MetadataDelta(image)
    delta.replay(records, RaftIndex(image.index + 1))
    return delta.apply(), delta


def created(name: str, number: int) -> tuple[MetadataRecord, MetadataRecord]:
    return (
        TopicRecord(topic_id=topic_id(number), name=name),
        PartitionRecord(topic_id=topic_id(number), partition_id=PartitionId(0), partition=PARTITION),
    )


def test_a_change_of_topics_matches_new_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pattern was matched with the names of all topics again: 100 patterns and 2,000 topics took a second."""
    matched: list[tuple[str, str]] = []
    compile_one = topics._compiled

    class Counted:
        def __init__(self, pattern: str) -> None:
            self.pattern = pattern

        def fullmatch(self, name: str) -> Any:
            matched.append((self.pattern, name))
            return compile_one(self.pattern).fullmatch(name)

    monkeypatch.setattr(topics, "_compiled", Counted)
    image, _ = changed(EMPTY_IMAGE, MetadataVersionRecord(level=METADATA_VERSION_MAX))
    image, _ = changed(image, *(one for n in range(20) for one in created(f"a{n}", n)))
    known = ImageTopics(image)
    assert len(tuple(known.matching("a.*"))) == 20
    steps = [
        (*created("a20", 20), *created("b", 21)),
        (RemoveTopicRecord(topic_id=topic_id(3)),),
        (PartitionRecord(topic_id=topic_id(20), partition_id=PartitionId(1), partition=PARTITION),),
        (RemoveTopicRecord(topic_id=topic_id(20)), *created("a3", 22), *created("__consumer_offsets", 23)),
    ]
    for step in steps:
        matched.clear()
        image, delta = changed(image, *step)
        known, matters = known.following(image, delta)
        assert matters
        image, delta = changed(image)
        known, matters = known.following(image, delta)
        assert not matters
        found = known.matching("a.*")
        assert set(matched) <= {("a.*", "a20"), ("a.*", "b"), ("a.*", "a3")}
        assert sorted(found) == sorted(ImageTopics(image).matching("a.*"))
    assert sorted(known.matching(".")) == [topic_id(21)], "a pattern that was not known before"
    known, _ = known.following(image, None)
    assert len(known.matching("a.*")) == 20
