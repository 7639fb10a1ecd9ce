"""Log directories and the files in them."""

from __future__ import annotations

from streamlog.errors.base import StreamlogError


class StorageError(StreamlogError):
    """A write or sync failed. Permanent for the log directory: it is offline until the node restarts."""

    code = "STORAGE_ERROR"
    retriable = True


class LogDirectoryLockedError(StreamlogError):
    code = "LOG_DIRECTORY_LOCKED"


class InconsistentClusterError(StreamlogError):
    code = "INCONSISTENT_CLUSTER_ID"


class DamagedFileError(StreamlogError):
    """A file whose content cannot be trusted: which, where, why, and what to do."""

    code = "DAMAGED_FILE"

    def __init__(self, path: str, position: int, reason: str, remedy: str = "") -> None:
        tail = f"; {remedy}" if remedy else ""
        super().__init__(f"{path}: position {position}: {reason}{tail}", path=path, position=position, reason=reason)

    @property
    def path(self) -> str:
        return self._text("path") or ""

    @property
    def position(self) -> int:
        return self._number("position") or 0

    @property
    def reason(self) -> str:
        return self._text("reason") or self.message
