"""Patterns of topics: what is computed, how often, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamlog.coordinator import topics
from streamlog.coordinator.topics import PATTERNS_MAX, ImageTopics
from streamlog.errors import InvalidRegularExpressionError
from streamlog.metadata.image.image import EMPTY_IMAGE


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
