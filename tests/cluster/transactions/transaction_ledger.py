"""What the writers did, by their responses, and what must be in the logs then (FAULTS I2, I4, I14).

whole      of each transaction all records are there, or none
reported   all of one whose commit was confirmed; none of one that was aborted, or whose end was not requested
once       no value twice
seen       readers, in the middle of it all, have seen nothing else
offsets    the group of a writer stands where its last committed transaction has put it
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

Wrong = Callable[[str, str], None]
MARK: Final = b"#"
"""First byte of a value that was written in a transaction."""
NOTHING: Final = -1


class Outcome(enum.Enum):
    OPEN = "open"  # its end was not requested, or its abort, without a response
    UNKNOWN = "unknown"  # a commit was asked for
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction(Struct):
    writer: str
    number: int  # of all, in the order in which they began; of one writer in the order of its epochs
    values: list[bytes] = field(default_factory=list)  # those that were sent
    offset: int = NOTHING  # that it commits
    outcome: Outcome = Outcome.OPEN

    def next_value(self) -> bytes:
        value = MARK + b"%d/%d" % (self.number, len(self.values))
        self.values.append(value)
        return value


class Ledger:
    """`wrong`: gets the invariant and what is wrong."""

    def __init__(self, wrong: Wrong) -> None:
        self.transactions: list[Transaction] = []
        self.seen: set[bytes] = set()
        self._wrong = wrong

    def begin(self, writer: str) -> Transaction:
        transaction = Transaction(writer, len(self.transactions))
        self.transactions.append(transaction)
        return transaction

    def decide(self, transaction: Transaction, outcome: Outcome) -> None:
        """A client got this response."""
        before = transaction.outcome
        if outcome is Outcome.COMMITTED and before is Outcome.OPEN:
            self._wrong("I2", f"{transaction} is committed without a request")
        if {before, outcome} == {Outcome.COMMITTED, Outcome.ABORTED}:
            self._wrong("I2", f"{transaction} was reported as {before.value}, and now {outcome.value}")
        transaction.outcome = outcome

    def given(self, values: Sequence[bytes | None]) -> None:
        """To a reader of committed records."""
        self.seen.update(value for value in values if value is not None and value.startswith(MARK))

    def check(self, final: Sequence[bytes | None], places: Mapping[str, int]) -> None:
        """`final`: all that can be read as committed in the end; `places`: of each writer's group."""
        counts = Counter(value for value in final if value is not None and value.startswith(MARK))
        for value, count in counts.items():
            if count > 1:
                self._wrong("I4", f"{value!r} stands {count} times")
        last = dict.fromkeys(places, NOTHING)
        for one in self.transactions:
            there = [value for value in one.values if value in counts]
            if 0 < len(there) < len(one.values):
                self._wrong("I2", f"torn: {one}, of which there is {there}")
            elif one.outcome is Outcome.COMMITTED and len(there) < len(one.values):
                self._wrong("I1", f"lost: {one}")
            elif one.outcome in (Outcome.ABORTED, Outcome.OPEN) and there:
                self._wrong("I2", f"of one that was not committed: {one}")
            if one.offset != NOTHING and (there or one.outcome is Outcome.COMMITTED):
                last[one.writer] = one.offset
        known = {value for one in self.transactions for value in one.values}
        if strange := sorted(counts.keys() - known):
            self._wrong("I2", f"no writer has written {strange[:3]}")
        if gone := sorted(self.seen - counts.keys()):
            self._wrong("I2", f"read as committed, and gone: {gone[:3]}")
        if last != dict(places):
            self._wrong("I14", f"groups stand at {dict(places)}, their transactions have put them to {last}")

    def counts(self) -> Counter[str]:
        return Counter(f"transactions {one.outcome.value}" for one in self.transactions)
