"""A program that speaks the quorum's protocol and is no node of it: what it may send, and a client that sends it.

Two kinds of it. A *stranger* shows an id and a directory of its own, and says what a node could say, in terms far above
those of the quorum (FORGED_TERM, which is no absurd jump). An *impostor* has asked a voter for its Hello and shows that
one's id and directory; with it go messages that no node can have sent.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from streamlog.errors import CorruptMessageError
from streamlog.ports import Network, RpcError
from streamlog.raft import transport
from streamlog.raft.pb import raft_pb2 as pb
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.messages import PeerHello
from streamlog.raft.voters import DirectoryId

FORGED_TERM: Final = 1 << 30
STRANGER: Final = 99
DIRECTORY: Final = DirectoryId(b"z" * 16)
ANSWER_S: Final = 0.3


def _envelope(**body: object) -> bytes:
    return pb.Envelope(**body).SerializeToString()  # type: ignore[arg-type]


def _voters(*known: tuple[int, bytes]) -> pb.VoterSet:
    return pb.VoterSet(voters=[pb.Voter(node_id=n, address=f"n{n}:9092", directory_id=d) for n, d in known])


def strangers_messages(rng: random.Random) -> list[bytes]:
    """Each of them could be a node's."""
    term = FORGED_TERM + rng.randrange(1 << 20)
    far = {"last_index": 1 << 39, "last_term": term - 1}
    entry = pb.Entry(index=2, term=term, data=b"\x00\x1a\x01x")
    members = pb.Entry(index=2, term=term, data=b"\x02" + _voters((STRANGER, DIRECTORY)).SerializeToString())
    return [
        _envelope(voters_notice=pb.VotersNotice(index=1 << 39, voters=_voters((STRANGER, DIRECTORY)))),
        _envelope(pre_vote_request=pb.PreVoteRequest(term=term, named=True, **far)),
        _envelope(pre_vote_reply=pb.PreVoteReply(asked_term=term, term=term, granted=True)),
        _envelope(vote_request=pb.VoteRequest(term=term, named=True, **far)),
        _envelope(vote_reply=pb.VoteReply(term=term, granted=rng.random() < 0.5)),
        _envelope(append_request=pb.AppendRequest(term=term, round=1, commit_index=9, prev_index=1, entries=[entry])),
        _envelope(append_request=pb.AppendRequest(term=term, round=1, commit_index=2, prev_index=1, entries=[members])),
        _envelope(
            append_request=pb.AppendRequest(term=term, round=1, commit_index=5, prev_index=3, prev_term=term - 1)
        ),
        _envelope(append_reply=pb.AppendReply(term=term, round=1, matched=True, next_index=5)),
        _envelope(
            snapshot_request=pb.SnapshotRequest(
                term=term, round=1, last_index=1 << 39, last_term=term, size=1, offset=0, data=b"x"
            )
        ),
        _envelope(snapshot_reply=pb.SnapshotReply(term=term, round=1, last_index=7, offset=1, installed=True)),
        _envelope(timeout_now=pb.TimeoutNow(term=term)),
    ]


