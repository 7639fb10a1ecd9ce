"""A quorum of real processes (process_node.py): start, stop, kill, ask. One process-wide rule: none is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Final, Self

from streamlog.daemon.free_ports import free_ports
from streamlog.ports import Channel, RpcError
from streamlog.ports.grpc_adapter.network import GrpcNetwork

from .process_node import SERVICE, Json

ROOT: Final = Path(__file__).parents[3]
RETRY_S: Final = 0.02
UP_TIMEOUT_S: Final = 60.0


class Cluster:
    """`async with`: at its end every process is dead. Node i keeps its files in the i-th directory, from 1 on."""

    def __init__(
        self,
        directories: Sequence[Path],
        settings: Mapping[str, int] | None = None,
        *,
        forgetful: bool = False,
        log: Path | None = None,
    ) -> None:
        """`log`: where the processes write their events; their standard error if None."""
        self._directories = dict(enumerate(directories, 1))
        ports = dict(zip(self._directories, free_ports(len(directories)), strict=True))
        self._voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
        self._options = [f"--set={name}={value}" for name, value in (settings or {}).items()]
        self._options += ["--forgetful"] if forgetful else []
        self._log = log
        self._network = GrpcNetwork(on_crash=_nothing_is_served)
        self._channels = {node: self._network.connect(f"127.0.0.1:{port}") for node, port in ports.items()}
        self._processes: dict[int, Process] = {}
        self.crashes: list[str] = []  # nodes that ended by themselves

    @property
    def nodes(self) -> list[int]:
        return list(self._directories)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._close)
            await self.start(self.nodes)
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        await self.kill(list(self._processes))
        await self._network.close()

    # Processes.

    async def start(self, nodes: Iterable[int]) -> None:
        """Start these and wait until they are up."""
        nodes = list(nodes)
        for node in nodes:
            self._processes[node] = await self._spawn(node)
        for node in nodes:
            stdout = self._processes[node].stdout
            assert stdout is not None
            async with asyncio.timeout(UP_TIMEOUT_S):
                line = await stdout.readline()
            assert line == b"up\n", f"node {node} did not come up"

    async def _spawn(self, node: int) -> Process:
        with ExitStack() as opened:
            log = None if self._log is None else opened.enter_context(self._log.open("ab"))
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.raft.real_processes.process_node",
                f"--node-id={node}",
                f"--voters={self._voters}",
                *self._options,
                str(self._directories[node]),
                stdin=PIPE,  # held open: the node ends with it
                stdout=PIPE,
                stderr=log,
                cwd=ROOT,
            )

    async def kill(self, nodes: Iterable[int]) -> None:
        """kill -9, all at once; back when they are gone."""
        stopped = {node: self._processes.pop(node) for node in nodes}
        for node, process in stopped.items():
            if process.returncode is None:
                process.kill()
            else:
                self.crashes.append(f"node {node} ended by itself with status {process.returncode}")
        for process in stopped.values():
            await process.wait()

    def pause(self, node: int) -> None:
        """SIGSTOP: it hangs, and its connections stay."""
        os.kill(self.pid(node), signal.SIGSTOP)

    def pid(self, node: int) -> int:
        return self._processes[node].pid

    @property
    def running(self) -> list[int]:
        return list(self._processes)

    # Requests.

    async def ask(self, node: int, method: str, *, timeout_s: float = 5.0, **fields: object) -> Any:
        """RpcError as the node answers, or when it is not there."""
        channel: Channel = self._channels[node]
        reply = await channel.unary(SERVICE + method, json.dumps(fields).encode(), timeout_s=timeout_s)
        return json.loads(reply)

    async def ask_leader(self, first: int, method: str, *, timeout_s: float = 2.0, **fields: object) -> tuple[int, Any]:
        """(who answered, its answer): nodes are asked in turn, from `first` on, until one accepts."""
        node = first
        while True:
            try:
                return node, await self.ask(node, method, timeout_s=timeout_s, **fields)
            except RpcError:
                node = node % len(self._directories) + 1
                if node == first:
                    await asyncio.sleep(RETRY_S)

    async def leader(self) -> int:
        """Wait for one that is ready."""
        while True:
            statuses = await self._statuses()
            ready = [node for node, status in statuses.items() if status["is_ready"]]
            if ready:
                return max(ready, key=lambda node: statuses[node]["term"])
            await asyncio.sleep(RETRY_S)

    async def wait_until_level(self) -> list[Json]:
        """Wait until all have applied equally far; what they hold then (`dump`)."""
        while True:
            dumps = [await self.ask(node, "dump") for node in self.nodes]
            if len({dump["applied"] for dump in dumps}) == 1:
                return dumps
            await asyncio.sleep(RETRY_S)

    async def _statuses(self) -> dict[int, Json]:
        statuses = {}
        for node in self.running:
            try:
                statuses[node] = await self.ask(node, "status", timeout_s=1.0)
            except RpcError:
                pass
        return statuses


def _nothing_is_served(error: Exception) -> None:
    raise AssertionError("the test serves nothing") from error
