"""The caller where no users are configured: any user of this machine, as admin."""

from __future__ import annotations

import logging
from typing import Final

from streamlog.console.access.caller import LOCAL, Recording, User
from streamlog.console.access.roles import Action, Role
from streamlog.console.access.values import NOTHING, Protection

_log: Final = logging.getLogger(__name__)


class LocalCaller:
    def __init__(self, address: str) -> None:
        self._address = address

    @property
    def user(self) -> User | None:
        return LOCAL

    async def verified(self) -> User | None:
        return LOCAL

    def attempt(self, user: User | None, action: Action, target: str) -> Recording:
        return _Logged(f"{self._address}: {action.value}: {target}")

    def protection(self, topic: str, role: Role) -> Protection:
        return NOTHING


class _Logged:
    def __init__(self, what: str) -> None:
        self._what = what

    async def refused(self, why: str) -> None:
        _log.warning("%s: refused: %s", self._what, why)

    async def begin(self) -> None: ...

    async def end(self, result: str) -> None:
        _log.info("%s: %s", self._what, result)
