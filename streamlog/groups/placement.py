"""Which partition of `__consumer_offsets` stores a group (SEMANTICS 9): Kafka's rule, for compatible files."""

from __future__ import annotations

from streamlog.model import PartitionId

OFFSETS_TOPIC = "__consumer_offsets"


def partition_of(group: str, partition_count: int) -> PartitionId:
    """abs(hash) % count, where the hash is that of Java's String and abs of the smallest int is 0."""
    hashed = java_hash(group)
    return PartitionId((0 if hashed == -(2**31) else abs(hashed)) % partition_count)


def java_hash(text: str) -> int:
    """String.hashCode: a signed 32-bit number over the UTF-16 units."""
    units = memoryview(text.encode("utf-16-le", errors="surrogatepass")).cast("H")
    hashed = 0
    for unit in units:
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
