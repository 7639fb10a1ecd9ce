"""What a table sends to a browser: one page, whatever the browser asks for."""

from __future__ import annotations

from streamlog.console.widgets.formats import bytes_text
from streamlog.console.widgets.table_view import PAGE_SIZES, Column, Row, TableState, cells, view

COLUMNS = (Column("name", "Name"), Column("size", "Size", bytes_text))
ROWS: list[Row] = [{"name": f"t{number}", "size": number * 1024} for number in range(1000)]


def shown(state: TableState, rows: list[Row] = ROWS) -> list[object]:
    return [row["name"] for row in view(rows, COLUMNS, state.checked(COLUMNS)).rows]


def test_a_browser_gets_one_page_of_many_rows() -> None:
    assert shown(TableState()) == [f"t{number}" for number in range(25)]
    assert shown(TableState(page=40)) == [f"t{number}" for number in range(975, 1000)]


def test_a_page_beyond_the_last_one_is_the_last_one() -> None:
    found = view(ROWS, COLUMNS, TableState(page=10**9).checked(COLUMNS))
    assert (found.page, found.found, len(found.rows)) == (40, 1000, 25)
    assert view([], COLUMNS, TableState(page=7).checked(COLUMNS)).page == 1


def test_rows_are_sorted_by_value_and_not_by_text() -> None:
    assert shown(TableState(sort="size", descending=True))[:2] == ["t999", "t998"]
    mixed: list[Row] = [{"name": name, "size": size} for name, size in (("a", "unknown"), ("b", None), ("c", 9))]
    assert shown(TableState(sort="size"), mixed) == ["c", "a", "b"]
    assert shown(TableState(sort="size", descending=True), mixed) == ["a", "c", "b"], "unknown values stay last"


def test_the_filter_looks_at_what_is_shown() -> None:
    assert shown(TableState(filter=" T99 ")) == ["t99", *(f"t99{number}" for number in range(10))]
    assert "t1" in shown(TableState(filter="1.0 KiB"))
    assert shown(TableState(filter="<script>")) == []


def test_nonsense_of_a_browser_is_replaced() -> None:
    state = TableState(page=-3, page_size=10**9, sort="__class__").checked(COLUMNS)
    assert state == TableState()
    assert state.page_size in PAGE_SIZES


def test_cells_have_the_fields_of_the_columns_alone() -> None:
    assert cells({"name": "a", "size": None, "secret": "x"}, COLUMNS) == {"name": "a", "size": ""}
