"""Salted passwords: what is kept, and what is refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streamlog.access.passwords import NO_PASSWORD, check_user, generated, is_password, salted
from streamlog.errors import InvalidRequestError


def test_a_password_is_checked_against_its_hash() -> None:
    stored = salted("correct horse")
    assert is_password(stored, "correct horse")
    assert not is_password(stored, "correct horsE")
    assert not is_password(stored, "\ud800")
    assert not is_password(NO_PASSWORD, "")
    assert salted("correct horse") != stored, "another salt"
    assert b"correct" not in stored.hash + stored.salt


def test_generated_ones_differ() -> None:
    assert len({generated() for _ in range(100)}) == 100
    assert min(len(generated()) for _ in range(100)) == 32


def test_what_is_refused() -> None:
    for password in ("short", "x" * 1_025, "\ud800" * 8):
        with pytest.raises(InvalidRequestError):
            salted(password)
    good = replace(NO_PASSWORD)
    check_user("alice", good)
    for name in ("", "a b", "a:b", ".a", "x" * 129, "é"):
        with pytest.raises(InvalidRequestError):
            check_user(name, good)
    for bad in (replace(good, cost=13), replace(good, cost=17), replace(good, salt=b"x"), replace(good, hash=b"x")):
        with pytest.raises(InvalidRequestError):
            check_user("alice", bad)
