"""Events of a node's parts (`Probe`) as lines of its log: time, level, node, message; or as JSON (`log.format`).

    2026-11-21 18:46:38.123 INFO  node 1: ready at 127.0.0.1:9092, cluster 8tGztbpG8uTo7WvsfDXldw
    {"time":"2026-11-21T17:46:38.123Z","level":"INFO","node":1,"logger":"streamlog.node","event":"node_ready",
     "message":"ready at ...","fields":{"address":"127.0.0.1:9092","cluster":"8tGztbpG8uTo7WvsfDXldw"}}

A JSON line is one object with these keys, always all of them and in this order; `event` is empty for text that is not
an event. Only state changes are events, each reported once by its owner; nothing on the path of a record. An event
without a message here is logged by its name and fields. Its logger is the package of the module that reports it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from streamlog.ports.log_levels import REQUESTS, LogLevel, LogLevels, resolved
from streamlog.printable import escaped, escaped_json

# Event -> message; the fields that a message names are filled in, the others are omitted.
SENTENCES: Final[Mapping[str, str]] = {
    "node_starting": "starting",
    "listening": "listens on {address}, others find it at {advertised}",
    "cluster_wanted": "has no cluster id yet, asks the other nodes for it",
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
    "voter_restored": "voter {voter} votes again, from entry {index} on",
    "voter_not_restored": "the vote of voter {voter} was not restored ({reason}); will retry",
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
        "fenced",
        "heartbeat_unanswered",
        "log_differs",
        "log_directory_offline",
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
        "suspicion_untold",
        "vote_missing",
        "voter_not_restored",
    }
)
VALUE_LENGTH_MAX: Final = 500


DEBUG_EVENTS: Final = {"request_served": REQUESTS}
"""Their loggers: these are too many to be logged without being asked for."""
DETAILS: Final = frozenset({"client", "coordinator_loaded", "following", "leading"})
"""Notices for each partition and each client: four lines of five, and metrics and `topic describe` show the same. At
DEBUG, in the logger of the module that reports them.
"""
_OWN: Final = "streamlog.daemon"


class LogOutput(Protocol):
    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class LogLines:
    """A probe. Each line is flushed at once, so that none is lost if the process is killed. Any thread may write."""

    def __init__(self, node_id: int, out: LogOutput, *, levels: LogLevels | None = None, as_json: bool = False) -> None:
        self._node_id = node_id
        self._out = out
        self._levels = levels or LogLevels()
        self._as_json = as_json
        self._lock = threading.Lock()
        self.lost_lines = 0

    def __call__(self, event: str, /, **fields: object) -> None:
        self.event(event, fields)

    def event(self, event: str, fields: Mapping[str, object], *, module: str = _OWN) -> None:
        """`module`: of the code that reports it."""
        notice = LogLevel.DEBUG if event in DEBUG_EVENTS or event in DETAILS else LogLevel.INFO
        level = LogLevel.WARN if event in WARNINGS else notice
        logger = DEBUG_EVENTS.get(event) or resolved(module)
        if level >= self._levels.level(logger):
            self._put(level.name, _message(event, fields), logger, event, fields)

    def write(self, level: str, text: str, *, logger: str = _OWN) -> None:
        """`text` may contain what others have sent: control characters are escaped, and lines after the first (of a
        traceback) are indented, so that none looks like a line of its own.
        """
        if LogLevel[level] >= self._levels.level(resolved(logger)):
            self._put(level, text, logger, "", {})

    def _put(self, level: str, text: str, logger: str, event: str, fields: Mapping[str, object]) -> None:
        lines = [escaped(line) for line in text.rstrip("\n").split("\n")]
        now_ms = time.time_ns() // 1_000_000
        if self._as_json:
            line = self._json_line(now_ms, level, "\n".join(lines), logger, event, fields)
        else:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_ms // 1000))
            text = "\n    ".join(lines)
            line = f"{stamp}.{now_ms % 1000:03} {level:5} node {self._node_id}: {text}\n"
        try:
            with self._lock:
                self._out.write(line)
                self._out.flush()
        except OSError:
            self.lost_lines += 1  # the disk of the log is full or failed, which does not stop the node

    def _json_line(
        self, now_ms: int, level: str, message: str, logger: str, event: str, fields: Mapping[str, object]
    ) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
        document = {
            "time": f"{stamp}.{now_ms % 1000:03}Z",
            "level": level,
            "node": self._node_id,
            "logger": escaped(logger),
            "event": event,
            "message": message,
            "fields": {name: _json_value(value) for name, value in fields.items()},
        }
        return escaped_json(msgspec.json.encode(document).decode()) + "\n"


def _json_value(value: object) -> str | int | float | bool | None:
    """Numbers keep their type; anything else is text, as in the message."""
    if value is None or type(value) in (bool, int, float):
        return value  # type: ignore[return-value]  # one of these
    return _shown(value)


def _message(event: str, fields: Mapping[str, object]) -> str:
    sentence = SENTENCES.get(event)
    if sentence is not None:
        return sentence.format_map({name: _shown(value) for name, value in fields.items()})
    known = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
    return f"{event.replace('_', ' ')} {known}".rstrip()


def _shown(value: object) -> str:
    """One line of bounded length: reasons quote what others have sent."""
    text = escaped(str(value))
    return text if len(text) <= VALUE_LENGTH_MAX else f"{text[:VALUE_LENGTH_MAX]}…"
