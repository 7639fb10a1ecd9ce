"""What a dashboard shows: sections of figures and charts, and the choices above them."""

from __future__ import annotations

from msgspec import Struct


class Query(Struct, frozen=True):
    expression: str
    legend: str = ""


class Number(Struct, frozen=True):
    """One figure, now. `alarm_from`: red from here on; `alarm_below`: red below."""

    title: str
    help: str
    expression: str
    unit: str = "short"
    alarm_from: float | None = None
    alarm_below: float | None = None


class Chart(Struct, frozen=True):
    title: str
    help: str
    unit: str
    queries: tuple[Query, ...]
    may_be_negative: bool = False


class Section(Struct, frozen=True):
    title: str
    numbers: tuple[Number, ...] = ()
    charts: tuple[Chart, ...] = ()


class Choice(Struct, frozen=True):
    """A variable of the page, with the label's values to choose from."""

    name: str
    label: str
    metric: str


class Page(Struct, frozen=True):
    name: str  # of the file, and the end of the uid
    title: str
    help: str
    sections: tuple[Section, ...]
    choices: tuple[Choice, ...] = ()
