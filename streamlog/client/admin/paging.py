"""Lists that nodes return in pages."""

from __future__ import annotations

from typing import Protocol

from streamlog.errors import UnknownServerError


class ListPage(Protocol):
    """A response with a page of a list."""

    @property
    def next_page_token(self) -> str: ...


def next_token(page: ListPage, token: str) -> str:
    """The token of the page after this one, which `token` requested; empty: this is the last page."""
    if page.next_page_token and page.next_page_token == token:
        raise UnknownServerError("a node returns the same page of a list again and again")
    return page.next_page_token
