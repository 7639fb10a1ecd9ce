"""What clients write to and read from a node, by topic.

The counters last as long as the process and belong to the node, not to a leadership: when a leader moves, the next one
counts at its own node, so that the sum of rates over all nodes is right. A deleted topic's counters are removed.
"""

from __future__ import annotations

from collections.abc import Iterator


class TopicTraffic:
    """Of one topic on one node."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "records_in",
        "refused_batches",
        "replicated_in",
        "replicated_out",
        "skipped_batches",
    )

    def __init__(self) -> None:
        self.records_in = 0  # appended as leader, control records included
        self.bytes_in = 0  # as they are stored
        self.bytes_out = 0  # read as leader, for consumers
        self.replicated_in = 0  # bytes appended as follower
        self.replicated_out = 0  # bytes sent as leader, to followers
        self.refused_batches = 0  # appends refused as leader: corrupt bytes, invalid records
        self.skipped_batches = 0  # passed over for clients of Subscribe and Consume that ask for that


class Traffic:
    """Owned by the node's partition table."""

    def __init__(self) -> None:
        self._by_topic: dict[str, TopicTraffic] = {}

    def of(self, topic: str) -> TopicTraffic:
        found = self._by_topic.get(topic)
        if found is None:
            found = self._by_topic[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """The topic was deleted."""
        self._by_topic.pop(topic, None)

    def __iter__(self) -> Iterator[tuple[str, TopicTraffic]]:
        return iter(sorted(self._by_topic.items()))
