"""Who is at an address (streamlog.internal.v1.Identification), and the second look at a node that may be gone."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from streamlog.api.pb import identification_pb2 as pb
from streamlog.api.service import parse
from streamlog.errors import Status
from streamlog.metadata.records import Broker
from streamlog.metadata.view import address
from streamlog.model import BrokerId
from streamlog.ports import Network, RpcError

IDENTIFY: Final = "/streamlog.internal.v1.Identification/Identify"
SECOND_LOOK_S: Final = 1.0
"""A process that lives answers within milliseconds. One that hangs is left to its session."""
_RESPONSE_BYTES_MAX: Final = 16 << 10


class Identified(Struct, frozen=True, kw_only=True):
    """What a process says of itself."""

    node_id: BrokerId
    incarnation_id: bytes
    cluster_id: str  # empty: it has never met its cluster
    voters: str  # as in controller.quorum.voters

    @property
    def runs_as_voter(self) -> bool:
        """It takes part in the quorum's log, or waits to be let in."""
        return any(voter.partition("@")[0].strip() == str(self.node_id) for voter in self.voters.split(","))


async def identify(network: Network, where: str, *, timeout_s: float, wait_s: float = 0.0) -> Identified:
    """`wait_s`: let it wait for a cluster id so long. RpcError; InvalidRequestError where it answers something else."""
    channel = network.connect(where)
    try:
        request = pb.IdentifyRequest(wait_ms=round(wait_s * 1000)).SerializeToString()
        data = await channel.unary(IDENTIFY, request, timeout_s=timeout_s + wait_s)
    finally:
        await channel.close()
    answer = parse(pb.IdentifyResponse, data, _RESPONSE_BYTES_MAX)
    return Identified(
        node_id=BrokerId(answer.node_id),
        incarnation_id=answer.incarnation_id,
        cluster_id=answer.cluster_id,
        voters=answer.voters,
    )


async def is_gone(network: Network, broker: Broker) -> bool:
    """Whether the process that registered so is gone: its address refuses, or another process answers there.

    An address that is silent proves nothing.
    """
    try:
        found = await identify(network, address(broker.host, broker.port), timeout_s=SECOND_LOOK_S)
    except RpcError as error:
        return error.status is Status.UNAVAILABLE
    return found.incarnation_id != broker.incarnation_id
