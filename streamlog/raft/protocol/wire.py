"""Values <-> protobuf: the messages of a stream, the payloads of entries, the small parts of the files.

The only module of raft/ that imports protobuf. `decode_*` validates everything: an invalid value raises a
CorruptMessageError that names the fault; numbers are bounded (bounds.py), and entries have a kind and a content that
this version can apply. Lengths are bounded before by the network port and the records of the files. Unknown fields are
ignored; an unknown kind of message, from a newer version, gives None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from streamlog.errors import CorruptMessageError, InvalidRequestError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.pb import raft_pb2 as pb
from streamlog.raft.port import CLIENT_ID_BYTES_MAX, SEQUENCE_MAX, Applied
from streamlog.raft.protocol import messages as m
from streamlog.raft.protocol.bounds import (
    CLUSTER_ID_BYTES_MAX,
    ENTRIES_MAX,
    INDEX_MAX,
    ROUND_MAX,
    SNAPSHOT_BYTES_MAX,
    TERM_MAX,
    bounded,
)
from streamlog.raft.protocol.entries import EntryKind, LogEntry
from streamlog.raft.protocol.observed import Observed, ObservedCommands, ObservedSnapshot, WatchRequest
from streamlog.raft.protocol.stored import QuorumIdentity, Session, SnapshotHead
from streamlog.raft.voters import (
    DIRECTORY_ID_BYTES,
    NODE_ID_MAX,
    VOTERS_MAX,
    DirectoryId,
    Voter,
    VoterSet,
)

P = TypeVar("P", bound=ProtoMessage)


def _parse(kind: Callable[[], P], data: bytes) -> P:
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise CorruptMessageError(f"not a {message.DESCRIPTOR.name}: {error}") from None
    return message


def _term(value: int) -> RaftTerm:
    return RaftTerm(bounded(value, TERM_MAX, "term"))


def _index(value: int) -> RaftIndex:
    return RaftIndex(bounded(value, INDEX_MAX, "index"))


def _round(value: int) -> int:
    return bounded(value, ROUND_MAX, "round")


def _node_id(value: int) -> BrokerId:
    return BrokerId(bounded(value, NODE_ID_MAX, "node id"))


def _cluster_id(value: str) -> str:
    bounded(len(value.encode()), CLUSTER_ID_BYTES_MAX, "length of a cluster id")
    return value


# Streams: Hello and messages, each in an Envelope.


def encode_hello(hello: m.PeerHello) -> bytes:
    body = pb.Hello(cluster_id=hello.cluster_id, node_id=hello.node_id, directory_id=hello.directory_id)
    return pb.Envelope(hello=body).SerializeToString()


def decode_hello(data: bytes) -> m.PeerHello:
    envelope = _parse(pb.Envelope, data)
    if envelope.WhichOneof("body") != "hello":
        raise CorruptMessageError("a stream must begin with a Hello")
    hello = envelope.hello
    return m.PeerHello(
        cluster_id=_cluster_id(hello.cluster_id),
        node_id=_node_id(hello.node_id),
        directory_id=_directory(hello.directory_id),
    )


class EntriesEncoder:
    """Encodes the entries of append messages: once for each batch, which a leader sends to all its followers."""

    def __init__(self) -> None:
        self._entries: tuple[LogEntry, ...] = ()  # the last ones
        self._encoded = b""

    def encode(self, entries: tuple[LogEntry, ...]) -> bytes:
        """A separate Envelope; see `encode_message`."""
        if entries != self._entries:  # cheap: the objects are identical, or the first ones differ
            body = pb.AppendRequest(
                entries=[pb.Entry(data=data, index=index, term=term) for data, index, term in entries]
            )
            self._entries, self._encoded = entries, pb.Envelope(append_request=body).SerializeToString()
        return self._encoded


def encode_message(message: m.Message, entries_encoder: EntriesEncoder) -> bytes:
    """The entries of an append follow as a second Envelope: a parser merges both occurrences of the field (Protocol
    Buffers, "Last One Wins"), so the entries are not encoded again for each follower.
    """
    data = _ENCODERS[type(message)](message).SerializeToString()
    if isinstance(message, m.AppendRequest) and message.entries:
        return data + entries_encoder.encode(message.entries)
    return data


def decode_message(data: bytes) -> m.Message | None:
    """None for a kind that this version does not know."""
    envelope = _parse(pb.Envelope, data)
    name = envelope.WhichOneof("body")
    decoder = _DECODERS.get(name or "")
    return None if decoder is None else decoder(getattr(envelope, name or ""))


def _encode_pre_vote_request(x: m.PreVoteRequest) -> pb.Envelope:
    body = pb.PreVoteRequest(term=x.term, last_index=x.last_index, last_term=x.last_term, named=x.named)
    return pb.Envelope(pre_vote_request=body)


def _decode_pre_vote_request(x: pb.PreVoteRequest) -> m.Message:
    return m.PreVoteRequest(
        term=_term(x.term), last_index=_index(x.last_index), last_term=_term(x.last_term), named=x.named
    )


def _encode_pre_vote_reply(x: m.PreVoteReply) -> pb.Envelope:
    return pb.Envelope(pre_vote_reply=pb.PreVoteReply(asked_term=x.asked_term, term=x.term, granted=x.granted))


def _decode_pre_vote_reply(x: pb.PreVoteReply) -> m.Message:
    return m.PreVoteReply(asked_term=_term(x.asked_term), term=_term(x.term), granted=x.granted)


def _encode_vote_request(x: m.VoteRequest) -> pb.Envelope:
    return pb.Envelope(
        vote_request=pb.VoteRequest(term=x.term, last_index=x.last_index, last_term=x.last_term, named=x.named)
    )


def _decode_vote_request(x: pb.VoteRequest) -> m.Message:
    return m.VoteRequest(
        term=_term(x.term), last_index=_index(x.last_index), last_term=_term(x.last_term), named=x.named
    )


def _encode_vote_reply(x: m.VoteReply) -> pb.Envelope:
    return pb.Envelope(vote_reply=pb.VoteReply(term=x.term, granted=x.granted))


def _decode_vote_reply(x: pb.VoteReply) -> m.Message:
    return m.VoteReply(term=_term(x.term), granted=x.granted)


def _encode_append_request(x: m.AppendRequest) -> pb.Envelope:  # but for the entries
    body = pb.AppendRequest(
        term=x.term,
        round=x.round,
        commit_index=x.commit_index,
        prev_index=x.prev_index,
        prev_term=x.prev_term,
        next_within_ms=x.next_within_ms,
    )
    return pb.Envelope(append_request=body)


def _decode_append_request(x: pb.AppendRequest) -> m.Message:
    bounded(len(x.entries), ENTRIES_MAX, "append: number of entries")
    bounded(x.prev_index, INDEX_MAX - ENTRIES_MAX, "append: index")
    entries = tuple([LogEntry(e.data, RaftIndex(e.index), RaftTerm(e.term)) for e in x.entries])
    before = x.prev_term
    for place, entry in enumerate(entries, x.prev_index + 1):
        if entry.index != place or not entry.data or not before <= entry.term <= x.term:
            raise CorruptMessageError(f"append: entry {entry.index} of term {entry.term} where {place} is expected")
        before = entry.term
        _check_entry(entry)
    if x.prev_term > x.term:
        raise CorruptMessageError(f"append: entry {x.prev_index} of term {x.prev_term} in a log of term {x.term}")
    return m.AppendRequest(
        term=_term(x.term),
        round=_round(x.round),
        commit_index=_index(x.commit_index),
        prev_index=_index(x.prev_index),
        prev_term=_term(x.prev_term),
        next_within_ms=x.next_within_ms,
        entries=entries,
    )


def _check_entry(entry: LogEntry) -> None:
    """It can be applied once committed. Checked before it is in the log, or the node would stop at every start."""
    match entry.kind:
        case EntryKind.COMMAND:
            decode_command(entry.payload)
        case EntryKind.VOTERS:
            decode_voters(entry.payload)
        case EntryKind.NO_OP:
            pass
        case unknown:
            raise CorruptMessageError(
                f"append: entry {entry.index} has the kind {unknown}, unknown to this version: if a newer one wrote "
                "it, upgrade this node"
            )


def _encode_append_reply(x: m.AppendReply) -> pb.Envelope:
    body = pb.AppendReply(term=x.term, round=x.round, matched=x.matched, next_index=x.next_index)
    return pb.Envelope(append_reply=body)


def _decode_append_reply(x: pb.AppendReply) -> m.Message:
    return m.AppendReply(term=_term(x.term), round=_round(x.round), matched=x.matched, next_index=_index(x.next_index))


def _encode_snapshot_request(x: m.SnapshotRequest) -> pb.Envelope:
    body = pb.SnapshotRequest(
        term=x.term,
        round=x.round,
        last_index=x.last_index,
        last_term=x.last_term,
        size=x.size,
        offset=x.offset,
        data=x.data,
    )
    return pb.Envelope(snapshot_request=body)


def _decode_snapshot_request(x: pb.SnapshotRequest) -> m.Message:
    if not x.data or x.offset + len(x.data) > bounded(x.size, SNAPSHOT_BYTES_MAX, "snapshot: size"):
        raise CorruptMessageError(f"snapshot: {len(x.data)} bytes at {x.offset} of {x.size}")
    if x.last_term > x.term or not x.last_index:
        raise CorruptMessageError(f"snapshot: of entry {x.last_index} and term {x.last_term}, in term {x.term}")
    return m.SnapshotRequest(
        term=_term(x.term),
        round=_round(x.round),
        last_index=_index(x.last_index),
        last_term=_term(x.last_term),
        size=x.size,
        offset=x.offset,
        data=x.data,
    )


def _encode_snapshot_reply(x: m.SnapshotReply) -> pb.Envelope:
    body = pb.SnapshotReply(term=x.term, round=x.round, last_index=x.last_index, offset=x.offset, installed=x.installed)
    return pb.Envelope(snapshot_reply=body)


def _decode_snapshot_reply(x: pb.SnapshotReply) -> m.Message:
    return m.SnapshotReply(
        term=_term(x.term),
        round=_round(x.round),
        last_index=_index(x.last_index),
        offset=bounded(x.offset, SNAPSHOT_BYTES_MAX, "snapshot: offset"),
        installed=x.installed,
    )


def _encode_timeout_now(x: m.TimeoutNow) -> pb.Envelope:
    return pb.Envelope(timeout_now=pb.TimeoutNow(term=x.term))


def _decode_timeout_now(x: pb.TimeoutNow) -> m.Message:
    return m.TimeoutNow(term=_term(x.term))


def _encode_voters_notice(x: m.VotersNotice) -> pb.Envelope:
    return pb.Envelope(voters_notice=pb.VotersNotice(index=x.index, voters=_voters_to_pb(x.voters)))


def _decode_voters_notice(x: pb.VotersNotice) -> m.Message:
    return m.VotersNotice(index=_index(x.index), voters=_voters_from_pb(x.voters))


_ENCODERS: dict[type, Callable[..., pb.Envelope]] = {
    m.PreVoteRequest: _encode_pre_vote_request,
    m.PreVoteReply: _encode_pre_vote_reply,
    m.VoteRequest: _encode_vote_request,
    m.VoteReply: _encode_vote_reply,
    m.AppendRequest: _encode_append_request,
    m.AppendReply: _encode_append_reply,
    m.SnapshotRequest: _encode_snapshot_request,
    m.SnapshotReply: _encode_snapshot_reply,
    m.TimeoutNow: _encode_timeout_now,
    m.VotersNotice: _encode_voters_notice,
}
_DECODERS: dict[str, Callable[..., m.Message]] = {
    "pre_vote_request": _decode_pre_vote_request,
    "pre_vote_reply": _decode_pre_vote_reply,
    "vote_request": _decode_vote_request,
    "vote_reply": _decode_vote_reply,
    "append_request": _decode_append_request,
    "append_reply": _decode_append_reply,
    "snapshot_request": _decode_snapshot_request,
    "snapshot_reply": _decode_snapshot_reply,
    "timeout_now": _decode_timeout_now,
    "voters_notice": _decode_voters_notice,
}


# Payloads of entries.


def encode_command(payload: bytes, client_id: str, sequence: int) -> bytes:
    return pb.Command(client_id=client_id, sequence=sequence, payload=payload).SerializeToString()


def decode_command(data: bytes) -> tuple[bytes, str, int]:
    """(payload, client id, sequence)."""
    command = _parse(pb.Command, data)
    if len(command.client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise CorruptMessageError(f"command: a client id of more than {CLIENT_ID_BYTES_MAX} bytes")
    bounded(command.sequence, SEQUENCE_MAX, "command: sequence")
    return command.payload, command.client_id, command.sequence


def encode_voters(voters: VoterSet) -> bytes:
    return _voters_to_pb(voters).SerializeToString()


def decode_voters(data: bytes) -> VoterSet:
    return _voters_from_pb(_parse(pb.VoterSet, data))


def _voters_to_pb(voters: VoterSet) -> pb.VoterSet:
    return pb.VoterSet(
        voters=map(_voter_to_pb, voters), pending=None if voters.pending is None else _voter_to_pb(voters.pending)
    )


def _voter_to_pb(voter: Voter) -> pb.Voter:
    return pb.Voter(node_id=voter.node_id, address=voter.address, directory_id=voter.directory_id)


def _voters_from_pb(voters: pb.VoterSet) -> VoterSet:
    bounded(len(voters.voters), VOTERS_MAX, "number of voters")
    try:
        pending = _voter_from_pb(voters.pending) if voters.HasField("pending") else None
        return VoterSet(tuple(map(_voter_from_pb, voters.voters)), pending)
    except InvalidRequestError as error:
        raise CorruptMessageError(f"voters: {error}") from None


def _voter_from_pb(voter: pb.Voter) -> Voter:
    return Voter(node_id=BrokerId(voter.node_id), address=voter.address, directory_id=DirectoryId(voter.directory_id))


def _directory(data: bytes) -> DirectoryId:
    if len(data) != DIRECTORY_ID_BYTES:
        raise CorruptMessageError(f"a directory id of {len(data)} bytes, not {DIRECTORY_ID_BYTES}")
    return DirectoryId(data)


# Parts of files.


def encode_identity(identity: QuorumIdentity) -> bytes:
    return pb.Identity(
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        directory_id=identity.directory_id,
        bootstrap=_voters_to_pb(identity.bootstrap),
    ).SerializeToString()


def decode_identity(data: bytes) -> QuorumIdentity:
    identity = _parse(pb.Identity, data)
    return QuorumIdentity(
        cluster_id=_cluster_id(identity.cluster_id),
        node_id=_node_id(identity.node_id),
        directory_id=_directory(identity.directory_id),
        bootstrap=_voters_from_pb(identity.bootstrap),
    )


def encode_snapshot_head(head: SnapshotHead) -> bytes:
    return pb.SnapshotHead(
        last_index=head.last_index,
        last_term=head.last_term,
        voters_index=head.voters_index,
        voters=_voters_to_pb(head.voters),
    ).SerializeToString()


def decode_snapshot_head(data: bytes) -> SnapshotHead:
    head = _parse(pb.SnapshotHead, data)
    return SnapshotHead(
        last_index=_index(head.last_index),
        last_term=_term(head.last_term),
        voters_index=_index(head.voters_index),
        voters=_voters_from_pb(head.voters),
    )


def encode_sessions(sessions: Sequence[Session]) -> bytes:
    block = pb.SessionBlock()
    for session in sessions:
        answers = [
            pb.Session.Answer(sequence=sequence, index=applied.index, result=applied.result)
            for sequence, applied in session.answers
        ]
        block.sessions.add(client_id=session.client_id, forgotten_end=session.forgotten_end, answers=answers)
    return block.SerializeToString()


def decode_sessions(data: bytes) -> list[Session]:
    return [
        Session(
            client_id=session.client_id,
            forgotten_end=bounded(session.forgotten_end, SEQUENCE_MAX + 1, "session: sequence"),
            answers=tuple(
                (
                    bounded(answer.sequence, SEQUENCE_MAX, "session: sequence"),
                    Applied(index=_index(answer.index), result=answer.result),
                )
                for answer in session.answers
            ),
        )
        for session in _parse(pb.SessionBlock, data).sessions
    ]


# The observers' stream.


def encode_watch_request(request: WatchRequest) -> bytes:
    return pb.WatchRequest(cluster_id=request.cluster_id, applied_index=request.applied_index).SerializeToString()


def decode_watch_request(data: bytes) -> WatchRequest:
    request = _parse(pb.WatchRequest, data)
    return WatchRequest(cluster_id=_cluster_id(request.cluster_id), applied_index=_index(request.applied_index))


def encode_observed(message: Observed) -> bytes:
    if isinstance(message, VoterSet):
        return pb.WatchResponse(voters=_voters_to_pb(message)).SerializeToString()
    if isinstance(message, ObservedSnapshot):
        snapshot = pb.WatchResponse.Snapshot(
            index=message.index, data=message.data, first=message.first, last=message.last
        )
        return pb.WatchResponse(snapshot=snapshot).SerializeToString()
    commands = pb.WatchResponse.Commands(
        commands=[pb.WatchResponse.Commands.Command(index=i, payload=payload) for i, payload in message.commands],
        applied_index=message.applied_index,
        quorum_silence_ms=message.quorum_silence_ms,
    )
    return pb.WatchResponse(commands=commands).SerializeToString()


def decode_observed(data: bytes) -> Observed | None:
    """None for a kind that this version does not know."""
    response = _parse(pb.WatchResponse, data)
    match response.WhichOneof("body"):
        case "snapshot":
            snapshot = response.snapshot
            return ObservedSnapshot(
                index=_index(snapshot.index), data=snapshot.data, first=snapshot.first, last=snapshot.last
            )
        case "commands":
            return ObservedCommands(
                commands=tuple((_index(c.index), c.payload) for c in response.commands.commands),
                applied_index=_index(response.commands.applied_index),
                quorum_silence_ms=(
                    response.commands.quorum_silence_ms if response.commands.HasField("quorum_silence_ms") else None
                ),
            )
        case "voters":
            return _voters_from_pb(response.voters)
        case _:
            return None
