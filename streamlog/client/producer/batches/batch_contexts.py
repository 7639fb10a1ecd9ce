"""The W3C contexts in the headers of a batch's records, for the node that appends it (`tracing.enable=true`).

A node does not decode batches, so the contexts go beside the bytes; the first one becomes the parent of its spans.
"""

from __future__ import annotations

from streamlog.client.producer.batches.wire_batch import WireBatch
from streamlog.ports.trace_context import contexts_in


def contexts_of(wire: WireBatch) -> list[str]:
    """As `contexts_in`."""
    return contexts_in(headers for batch, start, stop in wire.slices for headers in (batch.headers or [])[start:stop])
