"""The Records service: what serves each of its methods."""

from __future__ import annotations

from msgspec import Struct

from streamlog.api.convert.records.publish import publish_bytes_max
from streamlog.api.pb import records_pb2 as pb
from streamlog.api.service import Method, downstream, duplex, unary
from streamlog.services.records.consuming.consume import ConsumeHandler
from streamlog.services.records.publish import PublishHandler
from streamlog.services.records.publish_stream import PublishStreams
from streamlog.services.records.subscribe import SubscribeHandler


class RecordsService(Struct, frozen=True, kw_only=True):
    publish: PublishHandler
    publish_streams: PublishStreams
    subscribe: SubscribeHandler
    consume: ConsumeHandler

    def methods(self, request_bytes_max: int) -> list[Method]:
        """`request_bytes_max`: of a message to this node (`socket.request.max.bytes`)."""
        bound = publish_bytes_max(request_bytes_max)
        return [
            unary("Publish", pb.PublishRequest, pb.PublishResponse, self.publish.publish, request_bytes_max=bound),
            duplex(
                "PublishStream",
                pb.PublishStreamRequest,
                pb.PublishStreamResponse,
                self.publish_streams.publish_stream,
                request_bytes_max=bound,
            ),
            downstream("Subscribe", pb.SubscribeRequest, pb.SubscribeResponse, self.subscribe.subscribe),
            duplex("Consume", pb.ConsumeRequest, pb.ConsumeResponse, self.consume.consume),
        ]
