"""The consumer."""

from __future__ import annotations

from streamlog.client.assigned_consumer import AssignedConsumer


class AsyncConsumer(AssignedConsumer):
    """The consumer."""
