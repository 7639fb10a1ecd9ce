"""The quorum's settings. Kafka's names where Kafka has them; checked when made."""

from __future__ import annotations

from msgspec import Struct

from streamlog.errors import InvalidRequestError


class QuorumSettings(Struct, frozen=True, kw_only=True):
    """Times in milliseconds, sizes in bytes."""

    election_timeout_min_ms: int = 300  # silence after which a follower doubts its leader; drawn anew each time ...
    election_timeout_max_ms: int = 600  # ... from [min, max). A leader that no majority answers for so long steps down
    heartbeat_ms: int = 100  # several fit into the shortest election time-out
    idle_after_ms: int = 1_000  # nothing has been committed for so long: heartbeats become rare ...
    idle_heartbeat_ms: int = 1_000  # ... and followers are told to be as much more patient
    leader_lost_backoff_ms: int = 100  # after the stream from the leader broke: wait 0 to so long, then ask the others
    commit_notice_ms: int = 5  # a commit with no append to carry it is told to the followers after so long
    reconnect_ms: int = 100  # between two attempts to reach a peer; doubled each time ...
    reconnect_max_ms: int = 1_000  # ... up to this
    second_choice_ms: int = 500  # the smaller id of a pair waits so long for the greater one to dial
    links_max: int = 64  # nodes that may be linked to this one

    command_bytes_max: int = 1 << 20  # one command; with its envelope it fits gRPC's default of 4 MiB many times
    append_bytes_max: int = 1 << 20  # commands in one append message, unless a single one is larger
    window_bytes: int = 4 << 20  # sent to one follower and not answered
    window_entries: int = 8192
    apply_entries_max: int = 512  # applied in one turn; the loop gets its turn between two of them
    proposals_max: int = 4096  # commands that wait for their commit; more are refused ...
    proposals_bytes_max: int = 16 << 20  # ... or more bytes than this

    snapshot_entries: int = 10_000  # entries applied since the last snapshot that make another one due ...
    snapshot_journal_bytes: int = 32 << 20  # ... or a journal of this size
    snapshot_trailing_entries: int = 1_000  # kept behind a snapshot for followers that are a little late
    snapshot_chunk_bytes: int = 256 << 10
    snapshot_bytes_max: int = 1 << 30  # a longer one is refused by the receiver

    observer_buffer_bytes: int = 16 << 20  # of the latest commands, kept for observers that are a little behind
    observer_message_bytes: int = 256 << 10  # of commands or of a snapshot in one message to an observer

    seal_after_ms: int = 1_000  # the journal is quiet so long: write down that its end is durable

    auto_join: bool = True  # the leader replaces the directory of a voter that comes back with an empty one ...
    auto_join_delay_ms: int = 1_000  # ... when it has been linked for so long
    auto_join_retry_ms: int = 30_000  # after an attempt that failed

    catch_up_entries: int = 100  # a learner this close to the leader's end may become a voter ...
    catch_up_timeout_ms: int = 60_000  # ... and is given up after so long

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name != "auto_join" and getattr(self, name) <= 0:
                raise InvalidRequestError(f"{name} must be above 0", field=name, limit=1)
        if not self.heartbeat_ms < self.election_timeout_min_ms < self.election_timeout_max_ms:
            raise InvalidRequestError(
                "heartbeat_ms < election_timeout_min_ms < election_timeout_max_ms must hold", field="heartbeat_ms"
            )
        if self.idle_heartbeat_ms < self.heartbeat_ms:
            raise InvalidRequestError("idle_heartbeat_ms must not be below heartbeat_ms", field="idle_heartbeat_ms")

    @property
    def patience_max_ms(self) -> int:
        """The longest silence that anybody takes for a live leader or a live majority."""
        return self.election_timeout_max_ms + self.idle_heartbeat_ms - self.heartbeat_ms
