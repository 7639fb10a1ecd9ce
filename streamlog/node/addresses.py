"""Addresses and voters from a node's settings: where it listens, what it advertises, who votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from streamlog.config import Config
from streamlog.config.addresses import Address
from streamlog.config.listeners import Listener, listeners_of
from streamlog.config.settings import node_settings as settings
from streamlog.metadata.records import BrokerListener
from streamlog.model import BrokerId
from streamlog.raft.voters import Voter, VoterSet

EVERY: Final = "0.0.0.0"


def listen_address(listener: Listener) -> str:
    """`host:port`; port 0: the kernel chooses."""
    return str(Address(EVERY, listener.bind.port) if not listener.bind.host else listener.bind)


def advertised_address(listener: Listener, bound: str) -> Address:
    """The address that callers use. `bound`: where the server listens."""
    return Address(listener.advertised.host, listener.advertised.port or int(bound.rpartition(":")[2]))


def registered_listeners(config: Config, advertised: Mapping[str, Address]) -> tuple[BrokerListener, ...]:
    """Of a node with several listeners, by name; empty where there is one."""
    listeners = listeners_of(config)
    if len(listeners) == 1:
        return ()
    found = [
        BrokerListener(name=one.name, host=advertised[one.name].host, port=advertised[one.name].port)
        for one in listeners
    ]
    return tuple(sorted(found, key=lambda one: one.name))


def configured_voters(config: Config, node_id: BrokerId, advertised: Address) -> VoterSet:
    """`controller.quorum.voters`; if it is not set: empty with bootstrap servers, this node alone without."""
    voters = config[settings.CONTROLLER_QUORUM_VOTERS]
    if voters:
        return VoterSet.of(Voter(node_id=voter.node_id, address=str(voter.address)) for voter in voters)
    if bootstrap_addresses(config):
        return VoterSet.of(())
    return VoterSet.of([Voter(node_id=node_id, address=str(advertised))])


def is_voter(config: Config, node_id: BrokerId) -> bool:
    """Whether `configured_voters` name this node."""
    voters = config[settings.CONTROLLER_QUORUM_VOTERS]
    return any(voter.node_id == node_id for voter in voters) if voters else not bootstrap_addresses(config)


def bootstrap_addresses(config: Config) -> Sequence[str]:
    return [str(address) for address in config[settings.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS]]
