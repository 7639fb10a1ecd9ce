"""Users and their passwords. Passwords are kept as argon2id hashes alone.

Each change of a user gives it another `stamp`. A session remembers the stamp of its login, and ends when it differs.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from msgspec import Struct
from sqlalchemy import Engine, delete, func, insert, select, update
from sqlalchemy.exc import DatabaseError, IntegrityError

from streamlog.console.access.database import NAME_MAX, USERS, AccessError, reason
from streamlog.console.access.roles import UserRole

USERS_MAX: Final = 1_000
PASSWORD_MIN: Final = 8
PASSWORD_MAX: Final = 1_024
"""Characters."""
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@-]{{0,{NAME_MAX - 1}}}")
_STAMP_BITS: Final = 62


class StoredUser(Struct, frozen=True):
    name: str
    role: UserRole
    stamp: int


class Users:
    """Blocking; `check` takes tens of milliseconds of CPU and 64 MiB, by argon2's design."""

    def __init__(self, engine: Engine, hasher: PasswordHasher | None = None) -> None:
        """`hasher`: None: the library's parameters."""
        self._engine = engine
        self._hasher = hasher or PasswordHasher()
        self._no_user = self._hasher.hash(secrets.token_hex(16))

    def close(self) -> None:
        """Closes the database."""
        self._engine.dispose()

    def add(self, name: str, password: str, role: UserRole) -> None:
        """AccessError."""
        if not _NAME.fullmatch(name):
            raise AccessError(
                f"{name!r} is not a user name: give 1 to {NAME_MAX} letters, digits, '.', '_', '@' or '-', "
                "starting with a letter or digit."
            )
        row = {"name": name, "password": self._hashed(password), "role": int(role), "stamp": _stamp()}
        try:
            with self._engine.begin() as connection:
                if (connection.execute(select(func.count()).select_from(USERS)).scalar() or 0) >= USERS_MAX:
                    raise AccessError(f"There are {USERS_MAX} users, the maximum: delete one first.")
                connection.execute(insert(USERS).values(row))
        except IntegrityError:
            raise AccessError(
                f"User {name} exists: change it with 'streamlogctl console user role|password'."
            ) from None
        except DatabaseError as error:
            raise _unusable(error) from None

    def list(self) -> list[StoredUser]:
        """By name."""
        try:
            with self._engine.connect() as connection:
                rows = connection.execute(select(USERS.c.name, USERS.c.role, USERS.c.stamp).order_by(USERS.c.name))
                return [StoredUser(row.name, UserRole(row.role), row.stamp) for row in rows]
        except DatabaseError as error:
            raise _unusable(error) from None

    def find(self, name: str) -> StoredUser | None:
        return next((one for one in self.list() if one.name == name), None)

    def set_role(self, name: str, role: UserRole) -> None:
        self._change(name, {"role": int(role)})

    def set_password(self, name: str, password: str) -> None:
        self._change(name, {"password": self._hashed(password)})

    def delete(self, name: str) -> None:
        try:
            with self._engine.begin() as connection:
                if connection.execute(delete(USERS).where(USERS.c.name == name)).rowcount == 0:
                    raise _unknown(name)
        except DatabaseError as error:
            raise _unusable(error) from None

    def _change(self, name: str, values: dict[str, object]) -> None:
        try:
            with self._engine.begin() as connection:
                change = update(USERS).where(USERS.c.name == name).values({**values, "stamp": _stamp()})
                if connection.execute(change).rowcount == 0:
                    raise _unknown(name)
        except DatabaseError as error:
            raise _unusable(error) from None

    def check(self, name: str, password: str) -> StoredUser | None:
        """The user, if the password is right. An unknown name takes as long as a wrong password."""
        try:
            with self._engine.connect() as connection:
                row = connection.execute(select(USERS).where(USERS.c.name == name[: NAME_MAX + 1])).one_or_none()
        except DatabaseError as error:
            raise _unusable(error) from None
        if len(password) > PASSWORD_MAX:
            return None
        try:
            self._hasher.verify(self._no_user if row is None else row.password, password)
        except (Argon2Error, InvalidHashError, UnicodeEncodeError):
            return None
        return None if row is None else StoredUser(row.name, UserRole(row.role), row.stamp)

    def _hashed(self, password: str) -> str:
        if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
            raise AccessError(f"The password must have {PASSWORD_MIN} to {PASSWORD_MAX} characters.")
        try:
            return self._hasher.hash(password)
        except UnicodeEncodeError:
            raise AccessError("The password is not valid Unicode text.") from None


def _stamp() -> int:
    return secrets.randbits(_STAMP_BITS)


def _unknown(name: str) -> AccessError:
    return AccessError(f"There is no user {name!r}; list the users with 'streamlogctl console user list'.")


def _unusable(error: DatabaseError) -> AccessError:
    return AccessError(f"The users cannot be read or written: {reason(error)}.")
