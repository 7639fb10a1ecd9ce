"""What gRPC makes asyncio say that means nothing.

What a call waited for ends a moment after the call was cancelled, and gRPC tells its loop. That one may be closed
by then, as after `asyncio.run`, or when a client with a thread of its own was closed: a RuntimeError in whatever other
loop of the process has read gRPC's events, and a traceback by that loop's handler, though nobody waits for the news any
more (seen with grpcio 1.85). All other events come as they should.
"""

from __future__ import annotations

import logging
from typing import Final

_READER: Final = "PollerCompletionQueue._handle_events"


class _LateEvents(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        is_late = isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
        return not (is_late and _READER in record.getMessage())


_late_events: Final = _LateEvents()


def silence_late_events() -> None:
    """In this process. Idempotent."""
    logging.getLogger("asyncio").addFilter(_late_events)
