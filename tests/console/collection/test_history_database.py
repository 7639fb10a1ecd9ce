"""The history's file: deleted, replaced, overwritten or damaged while the console runs; what moves nothing aside."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="streamlog[console] is not installed")

from sqlalchemy import create_engine

from streamlog.console.collection import history_database as module
from streamlog.console.collection.history import Point, SampleHistory
from streamlog.console.collection.history_database import HistoryError

LAG = ("group.lag", "billing\norders")


def opened(directory: Path) -> SampleHistory:
    return SampleHistory.open(f"sqlite:///{directory}/history.db")


def filled(directory: Path, value: int) -> SampleHistory:
    history = opened(directory)
    for step in range(1_000):
        history.write(1_000 + step * 10, {LAG: value + step, ("group.lag", "other"): step})
    return history


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.parent / "other"
    other.mkdir()
    filled(other, 50_000).close()
    os.replace(other / "history.db", path)


def overwrite(path: Path) -> None:
    path.write_bytes(b"no database")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("change", "what", "aside", "kept"),
    [
        (delete, "was deleted", False, False),
        (replace, "was replaced", False, True),
        (overwrite, "was overwritten", True, False),
        (empty, "was overwritten", None, False),  # SQLite may write back enough of it for a valid file, or not
    ],
)
def test_another_file_is_used_from_the_next_write_on(
    tmp_path: Path, change: Callable[[Path], None], what: str, aside: bool | None, kept: bool
) -> None:
    history = filled(tmp_path, 0)
    with history.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    history.write(20_000, {LAG: 1})
    change(tmp_path / "history.db")
    history.write(20_010, {LAG: 7})
    assert what in history.database.notice
    if aside is not None:
        assert bool(history.database.moved_aside) is aside
    if aside:
        assert history.database.moved_aside in history.database.notice
        assert Path(history.database.moved_aside).exists()
    history.write(20_020, {LAG: 7})
    history.close()
    again = opened(tmp_path)  # what was written is in the file that has the name
    assert again.database.notice == ""
    assert again.read(LAG, 20_010, 20_100) == [Point(20_010, 7), Point(20_020, 7)]
    if aside is not None:
        assert bool(again.read(LAG, 1_000, 11_000)) is kept
    again.close()


def test_damage_that_a_read_finds_is_moved_aside_at_the_next_write(tmp_path: Path) -> None:
    filled(tmp_path, 0).close()
    history = opened(tmp_path)
    path = tmp_path / "history.db"
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:  # the size stays
        file.seek(4096)
        file.write(b"\xa5" * 4096 * (pages - 1))
    history.database.engine.dispose()  # SQLite's cache still has the pages
    with pytest.raises(HistoryError):
        history.read(LAG, 1_000, 11_000)
    history.write(20_000, {LAG: 7})
    assert history.database.moved_aside in history.database.notice
    assert history.read(LAG, 20_000, 20_100) == [Point(20_000, 7)]
    history.write(20_010, {LAG: 8})
    assert history.database.opened_count == 2
    history.close()


def test_a_corrupt_file_that_cannot_be_moved_is_an_error_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = opened(tmp_path)
    history.write(1_000, {LAG: 5})
    history.database.engine.dispose()  # its write-ahead log would repair the file
    overwrite(tmp_path / "history.db")

    def refuse(source: Path, _: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(source))

    with monkeypatch.context() as read_only:
        read_only.setattr(os, "replace", refuse)
        for _ in range(2):
            with pytest.raises(HistoryError, match="is corrupt and cannot be moved"):
                history.write(1_010, {LAG: 5})
    history.write(1_020, {LAG: 6})
    assert history.read(LAG, 1_000, 1_100) == [Point(1_020, 6)]
    history.close()


def test_a_locked_file_is_not_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path).close()
    monkeypatch.setattr(module, "bounded_engine", partial(create_engine, connect_args={"timeout": 0}))
    other = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    other.execute("PRAGMA journal_mode=DELETE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(HistoryError, match="locked"):
        opened(tmp_path)
    other.close()
    assert [path.name for path in tmp_path.iterdir()] == ["history.db"]
    opened(tmp_path).close()


def test_a_directory_that_vanishes_is_an_error_until_it_is_there_again(tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    history = opened(place)
    history.write(1_000, {LAG: 5})
    place.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(HistoryError, match="cannot be opened"):
            history.write(1_010, {LAG: 5})
    (tmp_path / "away").rename(place)
    history.write(1_020, {LAG: 6})
    assert history.read(LAG, 1_000, 1_100)[-1] == Point(1_020, 6)
    history.close()
