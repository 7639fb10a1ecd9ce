"""What the process asks of the machine before it begins."""

from __future__ import annotations

import resource


def raise_file_limit() -> int:
    """A segment has four files, a connection one: as many as the machine lets us have. The limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
