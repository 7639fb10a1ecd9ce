"""Slows down guessing of passwords: by address and by user name, each with a growing pause after failures.

The pause of a user name is short, so that a stranger cannot keep the user out; that of an address is longer. Memory is
bounded: beyond ENTRIES_MAX the entry that failed the longest ago is dropped. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from msgspec import Struct

ENTRIES_MAX: Final = 10_000
FORGOTTEN_AFTER_S: Final = 3_600.0
FREE: Final = {"user": 5, "address": 10}
"""Failures without a pause."""
PAUSE_MAX_S: Final = {"user": 30.0, "address": 300.0}


class _Failures(Struct):
    count: int
    last_s: float
    until_s: float


class LoginThrottle:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._failures: dict[tuple[str, str], _Failures] = {}  # the one that failed last is the last

    def __len__(self) -> int:
        return len(self._failures)

    def wait_s(self, user: str, address: str) -> float:
        """0: the password may be checked."""
        now_s = self._now_s()
        known = (self._failures.get(key) for key in _keys(user, address))
        return max(0.0, *(0.0 if one is None else one.until_s - now_s for one in known))

    def failed(self, user: str, address: str) -> None:
        now_s = self._now_s()
        for key in _keys(user, address):
            before = self._failures.pop(key, None)
            count = 1 if before is None or now_s - before.last_s > FORGOTTEN_AFTER_S else before.count + 1
            beyond = min(count - FREE[key[0]], 20)
            pause_s = min(PAUSE_MAX_S[key[0]], 2.0**beyond) if beyond >= 0 else 0.0
            self._failures[key] = _Failures(count, now_s, now_s + pause_s)
        while len(self._failures) > ENTRIES_MAX:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, user: str, address: str) -> None:
        """After `failed` of the same login, which is taken back. The address keeps its earlier failures: one known
        password must not pay for guessing others.
        """
        of_user, of_address = _keys(user, address)
        self._failures.pop(of_user, None)
        before = self._failures.get(of_address)
        if before is not None:
            before.count -= 1
            before.until_s = before.last_s
            if before.count == 0:
                del self._failures[of_address]


def _keys(user: str, address: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("user", user[:64]), ("address", network_of(address))


def network_of(address: str) -> str:
    """One subscriber has a whole /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
