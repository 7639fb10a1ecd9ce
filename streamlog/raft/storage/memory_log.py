"""The replicated log in memory: consecutive entries behind a base, and which of them are durable.

The base is an entry that is committed, applied and covered by the snapshot (or FIRST_ENTRY), kept for its index and
term. Each entry has the number of the change that added it (journal.py): the numbers rise along the log, also after a
truncation, so one number says which entries are durable.
"""

from __future__ import annotations

from bisect import bisect_right

from streamlog.errors import InvariantError
from streamlog.model import RaftIndex, RaftTerm
from streamlog.raft.protocol.entries import FIRST_ENTRY, NO_OP, LogEntry


class MemoryLog:
    """Read by all parts of the core, changed by the journal only."""

    def __init__(self) -> None:
        # Three lists of equal length; [0] is the base. Indexes are consecutive, terms and numbers never fall.
        self._entries: list[LogEntry] = [FIRST_ENTRY]
        self._numbers: list[int] = [0]  # of the change that added the entry; the base counts as durable
        self._sizes: list[int] = [0]  # bytes of data up to and with the entry, from an arbitrary start

    @property
    def base(self) -> LogEntry:
        return self._entries[0]

    @property
    def last(self) -> LogEntry:
        return self._entries[-1]

    def __len__(self) -> int:
        """The base included."""
        return len(self._entries)

    def at(self, place: int) -> LogEntry:
        """By position from the base, negative ones from the end, as PySyncObj uses it."""
        return self._entries[place]

    def between(self, begin: int, end: int) -> list[LogEntry]:
        """By positions, half-open."""
        return self._entries[begin:end]

    def term_at(self, index: int) -> RaftTerm | None:
        """None outside [base, last]."""
        place = index - self.base.index
        return self._entries[place].term if 0 <= place < len(self._entries) else None

    def entry(self, index: int) -> LogEntry:
        """`index` must be in [base, last]."""
        return self._entries[index - self.base.index]

    def batch(self, first: int, bytes_max: int) -> list[LogEntry]:
        """Entries from `first` on with at most `bytes_max` bytes of data together, but at least one if there is one.

        `first` must be above the base.
        """
        begin = first - self.base.index
        end = bisect_right(self._sizes, self._sizes[begin - 1] + bytes_max)
        return self._entries[begin : max(end, begin + 1)]

    def bytes_between(self, first: int, end: int) -> int:
        """Bytes of data of the entries in [first, end), as far as they are behind the base."""
        last = min(end - 1 - self.base.index, len(self._sizes) - 1)
        begin = max(first - 1 - self.base.index, 0)
        return max(0, self._sizes[last] - self._sizes[begin]) if last >= 0 else 0

    def tail_within(self, bytes_max: int) -> RaftIndex:
        """The lowest index behind which there are at most `bytes_max` bytes of data."""
        place = bisect_right(self._sizes, self._sizes[-1] - bytes_max - 1)
        return self._entries[min(place, len(self._entries) - 1)].index

    def number_at(self, index: int) -> int:
        """Of the change that added the entry at `index`, which must be in [base, last]; 0 for the base."""
        return self._numbers[index - self.base.index]

    def index_at_number(self, number: int) -> RaftIndex:
        """The last entry added by a change up to `number`; at least the base."""
        return self._entries[bisect_right(self._numbers, number) - 1].index

    # Changes.

    def _take_entry(self, entry: LogEntry, number: int) -> None:
        """InvariantError unless it is the next one, of no older term."""
        last = self._entries[-1]
        if entry.index != last.index + 1 or entry.term < last.term or not entry.data:
            raise InvariantError(
                f"entry {entry.index} of term {entry.term} cannot follow {last.index} of term {last.term}"
            )
        self._entries.append(entry)
        self._numbers.append(number)
        self._sizes.append(self._sizes[-1] + len(entry.data))

    def _cut_tail(self, first: RaftIndex) -> None:
        """Drop `first`, which must be in (base, last], and everything behind it."""
        place = first - self.base.index
        if not 0 < place < len(self._entries):
            raise InvariantError(f"truncation at {first} of a log of [{self.base.index}, {self.last.index}]")
        self._drop(slice(place, None))

    def _cut_head(self, base_index: RaftIndex) -> None:
        """Make the entry at `base_index` the base."""
        self._drop(slice(0, base_index - self.base.index))
        self._entries[0], self._numbers[0] = as_base(self.base.index, self.base.term), 0

    def _drop(self, dropped: slice) -> None:
        del self._entries[dropped], self._numbers[dropped], self._sizes[dropped]

    def _begin_behind(self, index: RaftIndex, term: RaftTerm) -> None:
        """Keep only a base."""
        self._entries, self._numbers, self._sizes = [as_base(index, term)], [0], [0]


def as_base(index: RaftIndex, term: RaftTerm) -> LogEntry:
    """Without its data, which are in the snapshot and never read again."""
    return LogEntry(NO_OP, index, term)
