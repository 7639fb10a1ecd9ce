"""The last offset of each key in the dirty part of a log, bounded in memory.

Keys of up to 16 bytes are stored as they are, longer ones as their 16-byte BLAKE2b digest: of two keys that collide one
would count as overwritten, with a probability of 2^-64 for 2^32 keys (Kafka does the same with MD5).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from streamlog.model import Offset

KEY_BYTES: Final = 16
# What CPython 3.11 takes for an entry: bytes object of 17 (50 -> 64), int (32), slot at two thirds load (about 100).
ENTRY_BYTES: Final = 200


def fingerprint(key: bytes) -> bytes:
    """At most 17 bytes; a digest is longer than any key that is stored as it is."""
    return key if len(key) <= KEY_BYTES else b"\0" + blake2b(key, digest_size=KEY_BYTES).digest()


class KeyMap:
    """`memory_bytes` is `log.cleaner.dedupe.buffer.size`; `end_offset` is one past the last batch that is in it."""

    def __init__(self, memory_bytes: int, start_offset: Offset) -> None:
        self._entries_max = max(1, memory_bytes // ENTRY_BYTES)
        self._last: dict[bytes, Offset] = {}
        self.start_offset = start_offset
        self.end_offset = start_offset

    def __len__(self) -> int:
        return len(self._last)

    def has_space_for(self, keys: int) -> bool:
        """Whether a batch of so many records certainly fits. An empty map accepts any batch."""
        return not self._last or len(self._last) + keys <= self._entries_max

    def put(self, key: bytes, offset: Offset) -> None:
        self._last[fingerprint(key)] = offset

    def is_latest(self, key: bytes, offset: Offset) -> bool:
        """False: the key occurs at a higher offset."""
        last = self._last.get(fingerprint(key))
        return last is None or offset >= last
