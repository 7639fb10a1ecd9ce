"""Whether a suspected node is gone: only a refused connection or another process at its address proves it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamlog.api.pb import identification_pb2 as pb
from streamlog.controller.identity import PROBE_RETRY_S, PROBE_TIMEOUT_S, is_gone
from streamlog.errors import Status
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.records import Broker, MetadataVersion
from streamlog.model import BrokerEpoch, BrokerId
from streamlog.ports import HandshakeError, NoListenerError, NotSentError, RpcError
from streamlog.sim import SimLoop, run

from .scripted_network import ScriptedNetwork

NODE = Broker(
    broker_id=BrokerId(1),
    epoch=BrokerEpoch(5),
    incarnation_id=bytes(16),
    host="n1",
    port=1,
    metadata_version_min=MetadataVersion(1),
    metadata_version_max=METADATA_VERSION_MAX,
)
REFUSED = NoListenerError(Status.UNAVAILABLE, "connection refused")
CLOSED = HandshakeError(Status.UNAVAILABLE, "it closed the connection at once")


def probed(*outcomes: RpcError | bytes) -> tuple[bool, float]:
    """Whether the node is gone, after attempts that end so (the last one again and again), and the time that took."""
    results: list[tuple[bool, float]] = []

    async def main(loop: SimLoop) -> None:
        left: Iterator[RpcError | bytes] = iter(outcomes)
        last = outcomes[-1]

        def answer(method: str, request: bytes) -> bytes:
            now = next(left, last)
            if isinstance(now, RpcError):
                raise now
            return pb.IdentifyResponse(node_id=1, incarnation_id=now).SerializeToString()

        network = ScriptedNetwork(n1=answer)
        begin = loop.now
        results.append((await is_gone(network, NODE), loop.now - begin))
        assert len(network.closed) == len(network.asked)

    run(main)
    return results[0]


def test_a_refused_connection_and_another_process_prove_it_at_once() -> None:
    assert probed(REFUSED) == (True, 0)
    assert probed(bytes([1]) * 16) == (True, 0)
    assert probed(bytes(16)) == (False, 0)


@pytest.mark.parametrize(
    "failure",
    [
        NotSentError(Status.UNAVAILABLE, "the name is not known"),
        NotSentError(Status.UNAVAILABLE, "too many open files"),
        CLOSED,
        RpcError(Status.UNAVAILABLE, "the connection has ended"),
        RpcError(Status.DEADLINE_EXCEEDED, "no answer"),
    ],
    ids=str,
)
def test_nothing_else_proves_it(failure: RpcError) -> None:
    """A controller fenced all nodes, which were running, while the name server failed or it had no descriptors left."""
    gone, took_s = probed(failure)
    assert not gone
    assert took_s <= PROBE_TIMEOUT_S + PROBE_RETRY_S


def test_a_process_that_is_being_killed_is_found_to_be_gone() -> None:
    """Its connections end before the kernel refuses others."""
    assert probed(CLOSED, REFUSED) == (True, PROBE_RETRY_S)
