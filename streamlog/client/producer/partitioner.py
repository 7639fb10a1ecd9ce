"""Which partition a record goes to (SEMANTICS 12).

    default          by the key's hash (murmur2, as Kafka's clients, so both choose the same partition for a key);
                     without a key None
    round-robin      each record to the next partition
    random           any partition
    integer-modulo   the key, parsed as an integer, modulo the partition count; without a key None
    module.Class     the user's

A partitioner sees bytes and counts, never the network; it may keep state of its own. None leaves a record to the sticky
choice (`topic_table`): one partition for batch.size bytes, then another, preferably with a short queue (KIP-794).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from streamlog.client.producer.given_records import shown
from streamlog.errors import InvalidConfigError, InvalidRequestError
from streamlog.ports import Random
from streamlog.records.columns.lazy_numpy import np

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


class Partitioner(Protocol):
    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        """From 0 to partition_count - 1; None: the sticky choice."""
        ...


def murmur2(data: bytes) -> int:
    """MurmurHash2 with Kafka's seed, as a signed 32-bit number: murmur2(b"21") = -973932308."""
    size = len(data)
    h = _SEED ^ size
    end = size & ~3
    for at in range(0, end, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if size & 3:
        h = (h ^ int.from_bytes(data[end:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def hash_partition(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def hash_partitions(keys: Sequence[bytes], partition_count: int) -> list[int]:
    """As `hash_partition` of each, many at a time: keys of one size are hashed by the column."""
    sizes = np.fromiter(map(len, keys), np.int64, len(keys))
    out = np.empty(len(keys), np.int64)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        data = b"".join(keys) if len(rows) == len(keys) else b"".join([keys[row] for row in rows.tolist()])
        out[rows] = (_murmur2_column(data, len(rows), size) & 0x7FFFFFFF) % partition_count
    found: list[int] = out.tolist()
    return found


def _murmur2_column(data: bytes, count: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Of `count` concatenated keys of `size` bytes. Arithmetic wraps at 32 bits, as intended."""
    rows = np.frombuffer(data, np.uint8).reshape(count, size)
    h = np.full(count, _SEED ^ size, np.uint32)
    end = size & ~3
    m, shift_24, shift_13, shift_15 = (np.uint32(number) for number in (_M, 24, 13, 15))
    words = np.ascontiguousarray(rows[:, :end]).view("<u4") if end else np.empty((count, 0), np.uint32)
    for at in range(end // 4):
        k = words[:, at] * m
        h = (h * m) ^ ((k ^ (k >> shift_24)) * m)
    if size & 3:
        for at in range(size - end):
            h ^= rows[:, end + at].astype(np.uint32) << np.uint32(8 * at)
        h *= m
    h = (h ^ (h >> shift_13)) * m
    return h ^ (h >> shift_15)


class HashPartitioner:
    """The default."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        return None if key is None else hash_partition(key, partition_count)


class StickyPartitioner:
    """`partitioner.ignore.keys`: records with a key are treated like those without."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        return None


class RoundRobinPartitioner:
    def __init__(self) -> None:
        self._next: dict[str, int] = {}  # by topic

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return turn % partition_count


class RandomPartitioner:
    def __init__(self, random: Random) -> None:
        self._random = random

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        return self._random.randrange(partition_count)


class IntegerModuloPartitioner:
    def partition(self, topic: str, key: bytes | None, value: bytes | None, partition_count: int) -> int | None:
        """InvalidRequestError for a key that is not a decimal integer."""
        if key is None:
            return None
        try:
            return int(key) % partition_count
        except ValueError:
            shown = key[:32].decode("utf-8", "replace")
            raise InvalidRequestError(
                f"key {shown!r} is not an integer, which partitioner.class=integer-modulo requires", field="key"
            ) from None


def partitioner_of(name: str, random: Random, *, ignore_keys: bool = False) -> Partitioner:
    """What `partitioner.class` names. InvalidConfigError."""
    match name:
        case "default":
            return StickyPartitioner() if ignore_keys else HashPartitioner()
        case "round-robin":
            return RoundRobinPartitioner()
        case "random":
            return RandomPartitioner(random)
        case "integer-modulo":
            return IntegerModuloPartitioner()
    return _of_user(name)


def check_partitioner(given: object) -> None:
    """What a program gives as `partitioner`. InvalidConfigError."""
    if given is None or (not isinstance(given, (type, str, bytes)) and callable(getattr(given, "partition", None))):
        return
    raise InvalidConfigError(
        f"partitioner must be an object with a method `partition` or None, not {shown(given)}; the built-in ones are"
        " named by partitioner_class: default, round-robin, random, integer-modulo",
        field="partitioner",
    )


def _of_user(name: str) -> Partitioner:
    module, _, attribute = name.rpartition(".")
    try:
        made = cast(Callable[[], object], getattr(importlib.import_module(module), attribute))()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InvalidConfigError(
            f"partitioner.class={name}: must be default, round-robin, random, integer-modulo, or module.Class, a class"
            f" whose constructor takes no arguments: {error}",
            field="partitioner.class",
        ) from error
    if not callable(getattr(made, "partition", None)):
        raise InvalidConfigError(
            f"partitioner.class={name}: the class has no method partition", field="partitioner.class"
        )
    return cast(Partitioner, made)
