"""The events of a node's parts as an operator reads them: event -> message, and which are warnings or details.

The fields that a message names are filled in, the others are omitted. Each event has a message; that of a problem says
what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamlog.ports.log_levels import REQUESTS

SENTENCES: Final[Mapping[str, str]] = {
    "node_starting": "starting",
    "listening": "listens on {address}, others find it at {advertised}",
    "cluster_wanted": "has no cluster id yet, requests it from the other nodes",
    "quorum_wanted": "belongs to cluster {cluster}, but has no log of the metadata in {path}. It waits until one of "
    "the other voters ({voters}) that has it answers: start them. If the log is elsewhere, set metadata.log.dir. Only "
    "to begin without data: empty log.dirs of all nodes",
    "cluster_id_drawn": "generated the id of a new cluster: {cluster}",
    "cluster_joined": "belongs to cluster {cluster}, voters {voters}",
    "quorum_up": "follows the metadata quorum from term {term}, entry {last_index}",
    "controller_active": "is the active controller, term {term}",
    "controller_inactive": "is no longer the active controller: {reason}",
    "registered": "registered with broker epoch {epoch}",
    "registration_waits": "cannot register yet: {reason}",
    "unfenced": "is unfenced, epoch {epoch}",
    "fenced": "is fenced, epoch {epoch}",
    "node_ready": "ready at {address}, cluster {cluster}",
    "node_stopped": "closed its logs (clean stop: {clean})",
    "node_stopping": "stopping",
    "observer_stream_lost": "does not follow the metadata: lost the stream from node {voter} ({reason}), tries another "
    "voter",
    "quorum_leader_ignored": "does not follow node {peer}, which claims to lead term {term}: none of the voters "
    "known here ({voters}) names it a voter. If it is one, all of these were replaced while this node was down: remove "
    "this node's vote, move its metadata directory away, set controller.quorum.voters, start it, and restore its vote",
    "observer_stream_found": "follows the metadata again, from node {voter}",
    "own_vote_missing": "this node has no vote on the metadata: its metadata directory was lost or moved, and is not "
    "the one that the voters know. The vote is restored automatically (controller.quorum.voter.restore.enable), or by "
    "'streamlogctl cluster restore-voter {voter}'",
    "own_vote_back": "this node votes on the metadata again",
    "vote_missing": "voter {voter} restarted without its metadata directory: it has no vote, and the quorum tolerates "
    "one failure less until it has ('streamlogctl cluster restore-voter {voter}')",
    "voter_restoring": "restores the vote of voter {voter}: lets it catch up, then replaces its lost directory",
    "voter_pending": "adds voter {voter}, for which an earlier leader has removed another one: lets it catch up first",
    "voter_restored": "voter {voter} has its vote, from entry {index} on",
    "voter_not_restored": "voter {voter} was not given its vote ({reason}); will retry",
    "quorum_peer_dropped": "closed the quorum stream from {address}, which claims to be node {peer}: {reason}",
    "leadership": "the quorum's leader is {leader}, term {term}",
    "suspected": "suspects node {broker}, epoch {epoch}: its stream broke",
    "damage_found": "{partition} is damaged: {path}: position {position}: {reason}; offsets {begin}..{end} are not"
    " served until they are repaired from another replica",
    "damage_repaired": "{partition} is repaired: offsets {begin}..{end} were fetched from node {source}",
    "damage_left": "{partition} cannot be repaired: offsets {begin}..{end}: {reason}",
    "index_rebuilt": "rebuilt {path}: {reason}",
    "log_differs": "{partition} differs from its leader's log (node {leader}) from offset {offset} on: it is damaged"
    " here; offsets up to {log_end} are truncated and fetched again",
    "call_failed": "a call failed with {error} at {place}: {reason}; this is a bug, please report it",
    "partitions_wait_for_replicas": "{count} partitions have no leader, {first} among them, and wait for the logs of "
    "nodes {nodes}: start these nodes, or list what would be lost without them: 'streamlogctl partition elect --all "
    "--election-type unclean --dry-run'",
    "replica_state_unanswered": "node {broker} did not report the log ends of its replicas: {reason}",
    "clock_skewed": "the wall clock is {skew_ms} ms ahead of the time that most nodes agree on (limit {limit_ms} ms): "
    "nothing is deleted by time, and the quorum's time is used; set the clock, and check its NTP synchronization",
    "token_keys_failed": "cannot load the keys of the token issuer from {url}: {reason}; {keys} earlier keys stay in "
    "use, new attempts follow",
    "token_keys_loaded": "uses {keys} keys of the token issuer, from {url}",
    "replicas_lack_descriptors": "new replicas wait: this process may open {free} more files, and keeps "
    "{needed} for connections and the logs that exist. Raise the limit of open files (LimitNOFILE of the service, or "
    "'ulimit -n') and restart this node, or delete topics",
    "request_served": "{method} from {peer}: {status} after {ms} ms",
    "clock_near": "the wall clock agrees with the other nodes again, {skew_ms} ms apart",
    "audit_lost": "{dropped} events are missing in topic {topic}, the audit log's: {reason}",
    "broker_gone": "the session of node {broker} has expired, its epoch {epoch} is fenced",
    "became_leader": "leads the metadata quorum in term {term}, from entry {index} on",
    "quorum_lost": "no longer leads the metadata quorum, term {term}: a majority of the voters does not answer",
    "quorum_voters": "the voters of the metadata quorum are {voters} (entry {index})",
    "quorum_peer_refused": "node {peer} at {address} refuses the connection of the metadata quorum: {reason}",
    "snapshot_taken": "took a snapshot of the metadata at entry {index}",
    "snapshot_installed": "received a snapshot of the metadata at entry {index}",
    "heartbeat_unanswered": "the controller did not answer a heartbeat, the node goes on and tries again: {reason}",
    "registration_lost": "the controller no longer knows this registration, epoch {epoch} ({reason}): registers again",
    "suspicion_not_reported": "could not report to the controller that node {broker} may be gone ({reason}): its "
    "session will expire",
    "controller_timer": "the controller's {timer} for node {broker} is due",
    "decision_refused": "the controller refused its own command {command}: {reason}",
    "controlled_shutdown_given_up": "stops though it still leads partitions: the controller has not moved them within "
    "controlled.shutdown.timeout.ms",
    "follower_connected": "follower {follower} is connected, epoch {broker_epoch}",
    "leading": "leads {partition}, leader epoch {leader_epoch}",
    "following": "follows node {leader} for {partition}, leader epoch {leader_epoch}",
    "log_diverged": "{partition} has other records than its leader at its end: it is truncated to the common history "
    "(here it ends at {log_end}, the leader's epoch {leaders_epoch} at {leaders_end})",
    "isr_change_refused": "the controller refused a change of the ISR of {partition}, leader epoch {leader_epoch}: "
    "{reason}",
    "replication_refused": "leader {leader} at {address} refuses this follower: {reason}",
    "replication_corrupt": "leader {leader} at {address} sent what is not valid, and is connected again: {reason}",
    "offline_replicas_not_reported": "could not report {count} offline replicas to the controller ({reason}); will "
    "retry",
    "replica_offline": "{partition} is offline on this node: {reason}",
    "replica_unfit": "{partition} cannot be led by this node: {reason}",
    "replica_removed": "removed the replica of {partition} from this node (set aside as stray: {stray})",
    "topic_config_refused": "keeps the previous settings of topic {topic}: {reason}",
    "log_directory_offline": "log directory {path} is offline (error {errno}): {reason}. Make space or replace the "
    "disk, and restart the node; other directories go on",
    "log_damaged": "{path} is damaged at position {position}: {reason}",
    "torn_tail_cut": "cut {cut_bytes} bytes at the end of {path}, position {position}, which were not completely "
    "written: {reason}",
    "checkpoint_ignored": "{path} is damaged at position {position} ({reason}): it is written again, and more of the "
    "logs is read at this start",
    "clean_stop_disproved": "{path} is not as the clean stop left it, at position {position}: {reason}; the log is "
    "scanned",
    "epochs_rebuilt": "{path} is damaged at position {position} ({reason}): rebuilt from the log",
    "stray_directory": "{path} was set aside: no topic of the cluster had it. Remove it if its records are not needed",
    "directory_not_removed": "{path} is not removed, because it has been changed by hand: {reason}. Remove what is "
    "left of it, if anything is",
    "log_move_begun": "{partition} begins to move from {source} to {target}",
    "log_moved": "{partition} has moved from {source} to {target}",
    "log_move_ended": "{partition} does not move to {target}: {reason}",
    "log_move_interrupted": "{path} is the copy of a replica whose move a restart has ended: it is removed; request "
    "the move again, if it is still wanted",
    "log_move_completed": "{path} is what a move to another log directory has left behind: it is removed",
    "log_move_undecided": "{path} may have moved to a log directory that is offline: its replica is offline until "
    "that directory is back. Restart the node with all its log.dirs",
    "leadership_not_resigned": "{partition} cannot complete its move to another log directory yet: the controller "
    "gave it no new leader epoch ({reason}); will retry",
    "cleaning_gave_up": "compaction leaves {path} as it is: {reason}",
    "coordinator_loaded": "coordinates {partition}: read {records} records in {took_ms} ms",
    "coordinator_failed": "cannot coordinate the groups or transactions of {partition}: {reason}",
    "group_records_unknown": "{partition} has {count} records of a newer release, which this one ignores",
    "transaction_records_unknown": "{partition} has {count} records of a newer release, which this one ignores",
    "transaction_timed_out": "aborts the transaction of {transactional_id}, open for longer than {timeout_ms} ms",
    "transaction_marker_fenced": "a newer coordinator ended the transaction of {transactional_id}; the marker for "
    "{partition} was refused: {reason}",
    "client": "a client at {peer} introduced itself: {version}",
}
WARNINGS: Final = frozenset(
    {
        "audit_lost",
        "broker_gone",
        "call_failed",
        "checkpoint_ignored",
        "controlled_shutdown_given_up",
        "controller_inactive",
        "clock_skewed",
        "damage_found",
        "damage_left",
        "decision_refused",
        "directory_not_removed",
        "fenced",
        "heartbeat_unanswered",
        "log_differs",
        "log_directory_offline",
        "log_move_ended",
        "log_move_interrupted",
        "log_move_undecided",
        "own_vote_missing",
        "quorum_leader_ignored",
        "quorum_peer_dropped",
        "partitions_wait_for_replicas",
        "registration_lost",
        "registration_waits",
        "replica_state_unanswered",
        "replicas_lack_descriptors",
        "stray_directory",
        "suspected",
        "token_keys_failed",
        "suspicion_not_reported",
        "vote_missing",
        "voter_not_restored",
    }
)
DEBUG_EVENTS: Final = {"request_served": REQUESTS}
"""Their loggers: these are too many to be logged without being asked for."""
DETAILS: Final = frozenset({"client", "coordinator_loaded", "following", "leading"})
"""Notices for each partition and each client: four lines of five, and metrics and `topic describe` show the same. At
DEBUG, in the logger of the module that reports them.
"""
