"""An access lease that holds, for tests of what is behind it."""

from __future__ import annotations

from collections.abc import Callable

from streamlog.metadata.view import MetadataView
from streamlog.model import RaftIndex
from streamlog.services.access.access_lease import AccessLease


def held_lease(view: MetadataView, lease_s: Callable[[], float] = lambda: 3_600.0) -> AccessLease:
    lease = AccessLease(lambda: 1.0, view, lease_s)
    lease.answered(1.0, RaftIndex(0))
    return lease
