"""The database under the history and the alarms: its engine, and for SQLite the file, while the console runs.

    opened --intact-----------------------------> tables made or checked
           --corrupt----> moved aside, reported, a new file is created
    each write --file deleted, replaced, cut----> connections closed, opened again as above
               --corrupt, as SQLite says--------> the same

The file is named by its path alone: SQLite goes on in a file that was deleted or replaced, and everything written since
would be missing after the next start. So its device, inode and size are compared with what they were. Errors that say
nothing about the file's content (locked, no space, not readable) move nothing aside.

All calls block. `check` is called by one thread; other threads may use the engine meanwhile, and get an error at most.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Table, event, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError

from streamlog.console.database_waits import bounded_engine

_log: Final = logging.getLogger(__name__)

ASIDE_MAX: Final = 1_000
_NOT_OF_CONTENT: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)

SetUp = Callable[[Connection], None]


class HistoryError(Exception):
    """The database cannot be used."""


class HistoryDatabase:
    def __init__(self, url: str) -> None:
        """`url`: as SQLAlchemy's, such as sqlite:////data/history.db."""
        self.engine = bounded_engine(url)
        self.notice = ""  # what has happened to the file since the console started
        self.moved_aside = ""  # the new path of the last corrupt file
        self.opened_count = 0  # another number: the tables may be empty
        self._path = _sqlite_path(url)
        self._set_ups: list[SetUp] = []
        self._identity: tuple[int, int] | None = None
        self._size = 0
        self._is_suspect = False
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _set_up_sqlite)

    def open(self, set_up: SetUp) -> None:
        """`set_up`: makes the tables where they are missing. HistoryError."""
        self._set_ups = [set_up]
        self._open()

    def add_tables(self, set_up: SetUp) -> None:
        """More of them, now and in each new file. DatabaseError, and what `set_up` raises."""
        self._set_ups.append(set_up)
        with self.engine.begin() as connection:
            set_up(connection)

    def suspect(self, error: DatabaseError) -> None:
        """An error of a read or a write: the next `check` examines the file if the error says that it is corrupt."""
        self._is_suspect |= self._path is not None and _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

    def check(self) -> None:
        """Opens the file again if it is no longer the one that was opened. HistoryError."""
        if self._path is None:
            return
        change = "may be corrupt" if self._is_suspect else self._change(self._path)
        if change:
            self.engine.dispose()
            self._identity = None
            before, self.notice = self.notice, ""
            self._open()
            self._is_suspect = False
            happened = f"The history's file {self._path} {change} while the console ran."
            self.notice = f"{happened} {self.notice or 'What it holds now is used.'}"
            if self.notice != before:
                _log.warning("%s", self.notice)

    def size_bytes(self) -> int:
        """On disk: the SQLite file and its write-ahead log; 0 for another database."""
        return 0 if self._path is None else sum(map(_size_of, (self._path, _beside(self._path, "-wal"))))

    def used_bytes(self, connection: Connection) -> int:
        """Of the SQLite file without its free pages, which are used before it grows; 0 for another database."""
        if self._path is None:
            return 0
        pages, free, page_bytes = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * page_bytes)

    def close(self) -> None:
        self.engine.dispose()

    def _open(self) -> None:
        try:
            try:
                self._begin()
            except DatabaseError as error:
                if self._path is None or not self._path.exists() or not _is_of_content(error):
                    raise
                self._move_aside(self._path)
                self._begin()
        except DatabaseError as error:
            raise HistoryError(f"The history at {self._shown} cannot be opened: {reason(error)}.") from None
        except OSError as error:
            raise HistoryError(f"The history at {self._path} cannot be opened: {error.strerror}.") from None

    def _begin(self) -> None:
        """DatabaseError; OSError: the file cannot be created; HistoryError: tables of a newer release."""
        path = self._path
        if path is not None:  # names of groups and topics: for this user alone; SQLite's other files get its mode
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        try:
            with self.engine.begin() as connection:
                if path is not None:
                    _check_file(connection)
                for set_up in self._set_ups:
                    set_up(connection)
        except BaseException:
            self.engine.dispose()
            raise
        self.opened_count += 1
        if path is not None:
            found = path.stat()
            self._identity, self._size = (found.st_dev, found.st_ino), found.st_size

    def _change(self, path: Path) -> str:
        """Why the file is another one; empty: it is not. SQLite's own file only grows."""
        try:
            found = path.stat()
        except OSError:
            return "was deleted"
        if (found.st_dev, found.st_ino) != self._identity:
            return "was replaced"
        if found.st_size < self._size:
            return "was overwritten"
        self._size = found.st_size
        return ""

    def _move_aside(self, path: Path) -> None:
        """HistoryError: it is still there."""
        aside = path.with_suffix(".damaged")
        try:
            for number in range(1, ASIDE_MAX):
                if not aside.exists():
                    break
                aside = path.with_suffix(f".damaged-{number}")
            os.replace(path, aside)
            for suffix in ("-wal", "-shm"):
                _beside(path, suffix).unlink(missing_ok=True)
        except OSError as error:
            raise HistoryError(
                f"The history at {path} is corrupt and cannot be moved to {aside}: {error.strerror}. "
                "Make the directory writable, or move the file away."
            ) from None
        self.moved_aside = str(aside)
        self.notice = f"The history was corrupt and is kept as {aside}; a new one was created."

    @property
    def _shown(self) -> str:
        """Without a password."""
        return make_url(self.engine.url).render_as_string(hide_password=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def reason(error: DatabaseError) -> str:
    return str(error.orig).splitlines()[0]


def _is_of_content(error: DatabaseError) -> bool:
    """Whether SQLite says that the file is corrupt, no database, or has other tables."""
    return _code(error) not in _NOT_OF_CONTENT


def _code(error: DatabaseError) -> int:
    """Of an extended one the low byte, which is its kind."""
    return int(getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF


def _check_file(connection: Connection) -> None:
    """DatabaseError if the file is corrupt: SQLite reports some damage as an error, and some as rows."""
    [found, *_] = connection.exec_driver_sql("PRAGMA quick_check(1)").scalars().all()
    if found != "ok":
        raise DatabaseError("PRAGMA quick_check", None, sqlite3.DatabaseError(str(found)))


def _set_up_sqlite(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]  # a DB-API connection, which has no type of its own
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _sqlite_path(url: str) -> Path | None:
    """None: another database, or one in memory."""
    path = url.removeprefix("sqlite:///")
    return Path(path) if url.startswith("sqlite:///") and path not in ("", ":memory:") else None


def set_up_schema(connection: Connection, schema: Table, version: int, written: str) -> None:
    """Create the tables that are missing, and note their version in `schema`, one of them. `written`: by which subject
    the error begins that a newer release has written them (HistoryError).
    """
    schema.metadata.create_all(connection)
    found = connection.execute(select(schema.c.version)).scalar()
    if found is None:
        connection.execute(insert(schema).values(version=version))
    elif found > version:
        raise HistoryError(
            f"{written} written by a newer release (schema {found}, this one knows {version}): "
            "use that release, or another --data directory."
        )
