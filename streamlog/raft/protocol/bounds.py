"""What the numbers of the quorum may be, wherever they come from: a peer, a file.

Terms, indexes and rounds are 64-bit on the wire. None that is honest comes near 2**62, and one step above it still fits
into every format that has them, so nothing overflows in a node that has taken one.

A number may be in range and absurd all the same. A term rises by one an election: a node that is TERM_JUMP_MAX behind
would have missed twenty years of elections, three a second. So a term that is further above our own is not taken, from
nobody; a forger needs 2**31 messages, each with a sync of the disk, to use the range up. Likewise for the log.
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
"""As a number; `QuorumSettings.snapshot_bytes_max` bounds what is taken."""
ENTRIES_MAX: Final = 1 << 20
"""In one message: a sender packs 1 MiB of data into it (settings.append_bytes_max), and none is empty."""
CLUSTER_ID_BYTES_MAX: Final = 255


def bounded(value: int, largest: int, what: str) -> int:
    """CorruptMessageError above `largest`."""
    if value > largest:
        raise CorruptMessageError(f"{what} {value} is above {largest}")
    return value
