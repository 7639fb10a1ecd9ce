"""The audit log: what was changed through the console, by whom, from where, with which result; refusals and logins.

A change is written before it is made, with the result UNDER_WAY, and again when it has ended: what the console was
doing when it stopped is found afterwards. A change that cannot be recorded is not made.

Names only, never a value, a password or what someone typed as a user name that does not exist.

Each kind is bounded on its own, so that a flood of logins or refusals does not push out the changes. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Final

from msgspec import Struct
from sqlalchemy import Delete, Engine, Update, delete, func, insert, or_, select, update
from sqlalchemy.exc import DatabaseError

from streamlog.console.access.database import AUDIT, TARGET_MAX, AccessError, reason

UNDER_WAY: Final = "under way"
STOPPED: Final = "unknown: the console stopped meanwhile"
PAGE_MAX: Final = 500
_CLEANED_EACH: Final = 100


class Kind(Enum):
    CHANGE = "change"
    REFUSAL = "refusal"
    LOGIN = "login"


KEPT: Final = {Kind.CHANGE: 100_000, Kind.REFUSAL: 20_000, Kind.LOGIN: 20_000}
"""Lines of each kind; older ones are deleted."""


class AuditLine(Struct, frozen=True, kw_only=True):
    id: int
    at_ms: int
    kind: str
    who: str
    address: str
    action: str
    target: str
    result: str


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Empty: any. `text`: in the action, the target or the result."""

    who: str = ""
    kind: str = ""
    text: str = ""
    since_ms: int = 0


class AuditLog:
    def __init__(self, engine: Engine, now_s: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._now_s = now_s
        self._added = 0
        self._write(update(AUDIT).where(AUDIT.c.result == UNDER_WAY).values(result=STOPPED))

    def add(self, kind: Kind, who: str, address: str, action: str, target: str, result: str) -> int:
        """Its id. AccessError."""
        row = {
            "at_ms": int(self._now_s() * 1000),
            "kind": kind.value,
            "who": who[:200],
            "address": address[:64],
            "action": action[:64],
            "target": target[:TARGET_MAX],
            "result": result[:200],
        }
        try:
            with self._engine.begin() as connection:
                number = int(connection.execute(insert(AUDIT).values(row).returning(AUDIT.c.id)).scalar_one())
        except DatabaseError as error:
            raise _unusable(error) from None
        self._added += 1
        if self._added % _CLEANED_EACH == 0:
            self.clean()
        return number

    def set_result(self, number: int, result: str) -> None:
        self._write(update(AUDIT).where(AUDIT.c.id == number).values(result=result[:200]))

    def clean(self) -> None:
        """Deletes the oldest lines beyond each kind's number. AccessError."""
        for kind, kept in KEPT.items():
            ids = select(AUDIT.c.id).where(AUDIT.c.kind == kind.value).order_by(AUDIT.c.id.desc())
            last = ids.offset(kept).limit(1).scalar_subquery()
            self._write(delete(AUDIT).where(AUDIT.c.kind == kind.value, AUDIT.c.id <= last))

    def lines(self, chosen: AuditFilter, *, before: int | None = None, limit: int = PAGE_MAX) -> list[AuditLine]:
        """The newest first; `before`: those with a lower id."""
        query = select(AUDIT).where(AUDIT.c.at_ms >= chosen.since_ms)
        if before is not None:
            query = query.where(AUDIT.c.id < before)
        if chosen.who:
            query = query.where(AUDIT.c.who == chosen.who)
        if chosen.kind:
            query = query.where(AUDIT.c.kind == chosen.kind)
        if chosen.text:
            query = query.where(
                or_(
                    *(
                        func.lower(column).contains(chosen.text.lower(), autoescape=True)
                        for column in (AUDIT.c.action, AUDIT.c.target, AUDIT.c.result)
                    )
                )
            )
        try:
            with self._engine.connect() as connection:
                rows = connection.execute(query.order_by(AUDIT.c.id.desc()).limit(min(limit, PAGE_MAX)))
                return [AuditLine(**row._mapping) for row in rows]
        except DatabaseError as error:
            raise _unusable(error) from None

    def _write(self, statement: Update | Delete) -> None:
        try:
            with self._engine.begin() as connection:
                connection.execute(statement)
        except DatabaseError as error:
            raise _unusable(error) from None


def _unusable(error: DatabaseError) -> AccessError:
    return AccessError(f"The audit log cannot be read or written: {reason(error)}.")
