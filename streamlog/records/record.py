"""A record, as read from a log."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from streamlog.model import Offset

# Kafka says that a header's key is UTF-8. Other bytes become lone surrogates ("surrogateescape") and are written
# back as they were, so that compaction never changes a record. A value of None is null.
Header: TypeAlias = tuple[str, bytes | None]
Headers: TypeAlias = tuple[Header, ...]


class Record(NamedTuple):
    """One record. A tuple, because a consumer creates millions of them a second.

    `offset` and `timestamp` are absolute; the timestamp is in ms since 1970, -1: none. A key or value of None is
    null, which is not the same as empty: a null value is a tombstone in a compacted topic.
    """

    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
