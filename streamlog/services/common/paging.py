"""Pages of long responses: which part of which topics comes next.

A page token is the start of the next page: the topic by name and id, and the partition. It refers to no state of the
node, so any node accepts it, and topics that are created or deleted between two pages do not shift the others.

Lists of other entries have a token that is the first entry of the next page, as its message (`entry_token`).

A page ends at the requested number of entries, or before its message could exceed 1 MiB: gRPC clients refuse more than
4 MiB by default, and the lengths of names vary.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from streamlog.api.convert.fields import amount
from streamlog.api.service import REQUEST_BYTES_MAX, Request, Response, parse
from streamlog.errors import InvalidRequestError, StreamlogError
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.image.sorted_map import SortedMap
from streamlog.metadata.records import Partition
from streamlog.model import TopicId

PAGE_BYTES: Final = 1 << 20
PAGE_ENTRIES_MAX: Final = 10_000
_TOKEN_LENGTH_MAX: Final = 512
# Upper bounds in a message: ids, counts and tags of a topic and of a partition; one replica in the six lists of a
# partition.
_TOPIC_BYTES: Final = 64
_PARTITION_BYTES: Final = 64
_REPLICA_BYTES: Final = 30


class PageStart(NamedTuple):
    """Ordered as the response: by name, then by id (topics that are requested by an unknown id have no name)."""

    name: str
    topic_id: bytes
    partition: int


BEGINNING: Final = PageStart("", b"", 0)


class TopicEntry(Struct, frozen=True):
    """One topic of a response. Has either `topic` or `error`."""

    name: str  # empty: requested by an unknown id
    topic_id: bytes  # empty: requested by an unknown name
    topic: Topic | None = None
    error: StreamlogError | None = None
    extra_bytes: int = 0  # of what else the message has about the topic


class TopicPart(NamedTuple):
    """The part of an entry that is on the page."""

    entry: TopicEntry
    partitions: range


def page_size(asked: int, *, default: int) -> int:
    return amount(asked, "page_size", default=default, high=PAGE_ENTRIES_MAX)


def parse_token(token: str) -> PageStart:
    """InvalidRequestError if it is not one that a node has returned."""
    partition, _, rest = token.partition(":")
    topic_id, _, name = rest.partition(":")
    if not token:
        return BEGINNING
    if len(token) <= _TOKEN_LENGTH_MAX and partition.isascii() and partition.isdecimal():
        try:
            return PageStart(name, bytes.fromhex(topic_id), int(partition))
        except ValueError:
            pass
    raise _invalid_token()


def _invalid_token() -> InvalidRequestError:
    return InvalidRequestError(
        "page_token is invalid: pass next_page_token of the previous response unchanged, or leave it empty",
        field="page_token",
    )


def to_token(place: PageStart | None) -> str:
    """Empty: no further page."""
    return "" if place is None else f"{place.partition}:{place.topic_id.hex()}:{place.name}"


def entry_token(first: Response) -> str:
    """Of the page that begins with this entry."""
    return base64.urlsafe_b64encode(first.SerializeToString(deterministic=True)).decode()


def parse_entry_token(token: str, entry_type: type[Request]) -> Request | None:
    """None: the beginning. InvalidRequestError."""
    if not token:
        return None
    try:
        return parse(entry_type, base64.b64decode(token, altchars=b"-_", validate=True), REQUEST_BYTES_MAX)
    except (ValueError, StreamlogError):
        raise _invalid_token() from None


def take(entries: Iterable[TopicEntry], begin: PageStart, count_max: int) -> tuple[list[TopicPart], PageStart | None]:
    """The parts of one page, and the start of the next one. `entries` by rising name and id. An entry counts as many as
    it has partitions, and at least one.
    """
    parts: list[TopicPart] = []
    room, bytes_left = count_max, PAGE_BYTES
    for entry in entries:
        here = (entry.name, entry.topic_id)
        if here < begin[:2]:
            continue
        first = begin.partition if here == begin[:2] else 0
        bytes_left -= len(entry.name) + entry.extra_bytes + _TOPIC_BYTES
        if parts and (room <= 0 or bytes_left < 0):
            return parts, PageStart(*here, first)
        stop, used = _fitting(entry.topic, first, room, bytes_left)
        bytes_left -= used
        room -= max(1, stop - first)
        parts.append(TopicPart(entry, range(first, stop)))
        if entry.topic is not None and stop < len(entry.topic.partitions):
            return parts, PageStart(*here, stop)
    return parts, None


def _fitting(topic: Topic | None, first: int, room: int, bytes_left: int) -> tuple[int, int]:
    """One past the last partition that fits, and an upper bound of their bytes. The first one always fits."""
    if topic is None or first >= len(topic.partitions):
        return first, 0
    stop, used = first, 0
    while stop < len(topic.partitions) and stop - first < room:
        size = partition_bytes(topic.partitions[stop])
        if stop > first and used + size > bytes_left:
            break
        stop, used = stop + 1, used + size
    return stop, used


def partition_bytes(partition: Partition) -> int:
    """Upper bound of its message."""
    return _PARTITION_BYTES + _REPLICA_BYTES * len(partition.replicas)


class TopicNames:
    """All topics by rising name: sorted when topics were created or deleted, not for every page."""

    def __init__(self) -> None:
        self._ids: SortedMap[str, TopicId] | None = None  # of the image that `_topics` was made from
        self._topics: Sequence[tuple[str, TopicId]] = ()

    def of(self, image: MetadataImage) -> Sequence[tuple[str, TopicId]]:
        # The image orders them by collision key, in which '.' is '_': not the order of names.
        if self._ids is not image.topic_ids:
            named = ((image.topics[topic_id].name, topic_id) for topic_id in image.topic_ids.values())
            self._ids, self._topics = image.topic_ids, tuple(sorted(named))
        return self._topics
