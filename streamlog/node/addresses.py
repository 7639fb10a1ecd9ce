"""Addresses and voters from a node's settings: where it listens, what it advertises, who votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamlog.config import Config
from streamlog.config.addresses import Address
from streamlog.config.settings import node_settings as settings
from streamlog.model import BrokerId
from streamlog.raft.voters import Voter, VoterSet

EVERY: Final = "0.0.0.0"


def listen_address(config: Config) -> str:
    """`host:port`; port 0: the kernel chooses."""
    (listener,) = config[settings.LISTENERS]
    return str(Address(EVERY, listener.address.port) if not listener.address.host else listener.address)


def advertised_address(config: Config, bound: str) -> Address:
    """The address that clients and other nodes use. `bound`: where the server listens."""
    (listener,) = config[settings.ADVERTISED_LISTENERS] or config[settings.LISTENERS]
    return Address(listener.address.host, listener.address.port or int(bound.rpartition(":")[2]))


def configured_voters(config: Config, node_id: BrokerId, advertised: Address) -> VoterSet:
    """`controller.quorum.voters`; if it is not set: empty with bootstrap servers, this node alone without."""
    voters = config[settings.CONTROLLER_QUORUM_VOTERS]
    if voters:
        return VoterSet.of(Voter(node_id=voter.node_id, address=str(voter.address)) for voter in voters)
    if bootstrap_addresses(config):
        return VoterSet.of(())
    return VoterSet.of([Voter(node_id=node_id, address=str(advertised))])


def bootstrap_addresses(config: Config) -> Sequence[str]:
    return [str(address) for address in config[settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS]]
