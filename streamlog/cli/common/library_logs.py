"""Warnings of the client and other libraries, as lines of standard error: the client itself prints nothing."""

from __future__ import annotations

import logging
import sys
from typing import Final

from streamlog.cli.common.output import on_terminal

_CONNECTIONS: Final = "streamlog.client.connection.connection_log"
"""A node that is down is of no interest while another one answers; where none does, the command's error says so."""

_WAITS: Final = (
    "streamlog.client.producer.batches.late_records_log",
    "streamlog.client.consumer.unfetched_watch",
    "streamlog.client.groups.coordinator_watch",
)


class _ToStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(on_terminal(self.format(record), err=True) + "\n")
        except Exception:  # noqa: BLE001  a closed standard error must not end the command
            self.handleError(record)


def leave_out_waits() -> None:
    """Where the command itself says why records wait."""
    for name in _WAITS:
        logging.getLogger(name).setLevel(logging.ERROR)


def show_warnings() -> None:
    """For the rest of the process, unless logging is configured already."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_ToStandardError(logging.WARNING))
        logging.getLogger(_CONNECTIONS).setLevel(logging.ERROR)
