"""The fake cluster behind a real gRPC server on loopback, in a thread of its own, and streamlogctl against it."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from click.testing import CliRunner, Result

from streamlog.api.service import stream_handlers, unary_handlers
from streamlog.cli.main import main
from streamlog.ports import system
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from tests.client.admin.fake_admin import FakeAdmin

USAGE: Final = 2


def refused(done: Result) -> str:
    """What is said on standard error of a command that could not be done: sentences, and no traceback."""
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert all(line.startswith("Error: ") and line.endswith(".") for line in done.stderr.splitlines())
    return done.stderr


class ServedCluster:
    """Between commands its state is the test's to change."""

    def __init__(self) -> None:
        self.cluster = FakeAdmin()
        self.crashes: list[Exception] = []
        self.address = ""
        self._up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> ServedCluster:
        self._thread.start()
        assert self._up.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self.crashes

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        network = GrpcNetwork(on_crash=self.crashes.append)
        services = self.cluster.services(system.SystemClock())
        server = await network.listen(
            "127.0.0.1:0", unary=unary_handlers(services), streaming=stream_handlers(services)
        )
        self.address = server.address
        self._up.set()
        await self._stop.wait()
        await network.close()

    def run(self, *arguments: str, input_text: str | None = None) -> Result:
        """`streamlogctl ARGUMENTS` against this cluster; the result has exit_code, stdout and stderr."""
        environment = {"STREAMLOG_BOOTSTRAP_SERVERS": self.address}
        return CliRunner().invoke(main, arguments, env=environment, input=input_text)
