"""Outgoing messages, some of which wait for the disk.

A message that depends on durable state (a vote, an acknowledgement) may leave only when that state is on stable
storage: it is queued with the number of the change (journal.py) and leaves once the journal is durable up to it.

A waiting message delays no other: messages that depend on earlier changes overtake it. So a node with a slow disk still
sends heartbeats, and only its acknowledgements are late. Raft needs no order between messages (thesis, 3.1); of two
that wait for the same change, the first queued leaves first.
"""

from __future__ import annotations

from collections.abc import Callable

from streamlog.model import BrokerId
from streamlog.raft.protocol.messages import Message


class Outbox:
    def __init__(self, deliver: Callable[[BrokerId, Message], None]) -> None:
        """`deliver` does not wait, and may drop."""
        self._deliver = deliver
        self._waiting: dict[BrokerId, list[tuple[int, Message]]] = {}

    def put(self, peer: BrokerId, message: Message, *, after: int) -> None:
        """To leave once change number `after` is durable."""
        self._waiting.setdefault(peer, []).append((after, message))

    def release(self, durable: int) -> None:
        """Deliver what waits for changes up to `durable`."""
        for peer, waiting in self._waiting.items():
            if not waiting:
                continue
            free = [message for after, message in waiting if after <= durable]
            waiting[:] = [(after, message) for after, message in waiting if after > durable]
            for message in free:
                self._deliver(peer, message)

    def drop(self, peer: BrokerId) -> None:
        """The stream is closed: its pending messages are not sent on the next one."""
        self._waiting.pop(peer, None)

    def count(self) -> int:
        """The number of waiting messages."""
        return sum(map(len, self._waiting.values()))
