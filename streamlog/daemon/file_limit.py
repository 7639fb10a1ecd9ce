"""What the process asks of the machine before it begins."""

from __future__ import annotations

import resource
from typing import Final

FILES_WANTED: Final = 65_536
"""What a node may well need: Kafka recommends 100,000. Below it `file_limit_warning` has something to say."""


def raise_file_limit() -> int:
    """A segment has four files, a connection one: as many as the machine lets us have. The limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connections_max(wanted: int | None, file_limit: int) -> int:
    """`max.connections` as it holds: a quarter of the files, at least, is the log's."""
    return min(file_limit - file_limit // 4, wanted or file_limit)


def file_limit_warning(file_limit: int) -> str | None:
    if file_limit >= FILES_WANTED:
        return None
    return (
        f"this process may open {file_limit} files, {FILES_WANTED} are recommended: a segment has four, a connection "
        f"one. At most {connections_max(None, file_limit)} connections are served. Raise the hard limit: LimitNOFILE "
        f"of the service, or 'ulimit -Hn {FILES_WANTED}' before it is started"
    )
