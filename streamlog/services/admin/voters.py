"""Adds and removes voters of the metadata quorum: done by its leader, which is the active controller."""

from __future__ import annotations

from streamlog.api.convert import cluster
from streamlog.api.pb import admin_pb2 as pb
from streamlog.api.service import Call
from streamlog.controller.identity import PROBE_TIMEOUT_S, identify
from streamlog.errors import BrokerIdNotRegisteredError, InvalidRequestError, StreamlogError
from streamlog.metadata.view import MetadataView
from streamlog.ports import Network, RpcError
from streamlog.raft.voters import Voter
from streamlog.services.admin.controller_commands import ControllerDispatch
from streamlog.services.common.collaborators import QuorumVoters


class VoterCommands:
    def __init__(
        self, dispatch: ControllerDispatch, quorum: QuorumVoters, view: MetadataView, network: Network
    ) -> None:
        self._dispatch = dispatch
        self._quorum = quorum
        self._view = view
        self._network = network

    async def add(self, request: pb.AddVoterRequest, call: Call) -> pb.AddVoterResponse:
        change = cluster.add_voter(request)

        async def work() -> pb.AddVoterResponse:
            voter = Voter(node_id=change.node_id, address=self._address(change))
            await self._check_follows_the_log(voter)
            if change.replaced is None:
                await self._quorum.add_voter(voter)
            else:
                await self._quorum.replace_voter(change.replaced, voter)
            return pb.AddVoterResponse(voters=self._voters())

        return await self._dispatch.at_controller("AddVoter", work, request, pb.AddVoterResponse, call)

    async def remove(self, request: pb.RemoveVoterRequest, call: Call) -> pb.RemoveVoterResponse:
        node = cluster.remove_voter(request)

        async def work() -> pb.RemoveVoterResponse:
            await self._quorum.remove_voter(node)
            return pb.RemoveVoterResponse(voters=self._voters())

        return await self._dispatch.at_controller("RemoveVoter", work, request, pb.RemoveVoterResponse, call)

    def _address(self, change: cluster.VoterChange) -> str:
        """BrokerIdNotRegisteredError if the address is unknown: not BrokerNotAvailableError, which clients retry in
        silence until their timeout.
        """
        address = change.address or self._view.address_of(change.node_id)
        if address is None:
            known = change.node_id in self._view.image.brokers
            raise BrokerIdNotRegisteredError(
                f"node {change.node_id} is {'registered, but not running' if known else 'not registered'}, so its "
                "address is unknown: start it, or give its address with --address",
                node=change.node_id,
            )
        return address

    async def _check_follows_the_log(self, voter: Voter) -> None:
        """InvalidRequestError for a node that was started as an observer: it would never catch up. One that does not
        respond, or has no cluster id yet, may still be starting.
        """
        try:
            found = await identify(self._network, voter.address, timeout_s=PROBE_TIMEOUT_S)
        except (RpcError, StreamlogError):
            return
        if found.node_id != voter.node_id:
            reason = f"{voter.address} is the address of node {found.node_id}, not of node {voter.node_id}"
            raise InvalidRequestError(reason, field="address", node=found.node_id)
        if found.cluster_id and not found.runs_as_voter:
            own = f"{voter.node_id}@{voter.address}"
            raise InvalidRequestError(
                f"node {voter.node_id} runs as an observer of the metadata quorum, not as a voter: add {own} to its "
                "controller.quorum.voters, restart it, and add the voter again",
                field="node_id",
                node=voter.node_id,
            )

    def _voters(self) -> list[pb.VoterDescription]:
        voters = ((voter.node_id, voter.address) for voter in self._quorum.voters())
        return cluster.voter_descriptions(voters, self._quorum.held(), self._quorum.without_vote())
