"""Replica placement (SEMANTICS 12): pure arithmetic over nodes and tallies, without randomness.

Replicas are chosen one by one, always the best by these criteria, most important first:

    the leader        fewest leaders of this topic on the node, then in its rack; a rack other than the last leader's;
                      fewest replicas of this topic; fewest leaders, then replicas, of all topics
    each follower     the rack that this partition uses least; fewest replicas of this topic, and then most leaders (the
                      others will get replicas as leaders); least often together with this leader; fewest replicas of
                      all topics

Of the followers, the one that was first least often is first: so the leaderships of a failed node move to many others.

Ties are broken in an order in which racks alternate, rotated by one each round. So leaders per node differ by at most
one; replicas of a partition are on distinct nodes, and on distinct racks if there are enough; replicas per node differ
by at most one without racks, by at most two with racks of equal size. The new partitions of a growing topic even it
out. The topic counts more than the cluster: a node that has just joined gets its share of a new topic, not all of it.

Placing P partitions of R replicas on N nodes examines P * R * N candidates, about a microsecond each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import Role
from streamlog.metadata.records import Broker, Replicas
from streamlog.model import BrokerId, TopicId


def candidates(image: MetadataImage) -> list[Broker]:
    """The nodes that new replicas may go to: live, not stopping, not being drained."""
    return [broker for broker in image.brokers.values() if broker.active and not broker.draining]


class Tally:
    """How many leaders and replicas each node has, of a topic or of all topics. Updated as replicas are placed."""

    def __init__(self) -> None:
        self.leaders: dict[BrokerId, int] = {}
        self.replicas: dict[BrokerId, int] = {}

    @classmethod
    def of_cluster(cls, image: MetadataImage) -> Tally:
        tally = cls()
        for broker_id in image.brokers:
            tally.leaders[broker_id] = image.roles.count(Role.PREFERRED, broker_id)
            tally.replicas[broker_id] = image.roles.count(Role.REPLICA, broker_id)
        return tally

    @classmethod
    def of_topic(cls, image: MetadataImage, topic_id: TopicId) -> Tally:
        tally = cls()
        for broker_id in image.brokers:
            tally.leaders[broker_id] = image.roles.count_of_topic(Role.PREFERRED, broker_id, topic_id)
            tally.replicas[broker_id] = image.roles.count_of_topic(Role.REPLICA, broker_id, topic_id)
        return tally

    def add_leader(self, broker_id: BrokerId) -> None:
        self.leaders[broker_id] = self.leaders.get(broker_id, 0) + 1
        self.add_replica(broker_id)

    def add_replica(self, broker_id: BrokerId) -> None:
        self.replicas[broker_id] = self.replicas.get(broker_id, 0) + 1


class _Node:
    """A node that may get replicas, with the counts that are compared for every replica."""

    __slots__ = ("broker_id", "leaders", "order", "rack", "replicas", "topic_leaders", "topic_replicas")

    def __init__(self, node: Broker, order: int, cluster: Tally, topic: Tally) -> None:
        self.broker_id = node.broker_id
        self.rack = node.rack
        self.order = order  # among all of them, racks alternating
        self.leaders = cluster.leaders.get(node.broker_id, 0)
        self.replicas = cluster.replicas.get(node.broker_id, 0)
        self.topic_leaders = topic.leaders.get(node.broker_id, 0)
        self.topic_replicas = topic.replicas.get(node.broker_id, 0)


class TopicPlacer:
    """Places the replicas of one topic. One owner, one use; also updates the cluster's tally."""

    def __init__(self, nodes: Sequence[Broker], cluster: Tally, topic: Tally | None = None) -> None:
        """`nodes` may get replicas; `topic` is the tally of the topic's existing partitions."""
        topic = topic or Tally()
        self._nodes = [_Node(node, order, cluster, topic) for order, node in enumerate(_alternating(nodes))]
        self._racks = {node.broker_id: node.rack for node in self._nodes}
        self._cluster = cluster
        self._rack_leaders = dict.fromkeys(self._racks.values(), 0)
        for node in self._nodes:
            self._rack_leaders[node.rack] += node.topic_leaders
        self._last_rack: str | None = None  # of the leader that was placed last
        self._placed = 0  # partitions placed here
        self._together: dict[tuple[BrokerId, BrokerId], int] = {}  # (leader, follower) -> partitions placed here
        self._heirs: dict[tuple[BrokerId, BrokerId], int] = {}  # (leader, first follower) -> partitions placed here

    def place(self, replication_factor: int) -> Replicas:
        """Replicas of one more partition, the preferred leader first. 0 < replication_factor <= number of nodes."""
        self._placed += 1
        leader = self._place_leader()
        followers = list(self.extend((leader,), replication_factor - 1)[1:])
        if followers:
            # The first follower leads if the leader fails: that, too, should be another one each time.
            heir = min(followers, key=lambda broker_id: self._heirs.get((leader, broker_id), 0))
            self._heirs[leader, heir] = self._heirs.get((leader, heir), 0) + 1
            followers.remove(heir)
            followers.insert(0, heir)
        return (leader, *followers)

    def extend(self, replicas: Replicas, count: int) -> Replicas:
        """The replicas with `count` more at the end. There must be that many other nodes."""
        for _ in range(count):
            replicas = (*replicas, self._place_follower(replicas))
        return replicas

    def _place_leader(self) -> BrokerId:
        rack_leaders, last_rack = self._rack_leaders, self._last_rack
        count, turn = len(self._nodes), self._placed // len(self._nodes)
        node = min(
            self._nodes,
            key=lambda node: (
                node.topic_leaders,
                rack_leaders[node.rack],
                node.rack == last_rack,
                node.topic_replicas,
                node.leaders,
                node.replicas,
                (node.order + turn) % count,
            ),
        )
        node.leaders += 1
        node.topic_leaders += 1
        rack_leaders[node.rack] += 1
        self._last_rack = node.rack
        self._cluster.add_leader(node.broker_id)
        self._count_replica(node)
        return node.broker_id

    def _place_follower(self, replicas: Replicas) -> BrokerId:
        leader, together = replicas[0], self._together
        used = [self._racks.get(broker_id) for broker_id in replicas]
        node = min(
            (node for node in self._nodes if node.broker_id not in replicas),
            key=lambda node: (
                used.count(node.rack),
                node.topic_replicas,
                -node.topic_leaders,
                together.get((leader, node.broker_id), 0),
                node.replicas,
                node.order,
            ),
        )
        together[leader, node.broker_id] = together.get((leader, node.broker_id), 0) + 1
        self._cluster.add_replica(node.broker_id)
        self._count_replica(node)
        return node.broker_id

    def _count_replica(self, node: _Node) -> None:
        node.replicas += 1
        node.topic_replicas += 1


def _alternating(nodes: Sequence[Broker]) -> list[Broker]:
    """By id within each rack, and one of each rack in turn. Nodes without a rack are in one together."""
    racks: dict[str, list[Broker]] = {}
    for node in sorted(nodes, key=lambda node: (node.rack, node.broker_id)):
        racks.setdefault(node.rack, []).append(node)
    return [node for row in zip_longest(*racks.values()) for node in row if node is not None]
