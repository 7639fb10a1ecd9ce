"""Random lives of one group: clients that lose answers, die, become zombies and return; coordinators that fail over.

What must hold (FAULTS I14, I15, I16), looked at after every step:

- No two members that were not removed read one partition.
- A commit never goes back, including those of zombies.
- When all is quiet every partition of what is subscribed to has a reader.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from streamlog.errors import StreamlogError
from streamlog.groups import committing
from streamlog.groups.assignors.problem import GroupPartition
from streamlog.groups.committing import CommitOffsets, Committer, OffsetToCommit
from streamlog.groups.records import AWAY
from streamlog.model import NO_LEADER_EPOCH, Offset, TopicPartition

from .rig import Coordinator, FakeTopics, Member, settle

NAMES = ("t", "u", "v")


class Life:
    """One seed. AssertionError where something does not hold."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._coordinator = Coordinator(FakeTopics(t=self._random.randint(1, 5), u=2))
        self._members: list[Member] = []
        self._zombies: list[Member] = []  # removed, and not aware of it
        self._made = 0
        self._positions: dict[tuple[str, GroupPartition], int] = {}  # member and partition -> where it reads
        self._committed: dict[GroupPartition, int] = {}

    def run(self, steps: int) -> None:
        moves = [self._join, self._beat, self._beat, self._beat, self._beat, self._lose_answer, self._read, self._read]
        moves += [self._commit, self._commit, self._zombie_commit, self._leave, self._silence, self._return]
        moves += [self._change_topics, self._fail_over, self._together]
        for _ in range(steps):
            self._random.choice(moves)()
            self._check_readers()
        self._become_quiet()

    # -- moves

    def _join(self) -> None:
        if len(self._members) >= 6:
            return
        self._made += 1
        instance = self._random.choice(("", "", f"static-{self._made}"))
        member = Member(self._coordinator, f"m{self._made}", topics=self._some_topics(), instance_id=instance)
        self._members.append(member)
        self._hear(member)

    def _beat(self) -> None:
        if member := self._any(self._members):
            self._hear(member)

    def _together(self) -> None:
        """Several at once, decided together."""
        some = [m for m in self._members if self._random.random() < 0.7]
        if some:
            for member, answer in zip(some, self._coordinator.heartbeats(*(m.request() for m in some)), strict=True):
                assert not isinstance(answer, StreamlogError), answer
                self._take(member, lambda m=member, a=answer: m.take(a))

    def _lose_answer(self) -> None:
        if member := self._any(self._members):
            for _ in range(self._random.randint(1, 3)):  # a retry that is lost too must not count as a confirmation
                self._coordinator.heartbeat(member.request())

    def _read(self) -> None:
        for member in self._members:
            for partition in sorted(member.reads):
                if self._random.random() < 0.5:
                    self._positions[member.member_id, partition] += self._random.randint(1, 3)

    def _commit(self) -> None:
        if (member := self._any(self._members)) and member.reads:
            for error in self._send_commit(member):
                assert error is None, error

    def _zombie_commit(self) -> None:
        if (zombie := self._any(self._zombies)) and zombie.reads:
            try:
                errors = self._send_commit(zombie)
            except StreamlogError:
                return
            assert all(errors), "a removed member has committed"

    def _leave(self) -> None:
        if (member := self._any(self._members)) and member.epoch:
            self._members.remove(member)
            member.leave()

    def _silence(self) -> None:
        """The session of a member times out; it continues as a zombie."""
        if (member := self._any(self._members)) and member.epoch:
            self._members.remove(member)
            self._coordinator.remove_member(member.member_id)
            self._zombies.append(member)

    def _return(self) -> None:
        """A static member goes and comes back under another id, with other topics sometimes."""
        member = self._any([m for m in self._members if m.instance_id and m.epoch])
        if member is not None:
            self._coordinator.heartbeat(member.request(epoch=AWAY))
            self._members.remove(member)
            self._made += 1
            back = replace(member, member_id=f"m{self._made}", epoch=0, reads=frozenset(), wanted=frozenset())
            if self._random.random() < 0.5:
                back.topics = self._some_topics()
            self._members.append(back)

    def _some_topics(self) -> tuple[str, ...]:
        return tuple(sorted(self._random.sample(NAMES, self._random.randint(1, 3))))

    def _change_topics(self) -> None:
        topics = self._coordinator.topics
        name = self._random.choice(NAMES)
        if topics.id_of(name) is None:
            topics.create(name, self._random.randint(1, 4))
        elif self._random.random() < 0.7:
            topics.grow(name, len(topics.all_partitions([name])) + 1)
        else:
            topics.delete(name)
        self._coordinator.refresh_topics()

    def _fail_over(self) -> None:
        before = self._coordinator.group()
        self._coordinator.fail_over()
        assert self._coordinator.group() == before

    # -- clients

    def _any(self, members: list[Member]) -> Member | None:
        return self._random.choice(members) if members else None

    def _hear(self, member: Member) -> None:
        self._take(member, member.beat)

    def _take(self, member: Member, act: object) -> None:
        """A member reads a new partition from the committed offset."""
        before = member.reads
        act()  # type: ignore[operator]  # a call without arguments
        for partition in member.reads - before:
            self._positions[member.member_id, partition] = self._committed.get(partition, 0)

    def _send_commit(self, member: Member) -> tuple[StreamlogError | None, ...]:
        topics = self._coordinator.topics
        places = [(p, self._positions[member.member_id, p]) for p in sorted(member.reads)]
        places = [(p, at) for p, at in places if topics.name_of(p.topic_id) is not None]
        if not places:
            return (StreamlogError("nothing to commit"),) if member in self._zombies else ()
        offsets = [
            OffsetToCommit(
                partition=TopicPartition(str(topics.name_of(p.topic_id)), p.partition),
                offset=Offset(at),
                leader_epoch=NO_LEADER_EPOCH,
                metadata="",
            )
            for p, at in places
        ]
        committer = Committer(member_id=member.member_id, epoch=member.epoch)
        errors = self._coordinator.commit(CommitOffsets(group="g", member=committer, offsets=tuple(offsets)))
        for (p, at), error in zip(places, errors, strict=True):
            if error is None:
                assert at >= self._committed.get(p, 0), f"the commit of {p} goes back"
                self._committed[p] = at
        return errors

    # -- what must hold

    def _check_readers(self) -> None:
        readers: dict[GroupPartition, str] = {}
        for member in self._members:
            for partition in member.reads:
                other = readers.setdefault(partition, member.member_id)
                assert other == member.member_id, f"{other} and {member.member_id} read {partition}"

    def _become_quiet(self) -> None:
        for member_id, known in list(self._coordinator.group().members.items()):
            if known.instance_id and self._coordinator.group().is_away(member_id):
                self._coordinator.remove_member(member_id)
        for member in [m for m in self._members if m.member_id not in self._coordinator.group().members]:
            member.epoch = 0
        if not self._members:
            return
        settle(*self._members)
        self._check_readers()
        wanted = self._coordinator.topics.all_partitions({name for m in self._members for name in m.topics})
        assert {p for m in self._members for p in m.reads} == wanted, "a partition has no reader"
        committed = committing.fetch(self._coordinator.group(), None)
        for partition, at in self._committed.items():
            name = self._coordinator.topics.name_of(partition.topic_id)
            if name is not None and (value := committed.get(TopicPartition(name, partition.partition))) is not None:
                assert value.offset >= at
