"""Valid topic names (REQUIREMENTS "Topics"). A name becomes part of a directory's name."""

from __future__ import annotations

import re
from typing import Final

from streamlog.errors import InvalidTopicError
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.model import TOPIC_CHARACTER

# `topic-partition` and the suffix of a deleted directory must fit into the 255 bytes of a file name.
NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(f"{TOPIC_CHARACTER}+")


def check_name(name: str, *, strict: bool, internal: bool = False) -> str | None:
    """A warning if the name should be avoided, or None. InvalidTopicError if it is invalid.

    `strict` refuses what otherwise makes a warning; `internal` allows the cluster's own names.
    """
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        raise InvalidTopicError(
            f"a topic name must have 1 to {NAME_LENGTH_MAX} characters, this one has {len(name)}",
            field="name",
            limit=NAME_LENGTH_MAX,
        )
    if name in (".", "..") or _LEGAL.fullmatch(name) is None:
        raise InvalidTopicError(
            f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed, and it cannot be "
            "'.' or '..'",
            field="name",
            limit=TOPIC_CHARACTER,
        )
    if internal:
        return None
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"topic {name!r} is internal: the cluster creates it when needed", field="name")
    if "." not in name and "_" not in name:
        return None
    if strict:
        raise InvalidTopicError(
            f"topic name {name!r}: this cluster refuses '.' and '_' (topic.names.strict)", field="name"
        )
    return (
        "Topics whose names differ only in '.' and '_' collide, in metric names and here: "
        "it is best to use one of the two, not both."
    )
