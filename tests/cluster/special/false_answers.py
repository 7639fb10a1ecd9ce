"""Nodes whose answers to other nodes are false for a while (FAULTS "Hostile peers"): as if another program had their
address, or something between them changed what they send.

What arrives is no message, has a status that no node sends, or has nothing in it where something is required. The call
itself may have been carried out. Nothing that could be believed is made up: who may speak as the controller or a leader
decides what the cluster does, and only TLS shows who it is.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Final

from streamlog.errors import Status
from streamlog.ports import RpcError

NO_MESSAGES: Final = (b"\x07", b"\x0c", b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 40)
"""Not protobuf: an unknown wire type, the end of a group, fields that are cut off."""
STATUSES: Final = (
    Status.INTERNAL,
    Status.UNKNOWN,
    Status.UNIMPLEMENTED,
    Status.RESOURCE_EXHAUSTED,
    Status.PERMISSION_DENIED,
    Status.UNAUTHENTICATED,
    Status.DATA_LOSS,
)
"""Without details: of other programs."""
NEVER_EMPTY: Final = frozenset({"AllocateProducerIds", "AlterPartition", "CreateInternalTopic", "FetchRange"})
"""Calls whose answers have something in them."""
FALSE: Final = 0.6
"""Share of the answers."""


class FalseAnswers:
    """Who gives them, and until when."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: dict[str, float] = {}  # by address
        self.given = 0

    def begin(self, address: str, lasts: float) -> None:
        self._until[address] = max(self._until.get(address, 0.0), self._now() + lasts)

    def end(self) -> None:
        self._until.clear()

    def come_from(self, address: str) -> bool:
        return self._now() < self._until.get(address, 0.0)


class FalseNode:
    """What one node receives from one address (`ChangedNetwork`)."""

    def __init__(self, address: str, answers: FalseAnswers, rng: random.Random) -> None:
        self._address = address
        self._answers = answers
        self._rng = rng

    async def unary(self, method: str, call: Callable[[], Awaitable[bytes]]) -> bytes:
        false = self._is_false()
        if false and self._rng.random() < 0.5:
            return self._answer(method)
        answer = await call()
        return self._answer(method) if false else answer

    def message(self, method: str, message: bytes) -> bytes:
        return self._answer(method) if self._is_false() else message

    def _is_false(self) -> bool:
        return self._answers.come_from(self._address) and self._rng.random() < FALSE

    def _answer(self, method: str) -> bytes:
        self._answers.given += 1
        if method.rpartition("/")[2] in NEVER_EMPTY and self._rng.random() < 0.3:
            return b""
        if self._rng.random() < 0.5:
            raise RpcError(self._rng.choice(STATUSES), "of another program")
        return self._rng.choice(NO_MESSAGES)
