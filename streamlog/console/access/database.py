"""Users and the audit log in a database: `access.db` in the console's data directory, or the database of `--database`.

It is a file of its own: a corrupt history is moved aside and started again, which must never happen to users. A
database that cannot be opened stops the console.

The schema has a version. MIGRATIONS[n] brings version n to n + 1; a database of a newer release is refused.

All calls block: the console makes them in a worker thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError

from streamlog.console.database_waits import bounded_engine

ACCESS_FILE: Final = "access.db"
NAME_MAX: Final = 64
TARGET_MAX: Final = 1_000

_METADATA: Final = MetaData()
_SCHEMA: Final = Table("access_schema", _METADATA, Column("version", Integer, nullable=False))
USERS: Final = Table(
    "users",
    _METADATA,
    Column("name", String(NAME_MAX), primary_key=True),
    Column("password", String(255), nullable=False),  # argon2's own format, with its parameters and salt
    Column("role", Integer, nullable=False),
    Column("stamp", BigInteger, nullable=False),  # another one after each change: sessions of an older one end
)
AUDIT: Final = Table(
    "audit",
    _METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("who", String(200), nullable=False),
    Column("address", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("target", String(TARGET_MAX), nullable=False),
    Column("result", String(200), nullable=False),
    Index("audit_by_kind", "kind", "id"),
)

MIGRATIONS: tuple[Callable[[Connection], None], ...] = (lambda connection: _METADATA.create_all(connection),)


class AccessError(Exception):
    """Users, or the audit log, cannot be used as asked; the message is for the user."""


def opened(data: Path, database: str) -> Engine:
    """`database`: an URL of SQLAlchemy; empty: the file in `data`. AccessError, OSError."""
    url = database
    if not url:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = (data / ACCESS_FILE).absolute()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        url = f"sqlite:///{path}"
    try:
        engine = bounded_engine(url)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise AccessError(f"--database: {error}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
    try:
        with engine.begin() as connection:
            _migrate(connection)
    except DatabaseError as error:
        engine.dispose()
        where = make_url(url).render_as_string(hide_password=True)
        raise AccessError(f"The users at {where} cannot be opened: {reason(error)}.") from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def _migrate(connection: Connection) -> None:
    _SCHEMA.create(connection, checkfirst=True)
    version = connection.execute(select(_SCHEMA.c.version)).scalar()
    if version is None:
        version = 0
        connection.execute(insert(_SCHEMA).values(version=version))
    if version > len(MIGRATIONS):
        raise AccessError(
            f"The users were written by a newer release (schema {version}, this one knows {len(MIGRATIONS)}): "
            "use that release, or another --data directory."
        )
    for migrate in MIGRATIONS[version:]:
        migrate(connection)
    connection.execute(update(_SCHEMA).values(version=len(MIGRATIONS)))


def _set_up_sqlite(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]  # a DB-API connection, which has no type of its own
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()


def reason(error: DatabaseError) -> str:
    return str(error.orig).splitlines()[0]
