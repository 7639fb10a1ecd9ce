"""Time series in a database: SQLite by default, another one by its URL.

    tier      step      kept for
    0         10 s      1 day
    1         1 min     7 days
    2         10 min    90 days

A point of a coarser tier is the mean of the finer ones. A value that has not changed since the last point of its series
is written again only REPEATS times within the tier's retention, and is filled in when reading: idle series take little
space. The series SAMPLED has a point for each sample, so that a time in which the console did not run is a gap and not
a level line.

What happens to a corrupt file, or to one that is replaced while the console runs, is in `history_database`.

All calls block, and are made in one worker thread (`ClusterSampler`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Final

from msgspec import Struct
from sqlalchemy import (
    Column,
    Connection,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
)
from sqlalchemy.exc import DatabaseError

from streamlog.console.collection.history_database import HistoryDatabase, HistoryError, reason, set_up_schema
from streamlog.console.collection.rates import Series

SCHEMA_VERSION: Final = 1
SAMPLED: Final[Series] = ("console.looked", "")
GAP_STEPS: Final = 3
"""A longer pause between samples is a gap."""
REPEATS: Final = 24
"""How often an unchanged value is written within the retention of its tier: else its only point would be deleted."""
POINTS_MAX: Final = 2_200
"""Of one line of a chart; the coarsest tier may have more."""
SIZE_BYTES_MAX: Final = 512 << 20
"""Of an SQLite file; above it the oldest tenth of the tier with most points is deleted, until it is enough."""

NAME_MAX: Final = 600
"""Characters of a series' name; PostgreSQL refuses more."""

_METADATA: Final = MetaData()
_SCHEMA: Final = Table("schema", _METADATA, Column("version", Integer, nullable=False))
_SERIES: Final = Table(
    "series",
    _METADATA,
    Column("id", Integer, primary_key=True),
    Column("what", String(64), nullable=False),
    Column("name", String(NAME_MAX), nullable=False),
    UniqueConstraint("what", "name"),
)
_POINTS: Final = Table(
    "points",
    _METADATA,
    Column("series", Integer, ForeignKey("series.id"), nullable=False),
    Column("tier", Integer, nullable=False),
    Column("at", Integer, nullable=False),  # seconds since 1970, a multiple of the tier's step
    Column("value", Float, nullable=False),
    PrimaryKeyConstraint("series", "tier", "at"),
    sqlite_with_rowid=False,
)


class Tier(Struct, frozen=True):
    step_s: int
    kept_s: int


TIERS: Final = (Tier(10, 86_400), Tier(60, 7 * 86_400), Tier(600, 90 * 86_400))


class Point(Struct, frozen=True):
    at_s: int
    value: float | None  # None: no samples from here to the next point


class _Gathering(Struct):
    """The sum of the values in the current step of a tier."""

    at_s: int
    sum: float = 0.0
    count: int = 0


