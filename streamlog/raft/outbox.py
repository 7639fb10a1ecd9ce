"""Messages on their way out, some of which wait for the disk.

A message that promises something (a vote, an acknowledgement) may leave only when the change that it speaks of is on
stable storage: it is put in with the number of that change (journal.py) and leaves once the journal is durable so far.
To each peer messages leave in the order in which they were put in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streamlog.model import BrokerId
from streamlog.raft.messages import Message


class Outbox:
    def __init__(self, deliver: Callable[[BrokerId, Message], None]) -> None:
        """`deliver` does not wait, and may drop."""
        self._deliver = deliver
        self._waiting: dict[BrokerId, deque[tuple[int, Message]]] = {}

    def put(self, peer: BrokerId, message: Message, *, after: int) -> None:
        """To leave once change number `after` is durable."""
        self._waiting.setdefault(peer, deque()).append((after, message))

    def release(self, durable: int) -> None:
        """Let go what waits for changes up to `durable`."""
        for peer, waiting in self._waiting.items():
            while waiting and waiting[0][0] <= durable:
                self._deliver(peer, waiting.popleft()[1])

    def drop(self, peer: BrokerId) -> None:
        """The stream to it is gone: nothing is sent on the next one that was meant for this one."""
        self._waiting.pop(peer, None)

    def count(self) -> int:
        """Messages that wait."""
        return sum(map(len, self._waiting.values()))
