"""Values <-> protobuf: there and back, golden bytes, and nothing that is not a value comes through."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptMessageError, InvalidRequestError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.pb import raft_pb2 as pb
from streamlog.raft.port import Applied
from streamlog.raft.protocol import messages as m
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.entries import LogEntry
from streamlog.raft.protocol.observed import ObservedCommands, ObservedSnapshot, WatchRequest
from streamlog.raft.protocol.stored import QuorumIdentity, Session, SnapshotHead
from streamlog.raft.voters import DirectoryId, Voter, VoterSet

from ..kit import voter, voters

DIRECTORY = DirectoryId(bytes(range(16)))
N, T = RaftIndex, RaftTerm

MESSAGES: list[tuple[m.Message, str]] = [
    (m.PreVoteRequest(term=T(3), last_index=N(9), last_term=T(2), named=True), "1208080310091802" "2001"),
    (m.PreVoteReply(asked_term=T(3), term=T(2), granted=True), "1a06080310021801"),
    (m.VoteRequest(term=T(3), last_index=N(9), last_term=T(2)), "2206080310091802"),
    (m.VoteReply(term=T(3), granted=True), "2a0408031001"),
    (
        m.AppendRequest(
            term=T(3),
            round=7,
            commit_index=N(4),
            prev_index=N(5),
            prev_term=T(2),
            next_within_ms=100,
            entries=(LogEntry(b"\0hi", N(6), T(3)),),
        ),
        "320c080310071804200528023864" "320b3209080610031a03006869",
    ),
    (m.AppendReply(term=T(3), round=7, matched=True, next_index=N(7)), "3a080803100718012007"),
    (
        m.SnapshotRequest(
            term=T(3), round=7, last_index=N(9), last_term=T(2), size=300, offset=2, data=b"ab"
        ),
        "4211080310071809200228ac0230023a026162",
    ),
    (m.SnapshotReply(term=T(3), round=7, last_index=N(9), offset=4, installed=True), "4a0a08031007180920042801"),
    (m.TimeoutNow(term=T(3)), "52020803"),
    (m.VotersNotice(index=N(4), voters=voters(1)), "5a1108041" "20d0a0b0801120" "76e313a39303932"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "golden"), MESSAGES, ids=lambda x: type(x).__name__)
def test_messages_there_and_back(message: m.Message, golden: str) -> None:
    assert wire.encode_message(message, wire.EntriesEncoder()).hex() == golden.replace(" ", "")
    assert wire.decode_message(bytes.fromhex(golden)) == message


def test_every_kind_of_message_has_golden_bytes() -> None:
    assert {type(message) for message, _ in MESSAGES} == set(wire._ENCODERS)


def test_entries_may_stand_within_the_message_or_behind_it() -> None:
    whole = bytes.fromhex("3217080310071804200528023209080610031a030068693864")
    assert wire.decode_message(whole) == MESSAGES[4][0]


def test_each_batch_of_entries_is_its_own() -> None:
    encoder = wire.EntriesEncoder()
    batches = [
        (LogEntry(b"\0\x1a\1a", N(6), T(3)),),
        (LogEntry(b"\0\x1a\1b", N(6), T(4)),),
        (LogEntry(b"\0\x1a\1b", N(6), T(4)), LogEntry(b"\0\x1a\1c", N(7), T(4))),
    ]
    for entries in [*batches, *batches[::-1]]:
        message = m.AppendRequest(
            term=T(4), round=1, commit_index=N(1), prev_index=N(5), prev_term=T(3), entries=entries
        )
        assert wire.decode_message(wire.encode_message(message, encoder)) == message


def test_a_hello_comes_first() -> None:
    hello = m.PeerHello(cluster_id="c", node_id=BrokerId(2), directory_id=DIRECTORY)
    data = wire.encode_hello(hello)
    assert wire.decode_hello(data) == hello
    assert wire.decode_message(data) is None  # later it means nothing
    with pytest.raises(CorruptMessageError, match="Hello"):
        wire.decode_hello(wire.encode_message(MESSAGES[0][0], wire.EntriesEncoder()))
    with pytest.raises(CorruptMessageError, match="directory id"):
        wire.decode_hello(pb.Envelope(hello=pb.Hello(cluster_id="c", node_id=2)).SerializeToString())


def test_a_kind_of_a_newer_version_is_none() -> None:
    assert wire.decode_message(bytes.fromhex("9206020801")) is None  # field 98
    assert wire.decode_message(b"") is None


@pytest.mark.parametrize(
    "entries",
    [
        [pb.Entry(index=7, term=3, data=b"x")],  # a gap behind prev
        [pb.Entry(index=6, term=3, data=b"x"), pb.Entry(index=8, term=3, data=b"x")],
        [pb.Entry(index=6, term=4, data=b"x")],  # of a later term than the leader's
        [pb.Entry(index=6, term=1, data=b"x")],  # of an older term than the one before
        [pb.Entry(index=6, term=3)],  # no kind
    ],
)
def test_entries_that_cannot_be_are_refused(entries: list[pb.Entry]) -> None:
    append = pb.AppendRequest(term=3, round=1, commit_index=1, prev_index=5, prev_term=2, entries=entries)
    with pytest.raises(CorruptMessageError, match="append"):
        wire.decode_message(pb.Envelope(append_request=append).SerializeToString())


@pytest.mark.parametrize(("offset", "data", "size"), [(0, b"", 10), (9, b"ab", 10), (11, b"a", 10)])
def test_chunks_that_cannot_be_are_refused(offset: int, data: bytes, size: int) -> None:
    chunk = pb.SnapshotRequest(term=1, round=1, last_index=2, last_term=1, size=size, offset=offset, data=data)
    with pytest.raises(CorruptMessageError, match="snapshot"):
        wire.decode_message(pb.Envelope(snapshot_request=chunk).SerializeToString())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for decode in (
        wire.decode_message,
        wire.decode_hello,
        wire.decode_command,
        wire.decode_voters,
        wire.decode_identity,
        wire.decode_snapshot_head,
        wire.decode_sessions,
        wire.decode_watch_request,
        wire.decode_observed,
    ):
        try:
            decode(data)
        except CorruptMessageError:
            pass


def test_commands_there_and_back() -> None:
    assert wire.decode_command(wire.encode_command(b"payload", "client", 2**62)) == (b"payload", "client", 2**62)
    with pytest.raises(CorruptMessageError, match="client id"):
        wire.decode_command(wire.encode_command(b"", "c" * 129, 0))


def test_voters_there_and_back() -> None:
    known = voters(1, 2, 3).with_directory(BrokerId(2), DIRECTORY)
    assert wire.decode_voters(wire.encode_voters(known)) == known
    replaced = known.with_removed(BrokerId(2), pending=voter(2))
    assert wire.decode_voters(wire.encode_voters(replaced)) == replaced
    assert replaced.with_added(voter(2)) == voters(1, 2, 3)
    wrong = pb.VoterSet(voters=[pb.Voter(node_id=2), pb.Voter(node_id=1)])
    with pytest.raises(CorruptMessageError, match="order"):
        wire.decode_voters(wrong.SerializeToString())
    with pytest.raises(CorruptMessageError, match="directory id"):
        wire.decode_voters(pb.VoterSet(voters=[pb.Voter(node_id=2, directory_id=b"x")]).SerializeToString())


VOTER_FIELDS = [
    {"address": "é" * 127 + "x"},
    {"address": "é" * 128},
    {"address": "h" * 256},
    {"node_id": 2**31 - 1},
    {"node_id": 2**31},
    {"directory_id": DIRECTORY},
    {"directory_id": b"x" * 15},
]


@pytest.mark.parametrize("fields", VOTER_FIELDS, ids=[f"{fields}"[:30] for fields in VOTER_FIELDS])
def test_a_voter_has_only_values_that_the_log_can_be_read_with(fields: dict[str, Any]) -> None:
    """The leader appends sets of voters that callers give it, and reads its own entries, as all do."""
    values = {"node_id": 2, "address": "h:1", **fields}
    message = pb.VoterSet(voters=[pb.Voter(**values)]).SerializeToString()
    try:
        voter = Voter(**values)
    except InvalidRequestError:
        with pytest.raises(CorruptMessageError, match="voters"):
            wire.decode_voters(message)
    else:
        assert wire.decode_voters(message) == VoterSet.of([voter])


def test_parts_of_files_there_and_back() -> None:
    identity = QuorumIdentity(cluster_id="c", node_id=BrokerId(1), directory_id=DIRECTORY, bootstrap=voters(1, 2))
    assert wire.decode_identity(wire.encode_identity(identity)) == identity
    head = SnapshotHead(last_index=N(9), last_term=T(2), voters_index=N(3), voters=voters(1))
    assert wire.decode_snapshot_head(wire.encode_snapshot_head(head)) == head
    answers = ((4, Applied(index=N(7), result=b"r")), (3, Applied(index=N(8), result=b"")))
    sessions = [Session(client_id="c", forgotten_end=3, answers=answers)]
    assert wire.decode_sessions(wire.encode_sessions(sessions)) == sessions


def test_the_observers_messages_there_and_back() -> None:
    request = WatchRequest(cluster_id="c", applied_index=N(5))
    assert wire.decode_watch_request(wire.encode_watch_request(request)) == request
    for message in (
        ObservedSnapshot(index=N(5), data=b"x", first=True, last=False),
        ObservedCommands(commands=((N(6), b"a"), (N(8), b"")), applied_index=N(9)),
        voters(1, 2, 4),
    ):
        assert wire.decode_observed(wire.encode_observed(message)) == message
    assert wire.decode_observed(b"") is None
