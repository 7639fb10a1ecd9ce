"""A page of a list that several nodes hold parts of, for a caller who may not see all of it.

A round gets the rows of all nodes behind a name, up to the end of the shortest page of a node. That end is the name of
a row, which the caller may not be allowed to see, so it must not become the caller's page token. For such a caller
rounds follow each other until the page is full, and the token is the last name on it; or until the list ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from msgspec import Struct

Row = TypeVar("Row")

_ROUND_ENTRIES: Final = 1_000


class Round(Struct, Generic[Row], frozen=True, kw_only=True):
    rows: list[Row]  # that the caller may see, by rising name
    known_end: str | None  # further rows may follow behind this name; None: these are all


def round_size(size: int, guard: object | None) -> int:
    """Entries of a round: of a caller who may see few of them, more than its page has."""
    return size if guard is None else max(size, _ROUND_ENTRIES)


async def visible_rows(
    list_behind: Callable[[str], Awaitable[Round[Row]]], start: str, size: int, *, is_guarded: bool
) -> Round[Row]:
    """Rows behind `start`: of a guarded caller at least `size`, or all. `known_end` of the last round."""
    rows: list[Row] = []
    while True:
        found = await list_behind(start)
        rows += found.rows
        if not is_guarded or found.known_end is None or len(rows) >= size:
            return Round(rows=rows, known_end=found.known_end)
        start = found.known_end


def following_token(found: Round[Row], shown: int, name: Callable[[Row], str], *, is_guarded: bool) -> str:
    """The token after the first `shown` rows of `visible_rows`. Empty: no further page."""
    if shown < len(found.rows):
        return name(found.rows[shown - 1])
    if found.known_end is None:
        return ""
    return name(found.rows[-1]) if is_guarded else found.known_end
