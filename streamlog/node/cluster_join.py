"""A node's way into its cluster: from its disks and the other nodes' answers to the owner of its quorum directory.

    a voter with a quorum directory               asks no one
    ... only with an id in its log directories    lost that directory, or was an observer: it waits for the log
    ... with no id                                learns one, or draws it
    an observer                                   asks for what its settings and log directories do not say

What is asked, and why the quorum directory is made before the log directories get the id: `cluster_formation`.
"""

from __future__ import annotations

from msgspec import Struct

from streamlog.config import Config
from streamlog.config.addresses import Address
from streamlog.model import BrokerId
from streamlog.node.addresses import bootstrap_addresses, configured_voters, is_voter
from streamlog.node.cluster_formation import ClusterFormation, IdentificationService
from streamlog.node.quorum_directory import lost_by_only_voter, quorum_directory
from streamlog.node.quorum_member import addresses_of
from streamlog.ports import Ports
from streamlog.raft.open_storage import Owner, begin_storage, begun_in
from streamlog.raft.voters import VoterSet, parse_voters
from streamlog.storage.directories.directories import LogDirectories


class Joined(Struct, frozen=True, kw_only=True):
    owner: Owner
    voters: VoterSet  # of the settings, or of the node that was asked


class ClusterJoin:
    """Of one start. `serve_stored_id` before the node listens, `run` after. InconsistentClusterError, StorageError."""

    def __init__(
        self,
        node_id: BrokerId,
        config: Config,
        metadata_log_dir: str,
        directories: LogDirectories,
        identity: IdentificationService,
        ports: Ports,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._metadata_log_dir = metadata_log_dir
        self._directories = directories
        self._identity = identity
        self._ports = ports
        self._is_voter = is_voter(config, node_id)

    def serve_stored_id(self) -> None:
        """Before the first call: a voter that gets "none" from a majority draws an id."""
        cluster_id = self._directories.cluster_id
        if cluster_id is None and self._is_voter:
            cluster_id = begun_in(self._ports.fs, self.quorum_directory(), self._node_id)
        self._identity.set_stored(cluster_id or "")

    async def run(self, advertised: Address) -> Joined:
        """Until the cluster's id is known, and durable. `advertised`: this node's address for nodes."""
        voters = configured_voters(self._config, self._node_id, advertised)
        joined = await (self._as_voter(voters) if self._is_voter else self._as_observer(voters))
        owner = joined.owner
        await self._directories.join(owner.cluster_id)
        self._identity.set_stored(owner.cluster_id)
        self._ports.probe("cluster_joined", node=self._node_id, cluster=owner.cluster_id, voters=str(owner.voters))
        return joined

    def quorum_directory(self) -> str:
        online = [directory.path for directory in self._directories.online]
        return quorum_directory(self._ports.fs, self._metadata_log_dir, online)

    async def _as_voter(self, voters: VoterSet) -> Joined:
        ports, directory = self._ports, self.quorum_directory()
        begun = begun_in(ports.fs, directory, self._node_id)
        cluster_id, logged = self._directories.cluster_id, VoterSet()
        if begun is not None:
            return self._joined(cluster_id or begun, voters)
        if cluster_id is None:
            ports.probe("cluster_wanted", node=self._node_id, voters=str(voters))
            cluster_id, logged = await self._formation().as_voter(voters)
        elif len(voters) == 1:
            raise lost_by_only_voter(cluster_id, directory)
        else:
            others = VoterSet.of(voter for voter in voters if voter.node_id != self._node_id)
            ports.probe("quorum_wanted", cluster=cluster_id, path=directory, voters=str(others))
            self._identity.set_cluster(cluster_id, voters, None)  # other voters may wait for the same
            logged = await self._formation().as_voter_without_log(cluster_id, voters)
        waits = bool(logged) and logged.get(self._node_id) is None  # until it is added
        joined = self._joined(cluster_id, voters, begins_with=logged if waits else voters)
        await begin_storage(ports.fs, ports.random, directory, joined.owner)
        self._identity.set_stored(cluster_id)
        return joined

    async def _as_observer(self, voters: VoterSet) -> Joined:
        cluster_id = self._directories.cluster_id
        if cluster_id is None or not voters:
            self._ports.probe("cluster_wanted", node=self._node_id, voters=str(voters))
            found = await self._formation().as_observer(addresses_of(voters) or bootstrap_addresses(self._config))
            cluster_id = cluster_id or found.cluster_id
            voters = voters or found.current_voters or parse_voters(found.voters)
        return self._joined(cluster_id, voters)

    def _joined(self, cluster_id: str, voters: VoterSet, begins_with: VoterSet | None = None) -> Joined:
        """`begins_with`: the voters that its quorum begins with, where they are not `voters`."""
        first = voters if begins_with is None else begins_with
        return Joined(owner=Owner(cluster_id=cluster_id, node_id=self._node_id, voters=first), voters=voters)

    def _formation(self) -> ClusterFormation:
        ports = self._ports
        return ClusterFormation(self._node_id, network=ports.network, random=ports.random, probe=ports.probe)
