"""The Batches service: what serves each of its methods."""

from __future__ import annotations

from msgspec import Struct

from streamlog.api.pb import batches_pb2 as pb
from streamlog.api.service import Method, downstream, duplex, unary
from streamlog.services.batches.fetch import FetchHandler
from streamlog.services.batches.fetch_stream import FetchStreams
from streamlog.services.batches.metadata import MetadataHandler
from streamlog.services.batches.offsets import OffsetsHandler
from streamlog.services.batches.produce import ProduceHandler
from streamlog.services.batches.produce_stream import ProduceStreams
from streamlog.services.batches.producer_ids import InitProducerId
from streamlog.services.batches.watch_metadata import WatchMetadata


class BatchesService(Struct, frozen=True, kw_only=True):
    metadata: MetadataHandler
    watch: WatchMetadata
    produce: ProduceHandler
    produce_streams: ProduceStreams
    fetch: FetchHandler
    fetch_streams: FetchStreams
    offsets: OffsetsHandler
    producer_ids: InitProducerId

    def methods(self, request_bytes_max: int) -> list[Method]:
        """`request_bytes_max`: of requests that carry records (`socket.request.max.bytes`)."""
        return [
            unary("Metadata", pb.MetadataRequest, pb.MetadataResponse, self.metadata.metadata),
            downstream("WatchMetadata", pb.WatchMetadataRequest, pb.WatchMetadataResponse, self.watch.watch_metadata),
            unary(
                "Produce",
                pb.ProduceRequest,
                pb.ProduceResponse,
                self.produce.produce,
                request_bytes_max=request_bytes_max,
            ),
            duplex(
                "ProduceStream",
                pb.ProduceStreamRequest,
                pb.ProduceStreamResponse,
                self.produce_streams.produce_stream,
                request_bytes_max=request_bytes_max,
            ),
            unary("Fetch", pb.FetchRequest, pb.FetchResponse, self.fetch.fetch),
            duplex("FetchStream", pb.FetchStreamRequest, pb.FetchStreamResponse, self.fetch_streams.fetch_stream),
            unary("ListOffsets", pb.ListOffsetsRequest, pb.ListOffsetsResponse, self.offsets.list_offsets),
            unary(
                "OffsetForLeaderEpoch",
                pb.OffsetForLeaderEpochRequest,
                pb.OffsetForLeaderEpochResponse,
                self.offsets.offset_for_leader_epoch,
            ),
            unary(
                "InitProducerId",
                pb.InitProducerIdRequest,
                pb.InitProducerIdResponse,
                self.producer_ids.init_producer_id,
            ),
        ]
