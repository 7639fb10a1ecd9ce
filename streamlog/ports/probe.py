"""Events of state changes, each reported once by the state's owner: logged in production, checked in simulation."""

from __future__ import annotations

from typing import Protocol


class Probe(Protocol):
    def __call__(self, event: str, /, **fields: object) -> None:
        """`event` is a short name in snake_case; fields are numbers, strings and enums. Never on the hot path."""
        ...


def no_probe(event: str, /, **fields: object) -> None:
    """A probe that discards events."""
