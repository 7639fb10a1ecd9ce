"""Subject name strategies, as Confluent's: the subject under which the schema of a record is registered.

topic_name           TOPIC-key, TOPIC-value: one schema for each of a topic; the default
record_name          the schema's full name: the same in all topics, several in one topic
topic_record_name    TOPIC-FULLNAME: several schemas in a topic, each for this topic alone
"""

from __future__ import annotations

from typing import Protocol

from streamlog.errors import SerializationError


class SubjectStrategy(Protocol):
    def __call__(self, topic: str, name: str, /, *, is_key: bool) -> str:
        """`name`: the schema's full name; empty where it has none."""
        ...


def topic_name(topic: str, name: str, /, *, is_key: bool) -> str:
    return f"{topic}-key" if is_key else f"{topic}-value"


def record_name(topic: str, name: str, /, *, is_key: bool) -> str:
    """SerializationError."""
    if not name:
        raise SerializationError("the schema has no name, which this subject name strategy needs", topic=topic)
    return name


def topic_record_name(topic: str, name: str, /, *, is_key: bool) -> str:
    """SerializationError."""
    return f"{topic}-{record_name(topic, name, is_key=is_key)}"
