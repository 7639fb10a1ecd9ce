"""A PostgreSQL server of its own on loopback, for tests of the console's tables in another database than SQLite."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from streamlog.daemon.free_ports import free_ports

PASSWORD: Final = "not-shown-to-anyone"
START_S: Final = 60.0
DRIVER: Final = "psycopg"
USERS: Final = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; one of these then owns it."""


def missing() -> str:
    """Why there is no server here; empty: there can be one."""
    if _program("postgres") is None or _program("initdb") is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    if find_spec(DRIVER) is None:
        return f"{DRIVER} is not installed (pip install 'psycopg[binary]')"
    return ""


class PostgreSql:
    """Started and stopped by tests; the data stay."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        [self._port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql+{DRIVER}://console:{PASSWORD}@127.0.0.1:{self._port}/postgres"
        secret = directory / "password"
        secret.write_text(PASSWORD)
        _own(secret)
        initdb = [_program("initdb"), "-D", directory / "data", "-U", "console", "-A", "scram-sha-256", "--no-sync"]
        subprocess.run([*map(str, initdb), f"--pwfile={secret}"], check=True, capture_output=True, **_as_user())

    def start(self) -> None:
        """Returns once it takes connections."""
        server = [_program("postgres"), "-D", self._directory / "data", "-p", self._port, "-h", "127.0.0.1", "-k", ""]
        with open(self._directory / "log", "wb") as log:
            self._process = subprocess.Popen([*map(str, server)], stdout=log, stderr=log, **_as_user())
        deadline_s = time.monotonic() + START_S
        while not self._answers():
            assert time.monotonic() < deadline_s, (self._directory / "log").read_text()

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        try:
            psycopg.connect(self.url.replace(f"+{DRIVER}", ""), connect_timeout=2).close()
        except psycopg.OperationalError:
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                return False
            raise AssertionError((self._directory / "log").read_text()) from None
        return True

    def stop(self) -> None:
        """Closes all connections (SIGINT: PostgreSQL's fast shutdown)."""
        if self._process is not None:
            self._process.send_signal(2)
            self._process.wait(120)
            self._process = None


@contextmanager
def server() -> Iterator[PostgreSql]:
    """In a directory that its user can reach, which pytest's are not."""
    directory = Path(tempfile.mkdtemp(prefix="streamlog-postgresql-"))
    _own(directory)
    try:
        found = PostgreSql(directory)
        found.start()
        try:
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(directory)


def _program(name: str) -> Path | None:
    """The newest one; Debian keeps them off the PATH."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    return max(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]), default=None)


def _user() -> pwd.struct_passwd | None:
    """None: as who runs the tests."""
    if os.geteuid() != 0:
        return None
    known = {one.pw_name: one for one in pwd.getpwall()}
    return next(known[name] for name in USERS if name in known)


def _as_user() -> dict[str, Any]:
    user = _user()
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def _own(path: Path) -> None:
    user = _user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
