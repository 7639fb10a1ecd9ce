"""A node: its parts, how they are wired, and its life from the first lock to the last sync.

    node               Node: run, stop; the order of starting and stopping
    cluster_join       from the node's disks and the answers of others to a member of its cluster
    cluster_formation  how a node learns the cluster's id, and how a new cluster gets one
    quorum_member      voter or observer of the metadata quorum
    quorum_directory   where the quorum's journal is
    registration       registration with the controller, heartbeats, controlled shutdown
    data_plane         replicas, streams between nodes, services of clients
    method_router      the listener's methods, with handlers that are connected later
    in_process_calls   calls of these methods by another front of the process
    served_methods     the names of all methods that a node serves
    quorum_clock       the wall clock, compared with the quorum's
    suspicions         reports broken streams to the controller
    failed_calls       unexpected errors of handlers
    request_spans      a span of each call
    authorization, auditing    the authorizer, the audit log, by their settings
    addresses          what the settings say about addresses and voters
    metrics/           what a node reports at a scrape

Node code: the world comes through the ports, so daemon, test fixture and simulation run the same Node.
"""

from streamlog.node.node import Node

__all__ = ["Node"]
