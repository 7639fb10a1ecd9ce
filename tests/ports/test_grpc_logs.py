"""What callers send is in no log, whatever level a program or node logs at."""

from __future__ import annotations

import asyncio
import logging

import pytest

from streamlog.ports import CallInfo
from streamlog.ports.grpc_adapter.network import GrpcNetwork

METHOD = "/p.S/M"
SECRET = "Basic-of-the-password"


async def echo(request: bytes, call: CallInfo) -> bytes:
    assert call.metadata["authorization"] == SECRET
    return request


def crash(error: Exception) -> None:
    raise error


def test_metadata_of_calls_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = GrpcNetwork(on_crash=crash, metadata=(("authorization", SECRET),))
        try:
            server = await network.listen("127.0.0.1:0", unary={METHOD: echo}, streaming={})
            assert await network.connect(server.address).unary(METHOD, b"x", timeout_s=60) == b"x"
        finally:
            await network.close()

    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").debug("is logged")
        asyncio.run(main(), debug=True)
    assert "is logged" in caplog.text
    assert SECRET not in caplog.text
    assert "authorization" not in caplog.text
