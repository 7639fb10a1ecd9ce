"""Alarms in the console's database, in tables of their own, with a schema version of their own.

    alarm_states        firing alarms (pending ones start again with the process)
    alarm_events        what fired, was resolved, acknowledged: the history
    alarm_silences
    alarm_deliveries    notices, queued and ended

A state and the deliveries that follow from it are written in one transaction, before anything is sent. Bodies are JSON
of msgspec Structs: later releases add fields with defaults. All calls block, and are made in one worker thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from sqlalchemy import (
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
)
from sqlalchemy.exc import DatabaseError

from streamlog.console.alarms.conditions.assessments import Subject
from streamlog.console.alarms.deliveries import DeliveryStatus, NoticeDelivery
from streamlog.console.alarms.evaluation import AlarmState, Key, Silence
from streamlog.console.collection.history_database import HistoryDatabase, HistoryError, reason, set_up_schema

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
KEPT_S: Final = 90 * 86_400
ROWS_MAX: Final = 20_000
"""Of events, and of deliveries; above it the oldest are deleted."""

_METADATA: Final = MetaData()
_SCHEMA: Final = Table("alarm_schema", _METADATA, Column("version", Integer, nullable=False))
_STATES: Final = Table(
    "alarm_states",
    _METADATA,
    Column("rule", String(64), nullable=False),
    Column("subject", String(2000), nullable=False),
    Column("body", Text, nullable=False),
    PrimaryKeyConstraint("rule", "subject"),
)
_EVENTS: Final = Table(
    "alarm_events",
    _METADATA,
    Column("id", Integer, primary_key=True),
    Column("at", Float, nullable=False, index=True),
    Column("body", Text, nullable=False),
)
_SILENCES: Final = Table(
    "alarm_silences", _METADATA, Column("id", String(64), primary_key=True), Column("body", Text, nullable=False)
)
_DELIVERIES: Final = Table(
    "alarm_deliveries",
    _METADATA,
    Column("id", String(64), primary_key=True),
    Column("at", Float, nullable=False, index=True),
    Column("status", String(16), nullable=False),
    Column("body", Text, nullable=False),
)


class AlarmEvent(Struct, frozen=True, kw_only=True):
    """A line of the history."""

    at_s: float
    change: str
    rule: str
    subject: Subject
    severity: str
    summary: str
    by: str = ""  # the user; empty: the console itself


class Stored(Struct, frozen=True):
    alarms: Sequence[AlarmState]
    silences: Sequence[Silence]
    queued: Sequence[NoticeDelivery]  # in the order of their creation


class AlarmStore:
    """Every method raises HistoryError where the database cannot be used."""

    def __init__(self, database: HistoryDatabase) -> None:
        self._database = database
        try:
            database.add_tables(_set_up)
        except DatabaseError as error:
            raise HistoryError(f"The alarms cannot be opened: {reason(error)}") from None

    @property
    def opened_count(self) -> int:
        """Another number: the tables are those of another file, and may be empty."""
        return self._database.opened_count

    def load(self) -> Stored:
        try:
            with self._database.engine.connect() as connection:
                queued = select(_DELIVERIES.c.body).where(_DELIVERIES.c.status == DeliveryStatus.QUEUED.value)
                return Stored(
                    alarms=_bodies(connection, select(_STATES.c.body), AlarmState),
                    silences=_bodies(connection, select(_SILENCES.c.body), Silence),
                    queued=_bodies(connection, queued.order_by(_DELIVERIES.c.at), NoticeDelivery),
                )
        except DatabaseError as error:
            raise self._failed("read", error) from None

    def write(
        self,
        states: Sequence[AlarmState] = (),
        removed: Sequence[Key] = (),
        events: Sequence[AlarmEvent] = (),
        deliveries: Sequence[NoticeDelivery] = (),
        silences: Sequence[Silence] | None = None,
    ) -> None:
        """In one transaction. `silences`: all that there are from now on; None: unchanged."""
        try:
            with self._database.engine.begin() as connection:
                for rule, subject in [*removed, *(one.key for one in states)]:
                    connection.execute(
                        delete(_STATES).where(_STATES.c.rule == rule, _STATES.c.subject == _text(subject))
                    )
                _insert(
                    connection,
                    _STATES,
                    [{"rule": one.rule, "subject": _text(one.subject), "body": _text(one)} for one in states],
                )
                _insert(connection, _EVENTS, [{"at": one.at_s, "body": _text(one)} for one in events])
                for one in deliveries:
                    connection.execute(delete(_DELIVERIES).where(_DELIVERIES.c.id == one.delivery_id))
                _insert(
                    connection,
                    _DELIVERIES,
                    [
                        {
                            "id": one.delivery_id,
                            "at": one.created_at_s,
                            "status": one.status.value,
                            "body": _text(one),
                        }
                        for one in deliveries
                    ],
                )
                if silences is not None:
                    connection.execute(delete(_SILENCES))
                    _insert(connection, _SILENCES, [{"id": one.silence_id, "body": _text(one)} for one in silences])
        except DatabaseError as error:
            raise self._failed("written", error) from None

    def events(self, limit: int, offset: int = 0) -> list[AlarmEvent]:
        """The newest first."""
        wanted = select(_EVENTS.c.body).order_by(_EVENTS.c.id.desc()).limit(limit).offset(offset)
        return self._read(wanted, AlarmEvent)

    def deliveries(self, limit: int) -> list[NoticeDelivery]:
        """The newest first."""
        return self._read(select(_DELIVERIES.c.body).order_by(_DELIVERIES.c.at.desc()).limit(limit), NoticeDelivery)

    def _read(self, wanted: Any, kind: type[T]) -> list[T]:
        try:
            with self._database.engine.connect() as connection:
                return _bodies(connection, wanted, kind)
        except DatabaseError as error:
            raise self._failed("read", error) from None

    def clean(self, now_s: float) -> None:
        """Deletes what is older than KEPT_S or beyond ROWS_MAX. To be called periodically."""
        try:
            with self._database.engine.begin() as connection:
                for table, condition in (
                    (_EVENTS, _EVENTS.c.at == _EVENTS.c.at),
                    (_DELIVERIES, _DELIVERIES.c.status != DeliveryStatus.QUEUED.value),
                ):
                    oldest_s = now_s - KEPT_S
                    count = connection.execute(select(func.count()).select_from(table)).scalar_one()
                    if count > ROWS_MAX:
                        edge = select(table.c.at).order_by(table.c.at.desc()).limit(1).offset(ROWS_MAX)
                        oldest_s = max(oldest_s, connection.execute(edge).scalar_one())
                    connection.execute(delete(table).where(table.c.at <= oldest_s, condition))
        except DatabaseError as error:
            raise self._failed("cleaned", error) from None

    def _failed(self, what: str, error: DatabaseError) -> HistoryError:
        self._database.suspect(error)
        return HistoryError(f"The alarms cannot be {what}: {reason(error)}")


def _set_up(connection: Connection) -> None:
    set_up_schema(connection, _SCHEMA, SCHEMA_VERSION, "The alarms were")


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)


def _bodies(connection: Connection, wanted: Any, kind: type[T]) -> list[T]:
    """Without those that another release wrote and this one cannot read."""
    found = []
    for body in connection.execute(wanted).scalars():
        try:
            found.append(msgspec.json.decode(body, type=kind))
        except msgspec.MsgspecError:
            continue
    return found


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
