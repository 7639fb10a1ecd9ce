"""Messages of who is no node of the quorum: the node's state stays what it was, and its sender loses the stream."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptMessageError, DamagedFileError
from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.open_storage import Owner, open_storage
from streamlog.raft.pb import raft_pb2
from streamlog.raft.protocol import messages as m
from streamlog.raft.protocol import wire
from streamlog.raft.protocol.bounds import TERM_JUMP_MAX, TERM_MAX
from streamlog.raft.storage.journal import Journal
from streamlog.sim import Machine
from streamlog.sim.world import Host

from ..kit import DIRECTORY, PORT, Cluster, voters
from ..library.our_lab import OurLab
from ..stories import run_story
from .hostile import DIRECTORY as FORGED
from .hostile import STRANGER, forge, impossible_messages, strangers_messages

SEED = random.Random(17)


def picture(lab: OurLab, node: int) -> tuple[Any, ...]:
    """All of a node that a message may change."""
    core, journal = lab.core(node), lab.nodes[node].journal
    return (
        (core.role, core.term, core.vote, core.leader_id, core.commit_index, core.last_applied, core.election_deadline),
        (journal.term, journal.vote, journal.between(0, len(journal)), core.voter_sets.voters),
        core.elections._leader_seen_at,
        {who: (p.matched, p.next_index, p.answered_round) for who, p in core.replication._peers.items()},
        lab.state(node),
    )


def running_lab() -> OurLab:
    lab = OurLab(3)
    lab.elect(1)
    for number in range(5):
        lab.submit(1, f"x{number}")
    lab.run(4)
    return lab


def give(lab: OurLab, source: int, target: int, data: bytes) -> None:
    """As the link does (transport, runner)."""
    message = wire.decode_message(data)
    if message is not None:
        lab.core(target).receive(BrokerId(source), message)
        lab.settle(target)


@pytest.mark.parametrize("target", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize("place", range(len(strangers_messages(SEED))))
def test_a_stranger_changes_nothing(place: int, target: int) -> None:
    lab = running_lab()
    lab.core(target).connect(BrokerId(STRANGER), FORGED)
    give(lab, STRANGER, target, strangers_messages(SEED)[0])  # it says that it votes
    before = picture(lab, target)
    give(lab, STRANGER, target, strangers_messages(SEED)[place])
    assert picture(lab, target) == before


@pytest.mark.parametrize("target", [1, 2], ids=["leader", "follower"])
@pytest.mark.parametrize("place", range(len(impossible_messages(SEED))))
def test_what_no_node_can_have_sent_is_refused_to_a_voter_as_well(place: int, target: int) -> None:
    for _ in range(5):
        lab = running_lab()
        before = picture(lab, target)
        data = impossible_messages(SEED)[place]
        try:
            give(lab, 3, target, data)
        except CorruptMessageError:
            pass
        assert picture(lab, target) == before


def test_a_conflict_with_what_is_committed_is_the_senders_fault() -> None:
    lab = running_lab()
    lab.core(2).elections.step_down(lab.core(2).term)
    before = picture(lab, 2)
    request = m.AppendRequest(
        term=RaftTerm(50),
        round=1,
        commit_index=lab.core(2).commit_index,
        prev_index=lab.core(2).commit_index,
        prev_term=RaftTerm(49),
    )
    with pytest.raises(CorruptMessageError, match="committed"):
        lab.core(2).receive(BrokerId(3), request)
    assert picture(lab, 2) == before


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_reply_that_asks_for_an_entry_before_every_log_is_the_senders_fault(wanted: int) -> None:
    """The leader has no snapshot yet, and needs none."""
    lab = running_lab()
    before = picture(lab, 1)
    reply = m.AppendReply(term=lab.core(1).term, round=1, matched=False, next_index=RaftIndex(wanted))
    lab.core(1).replication.progress_of(BrokerId(3)).forget()  # type: ignore[union-attr]  # as of a new directory
    with pytest.raises(CorruptMessageError, match="every log begins at 1"):
        lab.core(1).receive(BrokerId(3), reply)
    lab.tick(1)
    assert picture(lab, 1)[0] == before[0]


NUMBERS = st.one_of(st.integers(0, 20), st.integers(0, 2**64 - 1), st.sampled_from([2**61, 2**62, 2**63, 2**64 - 1]))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_message_of_a_voter_raises_anything_else(data: st.DataObject) -> None:
    """A forger under a voter's name may have terms go up: by a jump that the range of terms outlives."""
    lab = OurLab(3)
    lab.elect(1)
    lab.run(2)
    for _ in range(data.draw(st.integers(1, 6))):
        messages = [*strangers_messages(SEED), *impossible_messages(SEED)]
        envelope = raft_pb2.Envelope.FromString(data.draw(st.sampled_from(messages[:-1])))
        which = envelope.WhichOneof("body")
        assert which is not None
        body = getattr(envelope, which)
        for name in ("term", "round", "prev_index", "prev_term", "commit_index", "next_index", "last_index", "offset"):
            if name in body.DESCRIPTOR.fields_by_name and data.draw(st.booleans()):
                setattr(body, name, data.draw(NUMBERS))
        for name in ("matched", "granted", "installed"):
            if name in body.DESCRIPTOR.fields_by_name:
                setattr(body, name, data.draw(st.booleans()))
        target = data.draw(st.sampled_from([1, 2, 3]))
        term = lab.core(target).term
        try:
            give(lab, data.draw(st.sampled_from([1, 2, 3])) % 3 + 1, target, envelope.SerializeToString())
            lab.tick(target)
        except CorruptMessageError:
            pass
        assert lab.core(target).term <= term + TERM_JUMP_MAX + 1


def test_forged_streams_end_and_are_named_once() -> None:
    """Through the sockets of whole nodes, under a voter's name and as a stranger."""

    async def story(cluster: Cluster) -> None:
        world = cluster.world
        dropped: list[dict[str, object]] = []

        def listen(host: Host, event: str, fields: dict[str, object]) -> None:
            if event == "quorum_peer_dropped":
                dropped.append({**fields, "at": host.name})

        world.listeners.append(listen)
        await cluster.put("a=1")
        forger = world.host("forger")
        forger.boot()
        rng = random.Random(5)
        for _ in range(10):
            for target in (1, 2, 3):
                for impersonated in (None, f"n{target % 3 + 1}:{PORT}"):
                    network = forger.ports.network
                    await forger.spawn(forge(network, f"n{target}:{PORT}", impersonated, rng))
        await cluster.put("a=2")
        assert all(member.core.term < 1 << 20 for member in cluster.members())
        named = [(line["at"], line["peer"]) for line in dropped]
        assert named
        assert len(named) == len(set(named))
        assert all(line["address"] for line in dropped)

    run_story(story)


def test_a_term_that_an_older_release_has_taken_is_refused_at_the_start() -> None:
    machine = Machine()
    owner = Owner(cluster_id="test", node_id=BrokerId(1), voters=voters(1, 2, 3))

    async def take_it() -> None:
        storage = await open_storage(machine.fs, machine.workers, random.Random(1), DIRECTORY, owner)
        assert isinstance(storage.journal, Journal)
        storage.journal.set_state(RaftTerm(2**64 - 1), BrokerId(9))
        await storage.journal.sync()
        storage.close()

    machine.run(take_it())
    with pytest.raises(DamagedFileError, match=r"no quorum reaches these numbers.*remove voter 1"):
        machine.run(open_storage(machine.fs, machine.workers, random.Random(1), DIRECTORY, owner))
    assert TERM_MAX < 2**63