class SampleHistory:
    """Used by one process, in one thread."""

    def __init__(self, database: HistoryDatabase) -> None:
        self.database = database  # other parts of the console keep tables in it, too
        self._opened_count = database.opened_count
        self._ids: dict[Series, int] = {}
        self._last: dict[tuple[int, int], Point] = {}  # (series, tier) -> the last one written
        self._gathering: dict[tuple[int, int], _Gathering] = {}
        self._written_s = 0.0  # when the last sample was written
        self._sampled: Set[Series] = frozenset()  # what it had

    @classmethod
    def open(cls, url: str) -> SampleHistory:
        """`url`: as SQLAlchemy's, such as sqlite:////data/history.db. HistoryError."""
        database = HistoryDatabase(url)
        database.open(_set_up)
        return cls(database)

    def close(self) -> None:
        self.database.close()

    def write(self, at_s: float, points: Mapping[Series, float]) -> None:
        """At most once in ten seconds. HistoryError where the database cannot be written.

        When the clock was set back, all values are written again: the earlier ones stand at later times.
        """
        self.database.check()
        if self.database.opened_count != self._opened_count:
            self._opened_count = self.database.opened_count
            self._forget()
        if at_s < self._written_s:
            self._forget()
        self._written_s = at_s
        written = {**points, SAMPLED: 1.0}
        self._sampled = written.keys()
        with self._transaction("written") as connection:
            rows = []
            for series, value in written.items():
                number = self._id_of(connection, series)
                for tier, one in enumerate(TIERS):
                    step_s = int(at_s) // one.step_s * one.step_s
                    rows += self._gather(number, tier, step_s, value, always=series == SAMPLED)
            if rows:
                _replace(connection, rows)

    @contextmanager
    def _transaction(self, what: str) -> Iterator[Connection]:
        try:
            with self.database.engine.begin() as connection:
                yield connection
        except BaseException as error:
            self._forget()  # it was rolled back: the ids that it gave are in no row
            if not isinstance(error, DatabaseError):
                raise
            self.database.suspect(error)
            raise HistoryError(f"The history cannot be {what}: {reason(error)}") from None

    def _forget(self) -> None:
        """What the database has."""
        self._ids.clear()
        self._last.clear()
        self._gathering.clear()

    def _id_of(self, connection: Connection, series: Series) -> int:
        number = self._ids.get(series)
        if number is None:
            what, name = _stored(series)
            found = connection.execute(select(_SERIES.c.id).where(_SERIES.c.what == what, _SERIES.c.name == name))
            number = found.scalar()
            if number is None:
                made = connection.execute(insert(_SERIES).values(what=what, name=name).returning(_SERIES.c.id))
                number = int(made.scalar_one())
            self._ids[series] = number
        return number

    def _gather(self, series: int, tier: int, at_s: int, value: float, *, always: bool) -> list[dict[str, float]]:
        """The rows to write now. A step is written when the next one starts; in the finest tier immediately."""
        if tier == 0:
            return self._row(series, tier, at_s, value, always=always)
        gathering = self._gathering.get((series, tier))
        rows: list[dict[str, float]] = []
        if gathering is not None and gathering.at_s != at_s:
            rows = self._row(series, tier, gathering.at_s, gathering.sum / gathering.count, always=always)
            gathering = None
        if gathering is None:
            gathering = self._gathering[series, tier] = _Gathering(at_s)
        gathering.sum += value
        gathering.count += 1
        return rows

    def _row(self, series: int, tier: int, at_s: int, value: float, *, always: bool) -> list[dict[str, float]]:
        last = self._last.get((series, tier))
        repeated_s = TIERS[tier].kept_s // REPEATS
        if last is not None and last.value == value and at_s < last.at_s + repeated_s and not always:
            return []
        self._last[series, tier] = Point(at_s, value)
        return [{"series": series, "tier": tier, "at": at_s, "value": value}]

    def read(self, series: Series, from_s: float, to_s: float) -> list[Point]:
        """In order of time, from the finest tier that fits the span. A point's value is valid until the next one.
        HistoryError where the database cannot be read.
        """
        try:
            return self._read(series, from_s, to_s)
        except DatabaseError as error:
            self.database.suspect(error)
            raise HistoryError(f"The history cannot be read: {reason(error)}") from None

    def _read(self, series: Series, from_s: float, to_s: float) -> list[Point]:
        number, looked = self._number(series), self._number(SAMPLED)
        if number is None or looked is None:
            return []
        tier = self._tier(from_s, to_s)
        with self.database.engine.connect() as connection:
            before = connection.execute(
                select(_POINTS.c.value)
                .where(_POINTS.c.series == number, _POINTS.c.tier == tier, _POINTS.c.at < from_s)
                .order_by(_POINTS.c.at.desc())
                .limit(1)
            ).scalar()
            points = dict(self._inside(connection, number, tier, from_s, to_s))
            times = [at_s for at_s, _ in self._inside(connection, looked, tier, from_s, to_s)]
        return _levels(times, points, before, GAP_STEPS * TIERS[tier].step_s)

    @staticmethod
    def _inside(connection: Connection, number: int, tier: int, from_s: float, to_s: float) -> list[tuple[int, float]]:
        rows = connection.execute(
            select(_POINTS.c.at, _POINTS.c.value)
            .where(_POINTS.c.series == number, _POINTS.c.tier == tier, _POINTS.c.at.between(from_s, to_s))
            .order_by(_POINTS.c.at)
        )
        return [(row.at, row.value) for row in rows]

    @staticmethod
    def _tier(from_s: float, to_s: float) -> int:
        """The finest tier that covers the span with no more points than a chart can show."""
        span_s = to_s - from_s
        for number, tier in enumerate(TIERS):
            if span_s <= min(tier.kept_s, POINTS_MAX * tier.step_s):
                return number
        return len(TIERS) - 1

    def _number(self, series: Series) -> int | None:
        what, name = _stored(series)
        with self.database.engine.connect() as connection:
            return connection.execute(
                select(_SERIES.c.id).where(_SERIES.c.what == what, _SERIES.c.name == name)
            ).scalar()

    def clean(self, now_s: float) -> None:
        """Deletes points beyond the retention of their tier or the maximum size, and series that are no more. To be
        called periodically.
        """
        with self._transaction("cleaned") as connection:
            for number, tier in enumerate(TIERS):
                connection.execute(delete(_POINTS).where(_POINTS.c.tier == number, _POINTS.c.at < now_s - tier.kept_s))
            while self.database.used_bytes(connection) > SIZE_BYTES_MAX and self._remove_oldest(connection):
                pass
            self._remove_series(connection)

    def _remove_series(self, connection: Connection) -> None:
        """Those without points, and from memory those that the last sample did not have."""
        gone = {number for series, number in self._ids.items() if series not in self._sampled}
        rows = [
            row
            for (number, tier), one in self._gathering.items()
            if number in gone
            for row in self._row(number, tier, one.at_s, one.sum / one.count, always=False)
        ]
        if rows:
            _replace(connection, rows)
        unused = delete(_SERIES).where(~exists().where(_POINTS.c.series == _SERIES.c.id)).returning(_SERIES.c.id)
        gone.update(connection.execute(unused).scalars())
        self._ids = {series: number for series, number in self._ids.items() if number not in gone}
        self._last = {key: value for key, value in self._last.items() if key[0] not in gone}
        self._gathering = {key: one for key, one in self._gathering.items() if key[0] not in gone}

    @staticmethod
    def _remove_oldest(connection: Connection) -> bool:
        """False: there are no points."""
        largest = connection.execute(
            select(_POINTS.c.tier, func.min(_POINTS.c.at), func.max(_POINTS.c.at))
            .group_by(_POINTS.c.tier)
            .order_by(func.count().desc())
            .limit(1)
        ).one_or_none()
        if largest is None:
            return False
        tier, oldest, newest = largest
        connection.execute(
            delete(_POINTS).where(_POINTS.c.tier == tier, _POINTS.c.at <= oldest + (newest - oldest) // 10)
        )
        return True


def _stored(series: Series) -> Series:
    """A longer name, or one with a character that PostgreSQL refuses, is kept as its beginning and a digest."""
    what, name = series
    if len(name) <= NAME_MAX and "\0" not in name:
        return series
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return what, f"{name[: NAME_MAX - 33]}~{digest}".replace("\0", "\ufffd")


def _set_up(connection: Connection) -> None:
    set_up_schema(connection, _SCHEMA, SCHEMA_VERSION, "The history was")


def _replace(connection: Connection, rows: Sequence[Mapping[str, float]]) -> None:
    """Overwrites a step that was written before (the console was restarted within it)."""
    connection.execute(
        delete(_POINTS).where(
            _POINTS.c.series == bindparam("series"),
            _POINTS.c.tier == bindparam("tier"),
            _POINTS.c.at == bindparam("at"),
        ),
        [{"series": row["series"], "tier": row["tier"], "at": row["at"]} for row in rows],
    )
    connection.execute(insert(_POINTS), list(rows))


def _levels(times: Sequence[int], points: Mapping[int, float], before: float | None, gap_s: int) -> list[Point]:
    """The values at the sampled times: only the ends of a level stretch, and gaps where there are no samples."""
    found: list[Point] = []
    value, last_s = before, None
    for at_s in times:
        changed = at_s in points and points[at_s] != value
        gap = last_s is not None and at_s - last_s > gap_s
        if last_s is not None and value is not None and (changed or gap) and found and found[-1].at_s != last_s:
            found.append(Point(last_s, value))
        if gap and found and last_s is not None:
            found.append(Point(last_s + 1, None))
        value = points.get(at_s, value)
        if value is not None and (changed or gap or not found):
            found.append(Point(at_s, value))
        last_s = at_s
    if last_s is not None and value is not None and found and found[-1].at_s != last_s:
        found.append(Point(last_s, value))
    return found