def impossible_messages(rng: random.Random) -> list[bytes]:
    """No node can have sent them: a sender with a voter's name is refused them too."""
    term = rng.choice([(1 << 64) - 1, (1 << 63), (1 << 62) + 1, 1 << 62, 1 << 61])
    index = rng.choice([(1 << 64) - 1, (1 << 63), (1 << 62) + 1, 1 << 62, 1 << 61])
    few: dict[str, Any] = {"round": 1, "commit_index": 1, "prev_index": 1}
    return [
        _envelope(pre_vote_request=pb.PreVoteRequest(term=term, last_index=1, last_term=1)),
        _envelope(pre_vote_reply=pb.PreVoteReply(asked_term=1, term=term, granted=False)),
        _envelope(vote_request=pb.VoteRequest(term=term, last_index=1 << 30, last_term=1)),
        _envelope(vote_request=pb.VoteRequest(term=1, last_index=index, last_term=1)),
        _envelope(vote_reply=pb.VoteReply(term=term, granted=True)),
        _envelope(append_request=pb.AppendRequest(term=term, **few)),
        _envelope(append_request=pb.AppendRequest(term=1, round=1, commit_index=1, prev_index=index)),
        _envelope(append_request=pb.AppendRequest(term=1, round=1, commit_index=index, prev_index=1)),
        _envelope(append_request=pb.AppendRequest(term=1, round=index, commit_index=1, prev_index=(1 << 64) - 1)),
        *(
            _envelope(append_request=pb.AppendRequest(term=7, **few, entries=entries))
            for entries in (
                [pb.Entry(index=2, term=7, data=b"\xff\xff\xff")],
                [pb.Entry(index=2, term=7, data=b"\x00\xff\xff")],
                [pb.Entry(index=2, term=7, data=b"\x02\xff\xff")],
                [pb.Entry(index=2, term=7)],
                [pb.Entry(index=2, term=7, data=b"\x01"), pb.Entry(index=3, term=6, data=b"\x01")],
                [pb.Entry(index=3, term=7, data=b"\x01")],
                [pb.Entry(index=2, term=8, data=b"\x01")],
            )
        ),
        _envelope(append_reply=pb.AppendReply(term=term, round=1, matched=True, next_index=2)),
        _envelope(append_reply=pb.AppendReply(term=1, round=1, matched=True, next_index=(1 << 64) - 1)),
        _envelope(snapshot_request=pb.SnapshotRequest(term=1, round=1, last_index=9, last_term=3, size=1, data=b"x")),
        _envelope(
            snapshot_request=pb.SnapshotRequest(
                term=1, round=1, last_index=9, last_term=1, size=index, offset=index - 1, data=b"x"
            )
        ),
        _envelope(snapshot_reply=pb.SnapshotReply(term=term, round=1, last_index=1, offset=1)),
        _envelope(timeout_now=pb.TimeoutNow(term=term)),
        _envelope(voters_notice=pb.VotersNotice(index=(1 << 63), voters=_voters((1, DIRECTORY)))),
        _envelope(voters_notice=pb.VotersNotice(index=1, voters=_voters(*((n, DIRECTORY) for n in range(50))))),
        b"\xff" * 20,
    ]


async def forge(
    network: Network, target: str, impersonated: str | None, rng: random.Random, *, cluster_id: str = "test"
) -> None:
    """One stream to `target`, with one message; as the node at `impersonated`, or as a stranger."""
    try:
        if impersonated is None:
            hello = _strangers_hello(cluster_id)
            messages = strangers_messages(rng)
        else:
            hello = await _hello_of(network, impersonated, cluster_id)
            messages = impossible_messages(rng)
        channel = network.connect(target)
        try:
            async with asyncio.timeout(ANSWER_S), channel.stream(transport.METHOD) as stream:
                await stream.send(hello)
                await stream.recv()
                for message in rng.sample(messages, 3 if impersonated is None else 1):
                    await stream.send(message)
                while await stream.recv() is not None:
                    pass
        finally:
            await channel.close()
    except (RpcError, TimeoutError, CorruptMessageError):
        pass


def _strangers_hello(cluster_id: str) -> bytes:
    return wire.encode_hello(PeerHello(cluster_id=cluster_id, node_id=STRANGER, directory_id=DIRECTORY))  # type: ignore[arg-type]


async def _hello_of(network: Network, target: str, cluster_id: str) -> bytes:
    """What it shows to anybody."""
    channel = network.connect(target)
    try:
        async with asyncio.timeout(ANSWER_S), channel.stream(transport.METHOD) as stream:
            await stream.send(_strangers_hello(cluster_id))
            return wire.encode_hello(wire.decode_hello(await stream.recv() or b""))
    finally:
        await channel.close()
