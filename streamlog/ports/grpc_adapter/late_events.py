"""Silences two harmless tracebacks of gRPC.

An operation of a cancelled call completes a moment after the call, and gRPC notifies the call's event loop. That loop
may be closed by then, as after `asyncio.run`, or when a client with its own thread was closed: then the loop of the
process that reads gRPC's events gets a RuntimeError and logs a traceback, although nothing waits for the event (seen
with grpcio 1.85). Other events are delivered normally.

The serving side logs an error with a traceback when a caller disconnects while gRPC sends the status of its call.
Handlers get such an error as the end of their call (`stream`).
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


class _GoneCallers(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[0] if record.exc_info else None
        return error is None or error.__name__ != "ExecuteBatchError"


_late_events: Final = _LateEvents()
_gone_callers: Final = _GoneCallers()


def silence_late_events() -> None:
    """For this process. Idempotent."""
    logging.getLogger("asyncio").addFilter(_late_events)
    logging.getLogger("grpc._cython.cygrpc").addFilter(_gone_callers)
