"""The health of a cluster, observed from outside through the admin client.

    cluster_state   reads the state of a cluster: `ClusterState`, a value
    findings        the problems in a state, each with its cause and the command that repairs it: pure

Used by `streamlogctl cluster health` and the console.
"""

from streamlog.monitor.cluster_state import ClusterState, min_insync_replicas, read_cluster_state
from streamlog.monitor.findings import HealthFinding, Severity, findings_of

__all__ = ["ClusterState", "HealthFinding", "Severity", "findings_of", "min_insync_replicas", "read_cluster_state"]
