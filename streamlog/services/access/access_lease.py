"""How long a node may decide by its own copy of the access control lists and users.

    heartbeat sent --> answered with the controller's metadata index --> applied here: what was in force when the
    heartbeat was sent is in force on this node, and it may decide for another broker.session.timeout.ms

A node that is cut off from the quorum, or whose metadata does not keep up, does not know what was revoked since. Its
lease ends, and it refuses what it would have to look up: a right is granted no longer than the lease after its
revocation, and the time that a deposed controller answers beyond it (an election timeout).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from streamlog.errors import BrokerNotAvailableError
from streamlog.metadata.view import MetadataView
from streamlog.model import RaftIndex

PENDING_MAX: Final = 64


class AccessLease:
    def __init__(self, now_s: Callable[[], float], view: MetadataView, lease_s: Callable[[], float]) -> None:
        """`lease_s`: broker.session.timeout.ms, which may change."""
        self._now_s = now_s
        self._view = view
        self._lease_s = lease_s
        self._known_s: float | None = None  # what was in force then is known here; None: never yet
        self._pending: deque[tuple[float, RaftIndex]] = deque(maxlen=PENDING_MAX)  # both rising

    def answered(self, sent_s: float, index: RaftIndex) -> None:
        """A heartbeat that was sent then was answered with this index, or 0 by an earlier release."""
        self._pending.append((sent_s, index))

    def left_s(self) -> float:
        """0: the lease has ended."""
        applied = self._view.image.index
        while self._pending and self._pending[0][1] <= applied:
            self._known_s = self._pending.popleft()[0]
        if self._known_s is None:
            return 0.0
        return max(0.0, self._known_s + self._lease_s() - self._now_s())

    def refusal(self) -> BrokerNotAvailableError | None:
        """None: the node may decide."""
        if self.left_s() > 0:
            return None
        return BrokerNotAvailableError(
            "this node has no contact to the controller, or has not applied its metadata, and so does not know which "
            "rights were revoked meanwhile: try another node"
        )
