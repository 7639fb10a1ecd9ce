"""The W3C contexts in the headers of a batch's records, for the nodes that append it (`tracing.enable=true`).

A node does not decode batches, so the contexts go beside the bytes. The first one becomes the parent of the node's spans:
a sampled one where there is any, since nodes record nothing below one that is not. At most LINKS_MAX are sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamlog.client.producer.batches.wire_batch import WireBatch
from streamlog.ports.trace_context import TRACEPARENT, TRACEPARENT_LENGTH, is_sampled, is_traceparent
from streamlog.ports.tracing import LINKS_MAX
from streamlog.records import Headers


def contexts_of(wire: WireBatch) -> list[str]:
    """Distinct and valid; the sampled ones, or the first one where none is."""
    found: dict[str, None] = {}
    unsampled = ""
    for text in _traceparents(wire):
        if is_sampled(text):
            found[text] = None
            if len(found) == LINKS_MAX:
                break
        else:
            unsampled = unsampled or text
    return list(found) or ([unsampled] if unsampled else [])


def _traceparents(wire: WireBatch) -> Iterator[str]:
    last: Headers = ()  # records of `send_many` share their headers
    for batch, start, stop in wire.slices:
        for headers in (batch.headers or [])[start:stop]:
            if headers and headers is not last:
                last = headers
                given = next((value for name, value in reversed(headers) if name == TRACEPARENT), None)
                if given is not None and len(given) == TRACEPARENT_LENGTH:
                    text = given.decode("latin-1")
                    if is_traceparent(text):
                        yield text
