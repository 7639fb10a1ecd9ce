"""A notice on its way to one channel. Values."""

from __future__ import annotations

import enum

from msgspec import Struct

from streamlog.console.alarms.messages import Notice


class DeliveryStatus(enum.Enum):
    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"  # given up


class NoticeDelivery(Struct, frozen=True, kw_only=True):
    delivery_id: str
    channel: str
    notice: Notice
    created_at_s: float
    status: DeliveryStatus = DeliveryStatus.QUEUED
    tries: int = 0
    failure: str = ""  # of the last try
    ended_at_s: float | None = None
