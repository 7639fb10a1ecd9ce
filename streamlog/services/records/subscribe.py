"""Subscribe: records of any partitions from any node.

    unplaced --leader, start and end known--> read from the leader's feed --end reached, non-retriable error--> done
       ^                                                  |
       '--------leader moved, feed disconnected-----------'      (continues at `position`)

    subscribe_placement    which partitions, their leaders, starts and ends; the feeds
    subscribe_delivery     what the feeds bring, as messages to the client

One task places partitions, one a feed receives, one writes to the client. A feed requests its next message once all of
the previous one has been sent, so a slow client leaves one small message of each feed in memory; they count against
`queued.max.response.bytes` (`services.common.outgoing`).
"""

from __future__ import annotations

import asyncio
from typing import Final

from streamlog.aio.call_time import counted
from streamlog.api import calls
from streamlog.api.convert.records import subscribe as convert
from streamlog.api.pb import batches_pb2
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Call, Responses
from streamlog.client.connection.backoff import Backoff
from streamlog.metadata.view import MetadataView
from streamlog.metrics import Traffic
from streamlog.model import BrokerId
from streamlog.ports import Workers
from streamlog.services.batches.offsets import OffsetsHandler
from streamlog.services.common.auto_create import AutoCreate
from streamlog.services.common.forwarding import Peers
from streamlog.services.common.outgoing import OutgoingBytes
from streamlog.services.records.feeds import FeedSource
from streamlog.services.records.subscribe_delivery import SubscribeDelivery
from streamlog.services.records.subscribe_placement import PartitionPlacement

_LIST_OFFSETS: Final = calls.unary("streamlog.v1.Batches/ListOffsets", batches_pb2.ListOffsetsResponse)
_OFFSETS_TIMEOUT_S: Final = 10.0


class SubscribeHandler:
    def __init__(
        self,
        node_id: BrokerId,
        view: MetadataView,
        auto_create: AutoCreate,
        feeds: FeedSource,
        offsets: OffsetsHandler,
        peers: Peers,
        workers: Workers,
        backoff: Backoff,
        outgoing: OutgoingBytes,
        traffic: Traffic,
    ) -> None:
        self._traffic = traffic
        self._outgoing = outgoing
        self._node_id = node_id
        self._view = view
        self._feeds = feeds
        self._workers = workers
        self._backoff = backoff
        self._auto_create = auto_create
        self._offsets = offsets
        self._peers = peers

    async def subscribe(
        self, request: pb.SubscribeRequest, responses: Responses[pb.SubscribeResponse], call: Call
    ) -> None:
        query = convert.subscribe_query(request)
        for subscription in query.subscriptions:
            if self._view.image.topic_named(subscription.topic) is None:
                await self._auto_create.ensure(subscription.topic, call)

        async def list_offsets(
            leader: BrokerId, query: batches_pb2.ListOffsetsRequest
        ) -> batches_pb2.ListOffsetsResponse:
            return await self._list_offsets(leader, query, call)

        placement = PartitionPlacement(query, self._view, self._feeds, list_offsets, self._backoff, self._outgoing)
        try:
            async with self._outgoing.reader() as reader, asyncio.TaskGroup() as tasks:
                placement.reader, placement.pace = reader, call.info.pace
                placing = tasks.create_task(counted(placement.run(tasks)))
                await SubscribeDelivery(query, placement, self._view, self._workers, self._traffic).run(responses)
                placing.cancel()
                placement.stop()
        finally:
            placement.stop()

    async def _list_offsets(
        self, leader: BrokerId, request: batches_pb2.ListOffsetsRequest, call: Call
    ) -> batches_pb2.ListOffsetsResponse:
        """By the leader, this node or another one. StreamlogError."""
        if leader == self._node_id:
            return await self._offsets.list_offsets(request, call)
        return await _LIST_OFFSETS(await self._peers.channel(leader), request, timeout_s=_OFFSETS_TIMEOUT_S)
