"""What the two laboratories have in common (plain_lab, our_lab). Nothing happens by itself.

Messages lie in FIFO queues between nodes until they are delivered; time stands until it is moved; a node does what it
does in a tick. Elections happen on demand. So one script can show what the one does and the other does not.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

FAR = 1e9
"""An election time-out that does not come."""


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Lab:
    """What both have. Nodes are 1 to `size`; `answers` collects the answers to callers, by command."""

    def __init__(self, size: int) -> None:
        self.ids = list(range(1, size + 1))
        self.clock = Clock()
        self.queues: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.cut: set[tuple[int, int]] = set()
        self.answers: dict[str, list[Any]] = defaultdict(list)

    def post(self, source: int, target: int, message: Any) -> bool:
        if (source, target) in self.cut:
            return False
        self.queues[source, target].append(message)
        return True

    def deliver(self, source: int, target: int, count: int = 1 << 30) -> int:
        queue, done = self.queues[source, target], 0
        while queue and done < count:
            self.hand(source, target, queue.popleft())
            done += 1
        return done

    def flush(self) -> None:
        """Deliver until nothing is under way."""
        while any(self.deliver(*link) for link in sorted(self.queues)):
            pass

    def run(self, rounds: int = 4, *nodes: int) -> None:
        for _ in range(rounds):
            self.clock.now += 0.2
            for node in nodes or self.ids:
                self.tick(node)
            self.flush()

    def partition(self, ones: list[int], others: list[int]) -> None:
        for one in ones:
            for other in others:
                for link in ((one, other), (other, one)):
                    self.cut.add(link)
                    self.queues[link].clear()
                    self.disconnect(*link)

    def heal(self) -> None:
        cut, self.cut = sorted(self.cut), set()
        for link in cut:
            self.connect(*link)

    # Of the implementation.

    def hand(self, source: int, target: int, message: Any) -> None:
        raise NotImplementedError

    def tick(self, node: int) -> None:
        raise NotImplementedError

    def connect(self, node: int, peer: int) -> None:
        raise NotImplementedError

    def disconnect(self, node: int, peer: int) -> None:
        raise NotImplementedError

    def submit(self, node: int, text: str) -> None:
        raise NotImplementedError

    def elect(self, node: int, *among: int) -> None:
        raise NotImplementedError

    def campaign(self, node: int) -> None:
        raise NotImplementedError

    def state(self, node: int) -> list[str]:
        """Commands applied, in order."""
        raise NotImplementedError

    def log(self, node: int) -> list[tuple[int, int]]:
        """(index, term) of the entries."""
        raise NotImplementedError

    def term(self, node: int) -> int:
        raise NotImplementedError

    def leads(self, node: int) -> bool:
        raise NotImplementedError

    def compact(self, node: int) -> None:
        raise NotImplementedError

    def succeeded(self, text: str) -> bool:
        """A caller was answered that this command was carried out."""
        raise NotImplementedError
