"""A member of a quorum as a process of its own.

    python -m tests.raft.real_processes.process_node --node-id 1 --voters ... DIRECTORY

The node is what ships: RaftNode over gRPC, POSIX files, uvloop. Its state machine is `Registers`. Beside the quorum's
own method its port serves a few for the tests and the benchmark (`Control`), with JSON in their messages.

It prints `up` once it takes part, and the events of the quorum to standard error. SIGTERM ends it in good
order. It also ends when its standard input does: the process that started it holds the other end, so it does not
outlive a test that was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from streamlog.errors import InvariantError, Status, StreamlogError
from streamlog.model import BrokerId, RaftIndex
from streamlog.ports import CallInfo, Ports, RpcError, UnaryHandler
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.posix_disk import PosixFile, PosixFileSystem
from streamlog.ports.system import SystemClock, ThreadWorkers, run, system_random
from streamlog.raft.node import QuorumConfig, RaftNode
from streamlog.raft.open_storage import Owner
from streamlog.raft.settings import QuorumSettings
from streamlog.raft.voters import parse_voters

from ..registers import Registers

SERVICE: Final = "/streamlog.test.Control/"
ONCE: Final = "once/"
"""Keys that begin so are written by one command each."""
CRASHED: Final = 70
"""Exit status of a node that stopped by itself (EX_SOFTWARE of sysexits)."""

Json: TypeAlias = dict[str, Any]


class OnceRegisters(Registers):
    """Ends the node when a command is carried out twice."""

    def apply(self, index: RaftIndex, command: bytes) -> bytes:
        if command.startswith(ONCE.encode()) and command.decode().partition("=")[0] in self.values:
            raise InvariantError(f"{command!r} writes a second time, by entry {index}")
        before = super().apply(index, command)
        self.applied.clear()  # this process may live for long
        return before


class ForgetfulFile(PosixFile):
    """Says that it has synced, and has not."""

    async def sync(self) -> None:
        await asyncio.sleep(0)


class ForgetfulFileSystem(PosixFileSystem):
    """For the test of the tests."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        return ForgetfulFile(self, path, os.O_RDWR | (os.O_CREAT if create else 0))


class Control:
    """What a test asks of a node."""

    def __init__(self, raft: RaftNode, machine: Registers) -> None:
        self._raft = raft
        self._machine = machine

    def handlers(self) -> dict[str, UnaryHandler]:
        methods = (self.submit, self.read, self.status, self.dump, self.load)
        return {SERVICE + method.__name__: _handler(method) for method in methods}

    async def submit(self, ask: Json) -> Json:
        """{command, client_id, sequence} -> {index, result, repeated}; the errors of `Quorum.propose`."""
        applied = await self._raft.propose(
            ask["command"].encode(), client_id=ask["client_id"], sequence=ask["sequence"]
        )
        return {"index": applied.index, "result": applied.result.decode(), "repeated": applied.repeated}

    async def read(self, ask: Json) -> Json:
        """{key} -> {value, index}; linearizable."""
        index = await self._raft.read_barrier()
        return {"value": self._machine.values.get(ask["key"], ""), "index": index}

    async def status(self, _: Json) -> Json:
        leadership = self._raft.leadership()
        return {
            "term": leadership.term,
            "leader": leadership.leader,
            "is_ready": leadership.is_ready,
            "applied": self._raft.applied_index,
        }

    async def dump(self, _: Json) -> Json:
        """The state as it is here: {applied, count, digest, values}."""
        machine = self._machine
        return {
            "applied": self._raft.applied_index,
            "count": machine.count,
            "digest": machine.digest.hex(),
            "values": machine.values,
        }

    async def load(self, ask: Json) -> Json:
        """{commands, in_flight, bytes} -> {seconds, latencies_ms}: propose so many here, as a controller does."""
        latencies_ms: list[float] = []
        numbers = iter(range(ask["commands"]))

        async def propose_in_turn() -> None:
            for number in numbers:
                command = f"load/{number % 64}={number}".ljust(ask["bytes"], ".").encode()
                start = time.perf_counter()
                await self._raft.propose(command)
                latencies_ms.append((time.perf_counter() - start) * 1000)

        start = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(ask["in_flight"]):
                    group.create_task(propose_in_turn())
        except* StreamlogError as errors:  # an election came between
            raise RpcError(Status.ABORTED, str(errors.exceptions[0])) from None
        return {"seconds": time.perf_counter() - start, "latencies_ms": latencies_ms}


def _handler(method: Callable[[Json], Awaitable[Json]]) -> UnaryHandler:
    async def handle(request: bytes, _: CallInfo) -> bytes:
        return json.dumps(await method(json.loads(request))).encode()

    return handle


def _print(event: str, /, **fields: object) -> None:
    known = " ".join(f"{name}={value}" for name, value in fields.items())
    print(f"{time.monotonic():.3f} {os.getpid()} {event} {known}", file=sys.stderr, flush=True)


def _crash(error: BaseException) -> None:
    """As a node does: stop at once, and say why."""
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(CRASHED)


async def serve(options: argparse.Namespace) -> None:
    fs = ForgetfulFileSystem() if options.forgetful else PosixFileSystem()
    workers = ThreadWorkers()
    network = GrpcNetwork(on_crash=_crash)
    ports = Ports(fs=fs, network=network, clock=SystemClock(), random=system_random(), workers=workers, probe=_print)
    voters = parse_voters(options.voters)
    node_id = BrokerId(options.node_id)
    me = voters.get(node_id)
    assert me is not None
    config = QuorumConfig(
        owner=Owner(cluster_id="processes", node_id=node_id, voters=voters),
        directory=options.directory,
        address=me.address,
        settings=QuorumSettings(**dict(options.set)),
    )
    machine = OnceRegisters()
    raft = RaftNode(config, machine, ports)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, raft.stop)
    await network.listen(me.address, unary=Control(raft, machine).handlers(), streaming=raft.streaming_handlers())
    async with asyncio.TaskGroup() as group:
        group.create_task(raft.run())
        await raft.wait_until_up()
        print("up", flush=True)
    await network.close()
    await workers.close()
    fs.close()


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    return name, int(value)


def _end_with_stdin() -> None:
    while os.read(0, 4096):  # not sys.stdin, whose lock an exit in good order would wait for
        pass
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.raft.real_processes.process_node")
    parser.add_argument("--node-id", type=int, required=True)
    parser.add_argument("--voters", required=True, help="controller.quorum.voters: id@host:port,...")
    parser.add_argument("--set", type=_setting, action="append", default=[], help="NAME=NUMBER of QuorumSettings")
    parser.add_argument("--forgetful", action="store_true", help="sync nothing: to see that the tests notice")
    parser.add_argument("directory")
    options = parser.parse_args()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        run(serve(options))
    except BaseExceptionGroup as errors:
        _crash(errors)


if __name__ == "__main__":
    main()
