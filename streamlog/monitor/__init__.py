"""A look at a cluster from outside, over the admin client alone: what state it is in, and what is wrong with it.

    looking    asks a cluster: `ClusterState`, a value
    findings   what is wrong in a state, each with its cause and the command that mends it: pure

Used by `streamlogctl cluster health`; whoever else watches clusters uses the same judgement.
"""

from streamlog.monitor.findings import Finding, Severity, findings_of
from streamlog.monitor.looking import ClusterState, look, min_insync_replicas

__all__ = ["ClusterState", "Finding", "Severity", "findings_of", "look", "min_insync_replicas"]
