"""Messages on their way out, some of which wait for the disk.

A message that promises something (a vote, an acknowledgement) may leave only when the change that it speaks of is on
stable storage: it is put in with the number of that change (journal.py) and leaves once the journal is durable so far.

A message that waits holds up no other: what waits for less overtakes it. So a node whose disk is slow is still heard,
and only what it promises is late. Raft does not need an order between messages (thesis, 3.1); what rests on one here is
kept: of two messages that wait for the same change, the one put in first leaves first.
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
        """Let go what waits for changes up to `durable`."""
        for peer, waiting in self._waiting.items():
            if not waiting:
                continue
            free = [message for after, message in waiting if after <= durable]
            waiting[:] = [(after, message) for after, message in waiting if after > durable]
            for message in free:
                self._deliver(peer, message)

    def drop(self, peer: BrokerId) -> None:
        """The stream to it is gone: nothing is sent on the next one that was meant for this one."""
        self._waiting.pop(peer, None)

    def count(self) -> int:
        """Messages that wait."""
        return sum(map(len, self._waiting.values()))
