"""Metadata: nodes, topics, partitions and their leaders, from this node's image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.api.convert import view as convert
from streamlog.api.convert.metadata import metadata_query
from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.service import Call
from streamlog.errors import StreamlogError
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.view import MetadataView
from streamlog.services.access.visible import listed, queried
from streamlog.services.common.auto_create import AutoCreate
from streamlog.services.common.paging import BEGINNING, TopicNames, TopicPart, page_size, parse_token, take, to_token
from streamlog.services.common.topics import all_entries, entries_of, unknown_topic

PARTITIONS_PER_PAGE: Final = 2_000


class MetadataHandler:
    def __init__(self, view: MetadataView, names: TopicNames, auto_create: AutoCreate) -> None:
        self._view = view
        self._names = names
        self._auto_create = auto_create

    async def metadata(self, request: pb.MetadataRequest, call: Call) -> pb.MetadataResponse:
        query = metadata_query(request)
        begin = parse_token(request.page_token)
        size = page_size(request.page_size, default=PARTITIONS_PER_PAGE)
        refused: Mapping[str, StreamlogError] = {}
        if begin == BEGINNING:
            refused = await self._auto_create.missing(query.topics, call)
        image = self._view.image
        if query.all_topics:
            parts, following = take(listed(all_entries(image, self._names), call.info.guard), begin, size)
        else:
            entries = entries_of(image, query, missing=lambda name: refused.get(name) or unknown_topic(name))
            parts, following = take(queried(entries, query.topics, call.info.guard), begin, size)
        return pb.MetadataResponse(
            cluster_id=image.cluster_id,
            nodes=convert.live_nodes(image, call.info.listener) if begin == BEGINNING else (),
            controller=self._view.controller,
            topics=[topic_message(part, image) for part in parts],
            metadata_version=image.index,
            next_page_token=to_token(following),
        )


def topic_message(part: TopicPart, image: MetadataImage) -> pb.TopicMetadata:
    entry = part.entry
    if entry.topic is not None:
        return convert.topic_metadata(entry.topic, image, part.partitions)
    return convert.missing_topic(entry.name, entry.topic_id, entry.error or unknown_topic(entry.name))
