"""What a table shows of its rows: filtered, sorted, one page of them. Pure; it runs on the server.

The browser has one page of rows only, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

Row = Mapping[str, object]

PAGE_SIZES: Final = (25, 50, 100)


class Column(NamedTuple):
    """Rows are sorted by the value of `field`, and show it as `show` writes it; in red where it `is_bad`."""

    field: str
    name: str
    show: Callable[[object], str] | None = None
    is_bad: Callable[[object], bool] | None = None


class TableState(Struct, frozen=True, kw_only=True):
    """What a user chose, from a browser: `checked` bounds it."""

    page: int = 1  # from 1
    page_size: int = PAGE_SIZES[0]
    sort: str = ""  # a field; empty: in the order of the rows
    descending: bool = False
    filter: str = ""

    def checked(self, columns: Sequence[Column]) -> TableState:
        return replace(
            self,
            page=max(1, self.page),
            page_size=self.page_size if self.page_size in PAGE_SIZES else PAGE_SIZES[0],
            sort=self.sort if any(column.field == self.sort for column in columns) else "",
        )


class TableView(Struct, frozen=True):
    rows: Sequence[Row]  # of the page
    found: int  # rows that the filter leaves
    page: int  # the last one, where the chosen one is beyond it


def view(rows: Sequence[Row], columns: Sequence[Column], state: TableState) -> TableView:
    """`state`: checked."""
    wanted = state.filter.strip().casefold()
    found = [row for row in rows if _matches(row, columns, wanted)] if wanted else list(rows)
    if state.sort:
        known = [row for row in found if row.get(state.sort) not in (None, "")]
        unknown = [row for row in found if row.get(state.sort) in (None, "")]
        known.sort(key=lambda row: _order(row[state.sort]), reverse=state.descending)
        found = known + unknown
    pages = max(1, -(-len(found) // state.page_size))
    page = min(state.page, pages)
    begin = (page - 1) * state.page_size
    return TableView(found[begin : begin + state.page_size], len(found), page)


def cells(row: Row, columns: Sequence[Column]) -> dict[str, object]:
    """As the table shows them."""
    return {column.field: _cell(row.get(column.field), column) for column in columns}


def _cell(value: object, column: Column) -> object:
    if value is None:
        return ""
    return value if column.show is None else column.show(value)


def _matches(row: Row, columns: Sequence[Column], wanted: str) -> bool:
    return any(wanted in str(_cell(row.get(column.field), column)).casefold() for column in columns)


def _order(value: object) -> tuple[int, float, str]:
    """Numbers before text."""
    if isinstance(value, int | float):
        return 0, value, ""
    return 1, 0, str(value).casefold()
