"""Driver processes: programs that do with a client of their language what commands say (docs/conformance.md)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from types import TracebackType
from typing import Any, Final, Self

import pytest

from tests.clients.builds import LANGUAGES, built

OWN: Final = os.environ.get("STREAMLOG_DRIVER", "")
"""The command of a driver that is not one of this repository."""

CLIENTS: Final = ("python", *LANGUAGES, *(("own",) if OWN else ()))
TIMEOUT_S: Final = 90.0
"""For what must come to pass: a bound against hanging."""

LINE_BYTES_MAX: Final = 64 * 1024 * 1024


class Failed(Exception):
    """A command was answered with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


def command_of(client: str) -> list[str]:
    """Skips the test where the client cannot be built here."""
    if client == "python":
        return [sys.executable, "-m", "tests.clients.python_driver"]
    if client == "own":
        return shlex.split(OWN)
    return built(client).program("conformance")


class Driver:
    """`async with`. One command at a time."""

    def __init__(self, client: str, servers: str) -> None:
        self._client = client
        self._servers = servers
        self._number = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *command_of(self._client),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        await self("connect", servers=self._servers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def __call__(self, command: str, *, timeout_s: float = TIMEOUT_S, **arguments: Any) -> dict[str, Any]:
        """Its result. Failed if it is answered with an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._number += 1
        request = {"id": self._number, "command": command, "timeout_ms": round(timeout_s * 1000), **arguments}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()
        line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s + TIMEOUT_S)
        assert line, f"the driver of {self._client} ended at {command}"
        answer = json.loads(line)
        assert answer["id"] == self._number
        if "error" in answer:
            raise Failed(answer["error"]["code"], answer["error"]["message"])
        return dict(answer["result"])

    async def refused(self, command: str, **arguments: Any) -> str:
        """The code of the error that the command is answered with."""
        with pytest.raises(Failed) as caught:
            await self(command, **arguments)
        return caught.value.code
