"""What a node grants all its clients together: concurrent calls, and bytes of records on their way in and out.

Made once, by the node's data plane; the services count against it, and the node's metrics are read from it.
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.broker.append.admission import QueuedBytes
from streamlog.config import Config
from streamlog.config.settings.node_settings import (
    MAX_CONCURRENT_CALLS,
    QUEUED_MAX_REQUEST_BYTES,
    QUEUED_MAX_RESPONSE_BYTES,
)
from streamlog.services.common.admission import CallSlots
from streamlog.services.common.outgoing import OutgoingBytes


class ClientBounds(Struct, frozen=True, kw_only=True):
    slots: CallSlots
    queued: QueuedBytes
    outgoing: OutgoingBytes

    @classmethod
    def of(cls, node: Config) -> ClientBounds:
        """By the node's settings at its start."""
        return cls(
            slots=CallSlots(node[MAX_CONCURRENT_CALLS]),
            queued=QueuedBytes(node[QUEUED_MAX_REQUEST_BYTES]),
            outgoing=OutgoingBytes(node[QUEUED_MAX_RESPONSE_BYTES]),
        )
