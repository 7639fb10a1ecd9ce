"""A command's connection to the cluster: made for one run, closed at its end, errors told as sentences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from streamlog.cli.failures import failed
from streamlog.cli.target import UNREACHABLE_MS, Target
from streamlog.client.admin import AsyncAdmin
from streamlog.client.any_node import AnyNode, AskTimes
from streamlog.client.backoff import Backoff
from streamlog.client.connections import Connections
from streamlog.errors import StreamlogError
from streamlog.ports import system
from streamlog.ports.grpc_network import GrpcNetwork

T = TypeVar("T")


def with_admin(target: Target, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """What `work` gives. ClickException for its errors."""

    async def run() -> T:
        network = GrpcNetwork(on_crash=_not_served)
        clock, random = system.SystemClock(), system.system_random()
        connections = Connections(network, clock, random, target.servers)
        seconds = target.request_timeout_ms / 1_000
        times = AskTimes(total_s=seconds, attempt_s=seconds, unreachable_s=UNREACHABLE_MS / 1_000)
        try:
            return await work(AsyncAdmin(AnyNode(connections, clock, Backoff(random), times)))
        finally:
            await connections.close()
            await network.close()

    try:
        return system.run(run())
    except StreamlogError as error:
        raise failed(error) from None


def _not_served(error: Exception) -> None:
    """This process serves nothing, so nothing of it can crash."""
    raise error
