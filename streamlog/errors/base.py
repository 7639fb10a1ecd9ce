"""What all errors have in common: a code for the wire, whether a retry may succeed, details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self


class InvariantError(Exception):
    """A broken invariant. The node stops: a wrong log is worse than a stopped one."""


class StreamlogError(Exception):
    """Base of all errors with a code. `details` are its machine-readable facts (field, limit, leader ...)."""

    code: ClassVar[str] = ""
    retriable: bool = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, object] = details

    @classmethod
    def restored(cls, message: str, details: Mapping[str, object]) -> Self:
        """The error that another process raised, from its message and details."""
        error = cls.__new__(cls)
        StreamlogError.__init__(error, message)
        error.details = details
        return error

    def permanent(self) -> Self:
        """The same, not retriable: where a retry of the call does not help, or may do harm."""
        error = self.restored(self.message, self.details)
        error.retriable = False
        return error

    def __str__(self) -> str:
        return self.message

    def _text(self, name: str) -> str | None:
        value = self.details.get(name)
        return value if isinstance(value, str) else None

    def _number(self, name: str) -> int | None:
        value = self.details.get(name)
        return value if isinstance(value, int) else None


def all_errors() -> Mapping[str, type[StreamlogError]]:
    """Code -> class, for every class of the tree."""
    found: dict[str, type[StreamlogError]] = {}
    pending = list(StreamlogError.__subclasses__())
    while pending:
        error = pending.pop()
        if error.code in found:
            raise InvariantError(f"two errors share the code {error.code}")
        found[error.code] = error
        pending.extend(error.__subclasses__())
    return found
