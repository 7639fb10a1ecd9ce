"""Transaction markers, written by the leaders of the partitions, on this node or others. The coordinator's side is
streamlog.coordinator.marker_writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from streamlog.aio.timeouts import timeout
from streamlog.api.convert import transactions as convert
from streamlog.api.pb import coordination_pb2 as pb
from streamlog.broker.leading.leader_replica import LeaderReplica
from streamlog.coordinator.groups import GroupCoordinator
from streamlog.errors import OutcomeUnknownError, StreamlogError
from streamlog.groups.placement import OFFSETS_TOPIC
from streamlog.model import BrokerId, TopicPartition
from streamlog.services.common.collaborators import Partitions
from streamlog.services.common.forwarding import Peers
from streamlog.transactions.markers import Grant, MarkerOutcome, PartitionMarker

_WRITE: Final = "/streamlog.internal.v1.Coordination/WriteMarkers"
_TAKE_BACK: Final = "/streamlog.internal.v1.Coordination/TakeBack"
REPLICATION_S: Final = 1.0
"""How long the markers of one request wait for their replication. Those that are not replicated by then are requested
again, so one lagging partition does not delay those that wait for this request.
"""
_TIMEOUT_S: Final = 5.0


class LocalMarkers:
    """Into partitions that this node leads."""

    def __init__(self, partitions: Partitions, groups: GroupCoordinator) -> None:
        self._partitions = partitions
        self._groups = groups

    async def write(self, markers: Sequence[PartitionMarker]) -> list[MarkerOutcome]:
        """Of each marker."""
        async with asyncio.TaskGroup() as tasks:
            writing = [tasks.create_task(self._write(one)) for one in markers]
        return [task.result() for task in writing]

    async def _write(self, one: PartitionMarker) -> MarkerOutcome:
        try:
            async with timeout(REPLICATION_S):
                return MarkerOutcome(ended=await self._replicated(one))
        except TimeoutError:
            return MarkerOutcome(
                OutcomeUnknownError(
                    f"the marker in {one.partition} was not replicated to all in-sync replicas within "
                    f"{REPLICATION_S:g} s"
                )
            )
        except StreamlogError as error:
            return MarkerOutcome(error)

    async def _replicated(self, one: PartitionMarker) -> bool:
        """Whether it has ended an open transaction."""
        replica, marker = self._leader(one.partition), one.marker
        was_open = replica.markers.has_older_open(one.producer_id, one.producer_epoch)
        if one.partition.topic == OFFSETS_TOPIC:
            await self._groups.end_transaction(one)
            return was_open
        identity = (one.producer_id, one.producer_epoch, marker.coordinator_epoch)
        if one.opens_next:
            appended = await replica.markers.append_with_next(*identity, commit=marker.commit)
        else:
            appended = replica.markers.append(*identity, commit=marker.commit)
        await replica.wait_for(appended)
        return was_open

    def take_back(self, grant: Grant) -> bool:
        """As `LeaderReplica.take_back`: whether any of the partitions has used it. What `Partitions.leader` raises."""
        return any(
            self._leader(partition).markers.revoke_grant(grant.producer_id, grant.producer_epoch)
            for partition in grant.partitions
        )

    def _leader(self, partition: TopicPartition) -> LeaderReplica:
        return self._partitions.leader(partition.topic, None, partition.partition)


class MarkerLinks:
    """coordinator.marker_writer.MarkerLink: this node's own partitions without a network call."""

    def __init__(self, node_id: BrokerId, local: LocalMarkers, peers: Peers) -> None:
        self._me = node_id
        self._local = local
        self._peers = peers

    async def write(self, node: BrokerId, markers: Sequence[PartitionMarker]) -> Sequence[MarkerOutcome]:
        if node == self._me:
            return await self._local.write(markers)
        request = convert.markers_request(markers)
        response = await self._peers.call(node, _WRITE, request, pb.WriteMarkersResponse, _TIMEOUT_S)
        results = convert.marker_outcomes(response)
        if len(results) != len(markers):
            raise OutcomeUnknownError(f"node {node} returned results of {len(results)} of {len(markers)} markers")
        return results

    async def take_back(self, node: BrokerId, grant: Grant) -> bool:
        if node == self._me:
            return self._local.take_back(grant)
        request = convert.take_back_request(grant)
        return (await self._peers.call(node, _TAKE_BACK, request, pb.TakeBackResponse, _TIMEOUT_S)).used
