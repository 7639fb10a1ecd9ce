"""What a topic may be called (REQUIREMENTS "Topics"). A name becomes a directory, so nothing else is let through."""

from __future__ import annotations

import re
from typing import Final

from streamlog.errors import InvalidTopicError
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS

# `topic-partition` and the suffix of a deleted directory must fit into the 255 bytes of a file name.
NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str, *, strict: bool, internal: bool = False) -> str | None:
    """A warning, where the name is one to avoid, or None. InvalidTopicError where it is none.

    `strict` refuses what otherwise makes a warning; `internal` allows the cluster's own names.
    """
    if not 0 < len(name) <= NAME_LENGTH_MAX:
        raise InvalidTopicError(
            f"a topic name has 1 to {NAME_LENGTH_MAX} characters, this one has {len(name)}",
            field="name",
            limit=NAME_LENGTH_MAX,
        )
    if name in (".", "..") or _LEGAL.fullmatch(name) is None:
        raise InvalidTopicError(
            f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' may stand in it, and it cannot be "
            "'.' or '..'",
            field="name",
            limit="[a-zA-Z0-9._-]",
        )
    if internal:
        return None
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"topic {name!r} is the cluster's own: it makes it when it is needed", field="name")
    if "." not in name and "_" not in name:
        return None
    if strict:
        raise InvalidTopicError(
            f"topic name {name!r}: this cluster refuses '.' and '_' (topic.names.strict)", field="name"
        )
    return (
        "Topics whose names differ in '.' against '_' alone collide, in metric names and here: "
        "it is best to use one of the two, not both."
    )
