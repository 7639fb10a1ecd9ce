"""How quotas have held up clients."""

from __future__ import annotations

from typing import Final

from streamlog.access.quotas import REQUEST_PERCENTAGE
from streamlog.metrics.families import Family, counter
from streamlog.services.quotas.limits import QuotaLimits

HOLDERS_MAX: Final = 100
"""Client ids are what clients say: only those that waited longest have series."""


def quota_families(limits: QuotaLimits | None) -> list[Family]:
    """`limits`: None: the node has none."""
    if limits is None:
        return []
    waited = [(key, holder, bucket) for (key, holder), bucket in limits.buckets.items() if bucket.throttled_count]
    waited.sort(key=lambda one: one[2].throttled_s, reverse=True)
    timed = [(holder, bucket) for (key, holder), bucket in limits.buckets.items() if key == REQUEST_PERCENTAGE]
    timed.sort(key=lambda one: one[1].used, reverse=True)
    totals = limits.totals.items()
    by_holder = [((key, _name_of(holder.user, holder.client_id)), bucket) for key, holder, bucket in waited]
    return [
        counter(
            "streamlog_quota_throttled_total",
            "Requests and responses that a quota held up, and requests that it refused since their turn was too far.",
            [
                sample
                for key, one in totals
                for sample in (((key, "delayed"), one.delayed), ((key, "refused"), one.refused))
            ],
            ("type", "result"),
        ),
        counter(
            "streamlog_quota_throttle_seconds_total",
            "For how long quotas held requests and responses up, in all.",
            [((key,), one.seconds) for key, one in totals],
            ("type",),
        ),
        counter(
            "streamlog_quota_holder_throttle_seconds_total",
            "The same by who shares a limit: the hundred that were held up longest since they were first seen.",
            [(names, bucket.throttled_s) for names, bucket in by_holder[:HOLDERS_MAX]],
            ("type", "holder"),
        ),
        counter(
            "streamlog_quota_holder_request_time_seconds_total",
            "Time that the calls of who shares a request_percentage took, of the event loop and worker threads; the "
            "hundred that took most.",
            [((_name_of(holder.user, holder.client_id),), bucket.used / 100) for holder, bucket in timed[:HOLDERS_MAX]],
            ("holder",),
        ),
    ]


def _name_of(user: str | None, client_id: str | None) -> str:
    """`user=alice,client-id=etl`, or one of the two."""
    parts = (("user", user), ("client-id", client_id))
    return ",".join(f"{kind}={name}" for kind, name in parts if name is not None)
