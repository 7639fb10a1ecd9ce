"""Offsets committed in transactions that are still open (SEMANTICS 7, KIP-447).

    record of a transaction --> pending --commit marker----------------------------------> takes effect
                                        --abort marker-----------------------------------> dropped
                                        --a later record of the same key takes effect----> dropped

The later record in the log wins, whatever the order of the markers: the same as after compaction.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamlog.groups.records import GroupRecord, OffsetKey, OffsetValue
from streamlog.model import ProducerId


class PendingOffsets:
    """Of one partition of `__consumer_offsets`; owned by its shard, which calls it in log order."""

    def __init__(self) -> None:
        self._by_producer: dict[ProducerId, dict[OffsetKey, tuple[int, OffsetValue]]] = {}
        self._by_key: dict[OffsetKey, dict[ProducerId, int]] = {}  # the same, by key; serial numbers
        self._serial = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, producer_id: ProducerId, key: OffsetKey, value: OffsetValue) -> None:
        self._serial += 1
        self._by_producer.setdefault(producer_id, {})[key] = (self._serial, value)
        self._by_key.setdefault(key, {})[producer_id] = self._serial

    def on_record(self, key: OffsetKey) -> None:
        """A non-transactional record: it takes effect at once."""
        if key in self._by_key:
            self._forget(key, self._serial)

    def end(self, producer_id: ProducerId, *, commit: bool) -> tuple[GroupRecord, ...]:
        """The producer's marker: the records that take effect now."""
        ended = self._by_producer.pop(producer_id, {})
        for key in ended:
            self._drop(key, producer_id)
        if not commit:
            return ()
        for key, (serial, _) in ended.items():
            self._forget(key, serial)
        return tuple(GroupRecord(key, value) for key, (_, value) in ended.items())

    def __contains__(self, key: OffsetKey) -> bool:
        return key in self._by_key

    def of_group(self, group: str) -> Iterator[OffsetKey]:
        """By topic and partition."""
        yield from sorted(key for key in self._by_key if key.group == group)

    def by_group(self) -> dict[str, list[OffsetKey]]:
        found: dict[str, list[OffsetKey]] = {}
        for key in self._by_key:
            found.setdefault(key.group, []).append(key)
        return found

    def _forget(self, key: OffsetKey, serial_max: int) -> None:
        """Drop those up to this serial number: a later record has taken effect."""
        older = [producer for producer, serial in self._by_key.get(key, {}).items() if serial <= serial_max]
        for producer_id in older:
            own = self._by_producer[producer_id]
            del own[key]
            if not own:
                del self._by_producer[producer_id]
            self._drop(key, producer_id)

    def _drop(self, key: OffsetKey, producer_id: ProducerId) -> None:
        producers = self._by_key[key]
        del producers[producer_id]
        if not producers:
            del self._by_key[key]
