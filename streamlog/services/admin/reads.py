"""Lists and descriptions for operators, from this node's image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from streamlog.api.convert import cluster, view
from streamlog.api.convert.admin.placement import topic_partitions
from streamlog.api.convert.metadata import described_topics
from streamlog.api.errors import to_message
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.errors import StreamlogError
from streamlog.metadata.image.image import MetadataImage, Topic
from streamlog.metadata.partitions.reassignment import reassignments
from streamlog.metadata.records import ConfigTarget, ConfigTargetType
from streamlog.metadata.topics.internal_topics import INTERNAL_TOPICS
from streamlog.metadata.view import MetadataView
from streamlog.model import BrokerId, PartitionId, TopicPartition
from streamlog.services.access.visible import listed, queried
from streamlog.services.common.collaborators import QuorumVoters
from streamlog.services.common.forwarding import Peers, is_forwarded, timeout_of
from streamlog.services.common.paging import (
    PAGE_BYTES,
    PageStart,
    TopicEntry,
    TopicNames,
    TopicPart,
    page_size,
    parse_token,
    partition_bytes,
    take,
    to_token,
)
from streamlog.services.common.topics import all_entries, entries_of, unknown_topic

TOPICS_PER_PAGE: Final = 1_000
PARTITIONS_PER_PAGE: Final = 2_000
QUORUM_TIMEOUT_S: Final = 2.0
_DESCRIBE_CLUSTER: Final = "/streamlog.v1.Admin/DescribeCluster"
_LISTING_BYTES: Final = 48  # of one topic in a list, beside its name


class ClusterReads:
    def __init__(
        self,
        view: MetadataView,
        names: TopicNames,
        quorum: QuorumVoters,
        peers: Peers,
        clock_skews: Callable[[], Mapping[BrokerId, int]] = dict,
    ) -> None:
        self._clock_skews = clock_skews
        self._view = view
        self._names = names
        self._quorum = quorum
        self._peers = peers

    async def list_topics(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
        begin, size = parse_token(request.page_token), page_size(request.page_size, default=TOPICS_PER_PAGE)
        image, response, used = self._view.image, pb.ListTopicsResponse(), 0
        for entry in listed(all_entries(image, self._names), call.info.guard):
            if entry.topic is None or entry.name < begin.name:
                continue
            if entry.name in INTERNAL_TOPICS and not request.include_internal:
                continue
            used += len(entry.name) + _LISTING_BYTES
            if len(response.topics) == size or used > PAGE_BYTES:
                response.next_page_token = to_token(PageStart(entry.name, b"", 0))
                break
            response.topics.append(view.topic_listing(entry.topic))
        return response

    async def describe_topics(self, request: pb.DescribeTopicsRequest, call: Call) -> pb.DescribeTopicsResponse:
        query = described_topics(request)
        begin, size = parse_token(request.page_token), page_size(request.page_size, default=PARTITIONS_PER_PAGE)
        image = self._view.image
        guard = call.info.guard
        if query.all_topics:
            entries = listed(filter(_is_users, all_entries(image, self._names)), guard)
        else:
            entries = queried(entries_of(image, query), query.topics, guard)
        parts, following = take(_with_configs(entries, image), begin, size)
        return pb.DescribeTopicsResponse(
            topics=[_description(part, image) for part in parts], next_page_token=to_token(following)
        )

    async def list_reassignments(
        self, request: pb.ListPartitionReassignmentsRequest, call: Call
    ) -> pb.ListPartitionReassignmentsResponse:
        wanted = frozenset(topic_partitions(request.partitions, "partitions"))
        begin, size = parse_token(request.page_token), page_size(request.page_size, default=PARTITIONS_PER_PAGE)
        image, response, used = self._view.image, pb.ListPartitionReassignmentsResponse(), 0
        for topic, index in _moving(image):
            here = PageStart(topic.name, b"", index)
            if here < PageStart(begin.name, b"", begin.partition):
                continue
            if wanted and TopicPartition(topic.name, index) not in wanted:
                continue
            state = topic.partitions[index]
            used += len(topic.name) + partition_bytes(state)
            if len(response.reassignments) == size or used > PAGE_BYTES:
                response.next_page_token = to_token(here)
                break
            response.reassignments.add(topic=topic.name, partition=view.partition(index, state, image))
        return response

    async def describe_cluster(self, request: pb.DescribeClusterRequest, call: Call) -> pb.DescribeClusterResponse:
        quorum = self._quorum
        response = cluster.described(self._view.image, controller=self._view.controller, listener=call.info.listener)
        voters = [(voter.node_id, voter.address) for voter in quorum.voters()]
        cluster.set_quorum(
            response, voters, quorum.held(), quorum.without_vote(), quorum.leadership().term, quorum.applied_index
        )
        cluster.set_clock_skews(response, self._clock_skews())
        if not quorum.knows_votes and not is_forwarded(call):
            await self._take_quorum(response, request, call)
        return response

    async def _take_quorum(
        self, response: pb.DescribeClusterResponse, request: pb.DescribeClusterRequest, call: Call
    ) -> None:
        """As the controller describes it: an observer does not know its term, how far the voters are, nor which of them
        lost its disk, and its vote with it. Without the controller it stays as it is known here.
        """
        controller = self._view.controller
        if controller is None:
            return
        timeout_s = min(QUORUM_TIMEOUT_S, timeout_of(call) / 2)
        try:
            seen = await self._peers.call(controller, _DESCRIBE_CLUSTER, request, pb.DescribeClusterResponse, timeout_s)
        except StreamlogError:
            return
        if seen.voters:
            del response.voters[:]
            response.voters.extend(seen.voters)
            response.quorum_term = seen.quorum_term
            response.commit_index = max(response.commit_index, seen.commit_index)


def _moving(image: MetadataImage) -> list[tuple[Topic, PartitionId]]:
    """By rising name and partition."""
    found = [(image.topics[topic_id], index) for (topic_id, index), _ in reassignments(image)]
    return sorted(found, key=lambda one: (one[0].name, one[1]))


def _is_users(entry: TopicEntry) -> bool:
    return entry.name not in INTERNAL_TOPICS


def _with_configs(entries: Iterable[TopicEntry], image: MetadataImage) -> Iterator[TopicEntry]:
    """The same, with the bytes of each topic's configs."""
    for entry in entries:
        values = image.config(ConfigTarget(ConfigTargetType.TOPIC, entry.name))
        size = sum(len(name) + len(value.encode()) + 8 for name, value in values.items())
        yield TopicEntry(entry.name, entry.topic_id, entry.topic, entry.error, size)


def _description(part: TopicPart, image: MetadataImage) -> pb.TopicDescription:
    entry = part.entry
    if entry.topic is not None:
        return view.topic_description(entry.topic, image, part.partitions)
    error = entry.error or unknown_topic(entry.name)
    return pb.TopicDescription(name=entry.name, topic_id=entry.topic_id, error=to_message(error))
