"""The quorum's settings, with Kafka's names where Kafka has them; validated at construction."""

from __future__ import annotations

from msgspec import Struct

from streamlog.errors import InvalidRequestError


class QuorumSettings(Struct, frozen=True, kw_only=True):
    """Times in milliseconds, sizes in bytes."""

    election_timeout_min_ms: int = 300  # silence of the leader before an election; redrawn each time ...
    election_timeout_max_ms: int = 600  # ... from [min, max). A leader without a majority for this long steps down
    heartbeat_ms: int = 100  # several fit into the shortest election timeout
    idle_after_ms: int = 1_000  # without a commit for this long, heartbeats become less frequent ...
    idle_heartbeat_ms: int = 1_000  # ... and followers extend their election timeouts accordingly
    leader_lost_backoff_ms: int = 100  # after the leader's stream broke: up to this long, then request pre-votes
    commit_notice_ms: int = 5  # the commit index is sent to followers after this long if no append carries it
    reconnect_ms: int = 100  # between two attempts to reach a peer; doubled each time ...
    reconnect_max_ms: int = 1_000  # ... up to this
    second_choice_ms: int = 500  # how long the smaller id of a pair waits for the greater one to dial
    links_max: int = 64  # nodes that may be connected to this one

    command_bytes_max: int = 1 << 20  # one command; with its envelope it fits gRPC's default of 4 MiB many times
    append_bytes_max: int = 1 << 20  # commands in one append message, unless a single one is larger
    window_bytes: int = 4 << 20  # in flight to one follower
    window_entries: int = 8192
    apply_entries_max: int = 512  # applied in one turn; other tasks run between two turns
    proposals_max: int = 4096  # commands that wait for their commit; more are refused ...
    proposals_bytes_max: int = 16 << 20  # ... or more bytes than this

    snapshot_entries: int = 10_000  # a snapshot is due after this many applied entries ...
    snapshot_journal_bytes: int = 32 << 20  # ... or when the journal has grown this much
    snapshot_trailing_entries: int = 1_000  # kept before a snapshot for slightly late followers
    snapshot_chunk_bytes: int = 256 << 10
    snapshot_bytes_max: int = 1 << 30  # a longer one is refused by the receiver

    observer_buffer_bytes: int = 16 << 20  # of the latest commands, kept for slightly late observers
    observer_message_bytes: int = 256 << 10  # of commands or of a snapshot in one message to an observer

    seal_after_ms: int = 1_000  # an idle journal records that its end is durable after this long

    auto_join: bool = True  # the leader replaces the directory of a voter that restarts with an empty one ...
    auto_join_delay_ms: int = 1_000  # ... once it has been connected for this long
    auto_join_retry_ms: int = 30_000  # after a failed attempt

    catch_up_entries: int = 100  # a learner this close to the leader's end may become a voter ...
    catch_up_timeout_ms: int = 60_000  # ... and is given up after this long

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
        """The longest silence after which a leader or a majority may still be considered active."""
        return self.election_timeout_max_ms + self.idle_heartbeat_ms - self.heartbeat_ms
