"""Which process is at an address (streamlog.internal.v1.Identification), and whether a suspected node is gone."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from streamlog.api.pb import identification_pb2 as pb
from streamlog.api.responses import parse_response, unusable
from streamlog.errors import BrokerNotAvailableError, InvalidRequestError
from streamlog.metadata.cluster import CLUSTER_ID_LENGTH_MAX
from streamlog.metadata.records import Broker
from streamlog.metadata.view import address
from streamlog.model import BrokerId
from streamlog.ports import Network, NoListenerError, RpcError
from streamlog.raft.voters import VoterSet, parse_voters

IDENTIFY: Final = "/streamlog.internal.v1.Identification/Identify"
PROBE_TIMEOUT_S: Final = 1.0
"""A running process answers within milliseconds. One that hangs is left to its session timeout."""
PROBE_RETRY_S: Final = 0.05
_RESPONSE_BYTES_MAX: Final = 16 << 10


class Identified(Struct, frozen=True, kw_only=True):
    """A process's description of itself."""

    node_id: BrokerId
    incarnation_id: bytes
    cluster_id: str  # empty: it has not joined a cluster yet, or its log is not open yet
    stored_cluster_id: str  # on its disk
    voters: str  # of its start, as in controller.quorum.voters
    current_voters: VoterSet  # in effect by the metadata's log; empty: not known there
    without_log: bool  # a voter that waits for one that has the log

    @property
    def is_opening(self) -> bool:
        """It belongs to a cluster, but does not know the voters yet."""
        return bool(self.stored_cluster_id) and not self.cluster_id

    @property
    def runs_as_voter(self) -> bool:
        """It is a voter, or configured as one and waiting to be added."""
        return any(voter.partition("@")[0].strip() == str(self.node_id) for voter in self.voters.split(","))


async def identify(network: Network, where: str, *, timeout_s: float, wait_s: float = 0.0) -> Identified:
    """`wait_s`: how long it may wait for a cluster id. RpcError; BrokerNotAvailableError for an invalid response."""
    channel = network.connect(where)
    try:
        request = pb.IdentifyRequest(wait_ms=round(wait_s * 1000)).SerializeToString()
        data = await channel.unary(IDENTIFY, request, timeout_s=timeout_s + wait_s)
    finally:
        await channel.close()
    answer = parse_response(pb.IdentifyResponse, data, where, bytes_max=_RESPONSE_BYTES_MAX)
    for cluster_id in (answer.cluster_id, answer.stored_cluster_id):  # it may become this node's, which is written
        if len(cluster_id) > CLUSTER_ID_LENGTH_MAX or not (cluster_id.isascii() and cluster_id.isprintable()):
            raise unusable(pb.IdentifyResponse.DESCRIPTOR.full_name, where, "its cluster id is none")
    try:
        current_voters = parse_voters(answer.current_voters) if answer.current_voters else VoterSet()
    except InvalidRequestError as error:
        raise unusable(pb.IdentifyResponse.DESCRIPTOR.full_name, where, str(error)) from None
    return Identified(
        node_id=BrokerId(answer.node_id),
        incarnation_id=answer.incarnation_id,
        cluster_id=answer.cluster_id,
        stored_cluster_id=answer.stored_cluster_id or answer.cluster_id,  # an earlier release sends this one only
        voters=answer.voters,
        current_voters=current_voters,
        without_log=answer.without_log,
    )


async def is_gone(network: Network, broker: Broker) -> bool:
    """Whether the registered process is gone: its address refuses the connection, or another process answers.

    Nothing else proves it: a name may not be resolved, or this process has no descriptor left, or a process that runs
    closes the connection. One that is being killed does so, too, for a moment, so further attempts follow.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + PROBE_TIMEOUT_S
    while (left_s := end - loop.time()) > 0:
        try:
            found = await identify(network, address(broker.host, broker.port), timeout_s=left_s)
        except NoListenerError:
            return True
        except (RpcError, BrokerNotAvailableError):
            await asyncio.sleep(PROBE_RETRY_S)
        else:
            return found.incarnation_id != broker.incarnation_id
    return False
