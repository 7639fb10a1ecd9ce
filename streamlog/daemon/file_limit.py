"""The limit of open files: raised at the start, checked, and shared between connections and the log."""

from __future__ import annotations

import resource
from typing import Final

FILES_WANTED: Final = 65_536
"""Recommended minimum (Kafka recommends 100,000). Below it `file_limit_warning` warns."""


def raise_file_limit() -> int:
    """Raise the soft limit to the hard one; a segment has four files, a connection one. Returns the limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connections_max(wanted: int | None, file_limit: int) -> int:
    """The effective `max.connections`: at least a quarter of the files is reserved for the log."""
    return min(file_limit - file_limit // 4, wanted or file_limit)


def file_limit_warning(file_limit: int) -> str | None:
    if file_limit >= FILES_WANTED:
        return None
    return (
        f"this process may open {file_limit} files, {FILES_WANTED} are recommended: a segment has four, a connection "
        f"one. At most {connections_max(None, file_limit)} connections are served. Raise the hard limit: LimitNOFILE "
        f"of the service, or 'ulimit -Hn {FILES_WANTED}' before the start"
    )
