"""A node: its parts, how they are wired, and its life from the first lock to the last sync.

    node            Node: run, stop; the order of starting and stopping
    forming         how the cluster's id comes to a node; who a process is
    membership      voter or observer of the metadata quorum
    registration    the node's standing with the controller
    data_plane      replicas and streams between nodes
    switchboard     one listener, from the first moment
    addresses       what the settings say of addresses and voters

Node code: the world comes through the ports, so daemon, test fixture and simulation run the same Node.
"""

from streamlog.node.node import Node

__all__ = ["Node"]
