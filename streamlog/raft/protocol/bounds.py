"""Limits of the quorum's numbers, from peers and from files.

Terms, indexes and rounds are 64-bit on the wire. No intact quorum comes near 2**62, and one more still fits into every
format, so an accepted number never overflows.

A number may be in range and still be impossible. A term rises by one per election: a node that is TERM_JUMP_MAX behind
would have missed twenty years of three elections a second. So a term further above our own is never accepted; a forger
needs 2**31 messages, each with a disk sync, to exhaust the range. Likewise for the log.
"""

from __future__ import annotations

from typing import Final

from streamlog.errors import CorruptMessageError

TERM_MAX: Final = 1 << 62
INDEX_MAX: Final = 1 << 62
ROUND_MAX: Final = 1 << 62
TERM_JUMP_MAX: Final = 1 << 31
"""Above our own term."""
INDEX_JUMP_MAX: Final = 1 << 40
"""Beyond the end of our log."""
SNAPSHOT_BYTES_MAX: Final = 1 << 40
"""As a number; `QuorumSettings.snapshot_bytes_max` limits what is accepted."""
ENTRIES_MAX: Final = 1 << 20
"""In one message: a sender packs 1 MiB of data into it (settings.append_bytes_max), and none is empty."""
CLUSTER_ID_BYTES_MAX: Final = 255


def bounded(value: int, largest: int, what: str) -> int:
    """CorruptMessageError above `largest`."""
    if value > largest:
        raise CorruptMessageError(f"{what} {value} is above the limit of {largest}")
    return value
