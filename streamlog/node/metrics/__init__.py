"""The metrics of a node: `NodeMetrics.collect` gathers them from the owners of the state at each scrape.

Only calls (`calls`) and changes of the metadata (`changes`) are counted here: everything else is read from brokers,
coordinators and the quorum at the moment of the scrape, on the event loop. A scrape yields to the loop between its
parts and after every few hundred partitions, so it never blocks the data path for longer than a fraction of a
millisecond.

    calls          requests, errors, latency and open streams by method
    partitions     replicas on this node: offsets, sizes, ISR, lag of followers; traffic by topic
    disks          log directories: space, syncs
    groups         groups that this node coordinates: members, state, committed offsets, lag
    transactions   open transactions, the oldest one
    client_bounds  what clients hold of the node's bounds: calls, bytes in and out
    integrity      the scrubber, damaged ranges, repairs
    quorum         the metadata quorum as this node sees it
    clock          the wall clock against the quorum's
    changes        ISR changes and leader elections
    access, audit, spans    logins and refusals; audit events; spans and lost ones
    quotas         whom quotas have held up, and for how long

Connections and descriptors belong to the process: `daemon.http.process_metrics`.
"""

from streamlog.node.metrics.calls import CallMeter
from streamlog.node.metrics.node_metrics import NodeMetrics, Sources

__all__ = ["CallMeter", "NodeMetrics", "Sources"]
