"""The cluster as a whole: its nodes, its voters, its counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from streamlog.api.convert.admin.placement import node_id
from streamlog.api.convert.fields import at_least, text
from streamlog.api.convert.view import node_description
from streamlog.api.pb import admin_pb2 as pb
from streamlog.config.addresses import parse_address
from streamlog.errors import InvalidRequestError
from streamlog.metadata.features import METADATA_VERSION_MAX
from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.roles import Role
from streamlog.metadata.records import MetadataVersion
from streamlog.model import BrokerId, RaftIndex, RaftTerm

# Of host:port; a host name has at most 253 characters.
ADDRESS_LENGTH_MAX: Final = 255


class VoterChange(Struct, frozen=True, kw_only=True):
    """A voter to add."""

    node_id: BrokerId
    address: str  # empty: that of its registration
    replaced: BrokerId | None  # the voter that it replaces; None: none


def described(image: MetadataImage, *, controller: BrokerId | None, listener: str) -> pb.DescribeClusterResponse:
    """From the image; `set_quorum` adds the quorum. `listener`: of the caller."""
    short = {
        key for broker_id in image.brokers for key in image.roles.partitions_without(Role.REPLICA, Role.ISR, broker_id)
    }
    return pb.DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller=controller,
        nodes=[node_description(broker, image, listener) for broker in image.brokers.values()],
        metadata_version=image.metadata_version,
        topic_count=len(image.topics),
        partition_count=image.partition_count,
        offline_partition_count=image.roles.count(Role.LEADERLESS),
        under_replicated_partition_count=len(short),
    )


def set_quorum(
    response: pb.DescribeClusterResponse,
    voters: Iterable[tuple[BrokerId, str]],
    held: Mapping[BrokerId, RaftIndex],
    without_vote: Collection[BrokerId],
    term: RaftTerm,
    commit: RaftIndex,
) -> None:
    response.voters.extend(voter_descriptions(voters, held, without_vote))
    response.quorum_term = term
    response.commit_index = commit


def voter_descriptions(
    voters: Iterable[tuple[BrokerId, str]], held: Mapping[BrokerId, RaftIndex], without_vote: Collection[BrokerId]
) -> list[pb.VoterDescription]:
    """`voters`: id and address of each, by rising id; `held`: up to where each holds the log, as far as it is known;
    `without_vote`: those that lost their disks.
    """
    return [
        pb.VoterDescription(
            node_id=node_id,
            address=address,
            match_index=held.get(node_id, -1),
            without_vote=node_id in without_vote,
        )
        for node_id, address in voters
    ]


def add_voter(message: pb.AddVoterRequest) -> VoterChange:
    """InvalidRequestError."""
    replaced = node_id(message.replaced_node_id, "replaced_node_id") if message.HasField("replaced_node_id") else None
    return VoterChange(
        node_id=node_id(message.node_id),
        address=_address(message.address),
        replaced=replaced,
    )


def _address(given: str) -> str:
    text(given, "address", length_max=ADDRESS_LENGTH_MAX)
    try:
        return given and str(parse_address(given))
    except ValueError as error:
        raise InvalidRequestError(f"address {given!r} {error}", field="address") from None


def remove_voter(message: pb.RemoveVoterRequest) -> BrokerId:
    """InvalidRequestError."""
    return node_id(message.node_id)


def metadata_level(message: pb.UpdateMetadataVersionRequest, image: MetadataImage) -> MetadataVersion:
    """InvalidRequestError. 0: the highest level that all registered nodes support."""
    highest = min([METADATA_VERSION_MAX, *(broker.metadata_version_max for broker in image.brokers.values())])
    return MetadataVersion(at_least(message.level, 0, "level") or highest)


def set_clock_skews(response: pb.DescribeClusterResponse, skews: Mapping[BrokerId, int]) -> None:
    """As far as this node knows them."""
    for row in response.nodes:
        if (skew := skews.get(BrokerId(row.node.node_id))) is not None:
            row.clock_skew_ms = skew
