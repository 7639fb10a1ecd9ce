"""What clients hold of the node's bounds: concurrent calls, bytes of records on their way in and out."""

from __future__ import annotations

from streamlog.metrics.families import Family, counter, gauge, single
from streamlog.services.common.client_bounds import ClientBounds


def client_bound_families(bounds: ClientBounds) -> list[Family]:
    slots, queued, outgoing = bounds.slots, bounds.queued, bounds.outgoing
    return [
        gauge("streamlog_calls_running", "Calls and streams of clients that are served now.", single(slots.running)),
        gauge(
            "streamlog_calls_limit", "Limit of calls and streams of clients: max.concurrent.calls.", single(slots.limit)
        ),
        gauge("streamlog_queued_request_bytes", "Bytes of records that wait to be appended.", single(queued.queued)),
        gauge(
            "streamlog_queued_request_limit_bytes",
            "Limit of bytes that wait to be appended; requests beyond it are refused: queued.max.request.bytes.",
            single(queued.limit),
        ),
        counter(
            "streamlog_producers_throttled_total",
            "Requests to append that were refused with THROTTLED: queued.max.request.bytes was reached.",
            single(queued.refused_count),
        ),
        gauge(
            "streamlog_queued_response_bytes",
            "Bytes of responses that readers have not taken yet, with all copies.",
            single(outgoing.used_bytes),
        ),
        gauge(
            "streamlog_queued_response_limit_bytes",
            "Limit of bytes of responses; readers wait beyond it: queued.max.response.bytes.",
            single(outgoing.limit),
        ),
        gauge(
            "streamlog_readers_waiting",
            "Reading calls that wait for a share of the bytes of responses.",
            single(outgoing.waiting_count),
        ),
        counter(
            "streamlog_readers_throttled_total",
            "Reading calls that ended with THROTTLED: their clients do not read, or waited too long.",
            single(outgoing.throttled_count),
        ),
    ]
