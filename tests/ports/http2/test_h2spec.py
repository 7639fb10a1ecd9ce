"""The conformance suite of HTTP/2 and HPACK, h2spec, against a server of ours."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter.network import GrpcNetwork
from streamlog.ports.grpc_adapter.settings import GrpcSettings

from ..networks import eventually
from .go_programs import H2SPEC, built

HEADER_BYTES = 14_000
"""Five of these are larger than any frame of headers that a node accepts."""
CASES_MIN = 145
WAIT_S = 20
"""For each answer that does not come."""
pytestmark = pytest.mark.timeout(1_200)  # it is built


def fail(error: Exception) -> None:
    raise error


async def echo(request: bytes, info: CallInfo) -> bytes:
    return request


async def run(program: Path, address: str, report: Path, *options: str) -> tuple[set[str], int]:
    """What failed, and how many were run."""
    host, _, port = address.rpartition(":")
    command = [str(program), "-h", host, "-p", port, "-o", str(WAIT_S), "-j", str(report), *options]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    await process.communicate()
    return outcome(report)


def outcome(report: Path) -> tuple[set[str], int]:
    failed, count = set(), 0
    text = report.read_bytes().replace(b"\0", b"")  # h2spec copies what a frame holds
    for case in ET.fromstring(text).iter("testcase"):
        count += case.find("skipped") is None
        problems = [*case.iter("error"), *case.iter("failure")]
        if any(not is_close(problem.text or "") for problem in problems):
            failed.add(f"{case.get('package')}: {case.get('classname')}")
    return failed, count


def is_close(problem: str) -> bool:
    """The connection may be closed, and was: a frame that arrives afterwards is answered by the kernel, with a reset,
    which h2spec takes for an error. Its PING behind a GOAWAY does so where it is a packet of its own.
    """
    return problem.startswith("Connection closed") and "connection reset by peer" in problem


async def test_h2spec(tmp_path: Path) -> None:
    program = await asyncio.to_thread(built, H2SPEC)
    network = GrpcNetwork(on_crash=fail, settings=GrpcSettings())
    server = await network.listen("127.0.0.1:0", unary={"/p.S/M": echo}, streaming={})
    try:
        options = ("--strict", "--max-header-length", str(HEADER_BYTES))
        failed, count = await run(program, server.address, tmp_path / "all.xml", *options)
        assert not failed
        assert count >= CASES_MIN
        await eventually(lambda: server.inflow.connections == server.inflow.calls == server.inflow.bytes_held == 0)
    finally:
        await network.close()
