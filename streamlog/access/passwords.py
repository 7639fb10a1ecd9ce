"""Passwords as salted hashes (scrypt, RFC 7914): what the metadata keeps of them, and the check.

The client that sets a password hashes it, as Kafka's tools do for SCRAM, so the password itself reaches a node only
when its user logs in. A check takes about 60 ms of CPU and 16 MiB: run it on a worker thread, few at a time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from msgspec import Struct

from streamlog.errors import InvalidRequestError

SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
COST: Final = 14
"""log2 of scrypt's N. With r = 8 a check takes 16 MiB."""
COST_MAX: Final = 16
PASSWORD_MIN: Final = 8
PASSWORD_MAX: Final = 1_024
"""Characters."""
_BLOCK: Final = 8
_USER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


class SaltedPassword(Struct, frozen=True, kw_only=True):
    salt: bytes
    hash: bytes
    cost: int = COST


NO_PASSWORD: Final = SaltedPassword(salt=bytes(SALT_BYTES), hash=bytes(HASH_BYTES))
"""Checked in place of an unknown user's, so that an unknown name takes as long as a wrong password."""


def salted(password: str) -> SaltedPassword:
    """Takes as long as a check. InvalidRequestError."""
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise InvalidRequestError(
            f"a password must have {PASSWORD_MIN} to {PASSWORD_MAX} characters", field="password", limit=PASSWORD_MAX
        )
    try:
        data = password.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError("the password is not valid Unicode text", field="password") from None
    salt = secrets.token_bytes(SALT_BYTES)
    return SaltedPassword(salt=salt, hash=_hashed(data, salt, COST), cost=COST)


def is_password(stored: SaltedPassword, password: str) -> bool:
    """Blocks."""
    try:
        data = password.encode()
    except UnicodeEncodeError:
        data = b""
    if len(password) > PASSWORD_MAX:
        return False
    return hmac.compare_digest(_hashed(data, stored.salt, stored.cost), stored.hash)


def generated() -> str:
    """A password that is not guessed: 192 random bits."""
    return secrets.token_urlsafe(24)


def check_user(name: str, password: SaltedPassword) -> None:
    """InvalidRequestError if a node could not check it, or at too high a cost."""
    check_user_name(name)
    if len(password.salt) != SALT_BYTES or len(password.hash) != HASH_BYTES or not COST <= password.cost <= COST_MAX:
        raise InvalidRequestError(
            f"the salted password must have {SALT_BYTES} bytes of salt, {HASH_BYTES} of hash, and a cost in "
            f"{COST}..{COST_MAX}",
            field="password",
            limit=COST_MAX,
        )


def check_user_name(name: str) -> None:
    if _USER_NAME.fullmatch(name) is None:
        raise InvalidRequestError(
            f"{name[:80]!r} is not a user name: give 1 to 128 letters, digits, '.', '_', '@' or '-', starting with a "
            "letter or digit",
            field="user",
        )


def _hashed(password: bytes, salt: bytes, cost: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=1 << cost, r=_BLOCK, p=1, maxmem=256 * _BLOCK << cost, dklen=HASH_BYTES
    )
