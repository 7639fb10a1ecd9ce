"""A table that sorts, filters and pages on the server, and stays as its user left it while its rows change.

    rows() -> table_view.view -> one page of cells -> browser
    the browser's page, order, filter -> TableState -> the same again

The state is in the page's address (`?sort=-lag&filter=bil`) where the table is addressed: one table a page. Cells are
shown as text. A row's link and buttons can be reached by keyboard, and so can the headings that sort.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from msgspec.structs import replace
from nicegui import context, ui

from streamlog.console.widgets.table_view import PAGE_SIZES, Column, Row, TableState, cells, view

Rows = Callable[[], Sequence[Row]]
Handler = Callable[[Any], Awaitable[object] | object]

_FILTER_MS: Final = 300
STYLE: Final = """
.table-sort, .table-link { background: none; border: 0; padding: 0; font: inherit; color: inherit; cursor: pointer;
  text-align: inherit; }
.table-link { text-decoration: underline; text-underline-offset: 2px; overflow-wrap: break-word; white-space: normal;
  display: inline-block; width: max-content; max-width: max(11rem, min(28rem, 40vw)); }
.table-action { color: #1f5fa8; min-height: 24px; padding: 0 4px; line-height: 1.5; }
.body--dark .table-action { color: #8ab8f0; }
.text-bad { color: #c62828; } .body--dark .text-bad { color: #ff8a80; }
.text-note { color: #555; } .body--dark .text-note { color: #bbb; }
.body--dark .q-btn--outline { --q-primary: #8ab8f0; --q-negative: #ff8a80; }
.table-wide td { white-space: normal; overflow-wrap: anywhere; }
.table-wide td.text-left { min-width: 7rem; }
.table-wide td.text-left:last-child { min-width: 22rem; }
.table-wide td.text-left:first-child { min-width: 6.5rem; overflow-wrap: break-word; }
.table-wide td.text-left:first-child:has(.table-link) { min-width: 0; }
"""


class _RowTable(ui.element, component="row_table.js"):
    """Its props: Quasar's, and those in its file."""


class LiveTable:
    """`to`: the address that a row's first cell links to; `on_open`: called with the row of a clicked first cell.
    `actions`: the names of a row's buttons, and what they do with it.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        rows: Rows,
        *,
        key: str,
        name: str,
        to: Callable[[Row], str] | None = None,
        on_open: Handler | None = None,
        actions: Callable[[Row], Sequence[str]] | None = None,
        on_action: Callable[[str, Any], Awaitable[object] | object] | None = None,
        empty: str = "There is nothing to show.",
        addressed: bool = False,
        wide: bool = False,
    ) -> None:
        self._columns, self._rows, self._key = columns, rows, key
        self._to, self._on_open, self._actions, self._on_action = to, on_open, actions, on_action
        self._addressed = addressed
        self._state = _from_address(columns) if addressed else TableState()
        self._drawn: object = None
        with ui.column().classes("w-full gap-2"):
            self._search = ui.input(placeholder="Filter", value=self._state.filter, on_change=self._filter)
            self._search.props(f'dense clearable debounce={_FILTER_MS} aria-label="Filter {name}"').classes("w-64")
            self._table = _RowTable()
        self._table.classes(f"w-full {'table-wide' if wide else ''}")
        options = json.dumps(list(PAGE_SIZES))
        self._table.props(f'flat bordered dense :rows-per-page-options="{options}" table-aria-label="{name}"')
        self._table.props["row-key"] = key
        self._table.props["no-data-label"] = empty
        self._table.props["rows-per-page-label"] = "Rows per page:"
        self._table.props["lead"] = columns[0].field
        self._table.props["opens"] = on_open is not None
        self._table.on("request", self._requested, ["pagination"])
        self._table.on("act", self._act)
        self.refresh()

    def _described(self, rows: Sequence[Row]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = [
            {
                "name": column.field,
                "label": column.name,
                "field": column.field,
                "sortable": True,
                "align": "right" if place > 0 and _is_number(rows, column.field) else "left",
            }
            for place, column in enumerate(self._columns)
        ]
        if self._actions is not None:
            found.append({"name": "_actions", "label": "Actions", "field": "_actions", "align": "left"})
        return found

    def refresh(self) -> None:
        """Reads the rows again. What is shown already is not sent again."""
        all_rows = self._rows()
        found = view(all_rows, self._columns, self._state)
        rows = [self._row(row) for row in found.rows]
        pagination = {
            "page": found.page,
            "rowsPerPage": self._state.page_size,
            "rowsNumber": found.found,
            "sortBy": self._state.sort or None,
            "descending": self._state.descending,
        }
        if (rows, pagination) == self._drawn:
            return
        self._drawn = (rows, pagination)
        self._search.set_visibility(len(all_rows) > PAGE_SIZES[0] or bool(self._state.filter))
        self._table.props["columns"] = self._described(all_rows)
        self._table.props["pagination"] = pagination
        self._table.props["rows"] = rows
        self._table.props["hide-pagination"] = found.found <= PAGE_SIZES[0]
        self._table.update()

    def _row(self, row: Row) -> dict[str, object]:
        shown = {self._key: row[self._key]} | cells(row, self._columns)
        bad = [one.field for one in self._columns if one.is_bad is not None and one.is_bad(row.get(one.field))]
        if bad:
            shown["_bad"] = bad
        if self._to is not None:
            shown["_to"] = self._to(row)
        if self._actions is not None:
            shown["_actions"] = list(self._actions(row))
        return shown

    def _requested(self, event: Any) -> None:
        given = event.args.get("pagination") or {}
        self._choose(
            TableState(
                page=_whole(given.get("page")),
                page_size=_whole(given.get("rowsPerPage")),
                sort=str(given.get("sortBy") or ""),
                descending=given.get("descending") is True,
                filter=self._state.filter,
            )
        )

    def _filter(self, event: Any) -> None:
        self._choose(replace(self._state, filter=str(event.value or ""), page=1))

    def _choose(self, state: TableState) -> None:
        self._state = state.checked(self._columns)
        self.refresh()
        if self._addressed:
            text = json.dumps(_to_address(self._state))
            ui.run_javascript(
                "const at = new URL(location.href);"
                "for (const name of ['filter', 'sort', 'page', 'rows']) at.searchParams.delete(name);"
                f"for (const [name, value] of new URLSearchParams({text})) at.searchParams.set(name, value);"
                "history.replaceState(history.state, '', at)"
            )

    async def _act(self, event: Any) -> None:
        """The row may have changed or disappeared since the browser got it."""
        row = next((row for row in self._rows() if row[self._key] == event.args.get("key")), None)
        if row is None:
            ui.notify("This row does not exist any more.", type="warning")
            return
        name = str(event.args.get("name"))
        result: object = None
        if name == "open" and self._on_open is not None:
            result = self._on_open(row)
        elif self._actions is not None and self._on_action is not None and name in self._actions(row):
            result = self._on_action(name, row)
        if isinstance(result, Awaitable):
            await result


def _from_address(columns: Sequence[Column]) -> TableState:
    given = context.client.request.query_params
    sort = given.get("sort", "")
    return TableState(
        page=_whole(given.get("page")),
        page_size=_whole(given.get("rows")),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        filter=given.get("filter", ""),
    ).checked(columns)


def _to_address(state: TableState) -> str:
    given: dict[str, object] = {}
    if state.filter:
        given["filter"] = state.filter
    if state.sort:
        given["sort"] = f"-{state.sort}" if state.descending else state.sort
    if state.page > 1:
        given["page"] = state.page
    if state.page_size != PAGE_SIZES[0]:
        given["rows"] = state.page_size
    return urlencode(given)


def _is_number(rows: Sequence[Row], name: str) -> bool:
    """Of the first row that has a value."""
    found = next((value for row in rows if (value := row.get(name)) not in (None, "")), None)
    return isinstance(found, int | float)


def _whole(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 0
