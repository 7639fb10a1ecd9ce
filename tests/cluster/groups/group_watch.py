"""What must hold of groups, checked as it happens, by what their members alone see (FAULTS: I6, I14 to I16).

    I6   what a member is given of a partition, as long as it has it, goes on where it was
    I14  once a commit was acknowledged, no later read or acknowledged commit of that offset is below it; a member whose
         partition another one was assigned in a later epoch commits nothing of it
    I15  in one epoch of a group a partition is had by one member; and no member gets a partition as long as another
         one has it who is still a member, as the coordinator's answer to a later heartbeat of that one shows
    I16  when a commit is acknowledged, everything below it has been given to some member

Members are compared by what the group knows them by: a static one by its instance id, for its second life has what the
first one had, in the same epoch. A member *has* a partition from `ConsumerMembership.own` on: before anything of it is
read, until nothing is read any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from streamlog.client.groups.consumer_membership import ConsumerMembership, MembershipState
from streamlog.client.groups.group_offsets import OffsetAndMetadata
from streamlog.model import Offset, TopicId, TopicPartition
from streamlog.sim.process import Process


class Seen(Struct):
    """One consumer in one process."""

    process: Process
    member: ConsumerMembership
    owner: str  # what the group knows it by
    had: dict[TopicPartition, TopicId] = field(default_factory=dict)  # when it was looked at last
    expected: dict[TopicPartition, Offset] = field(default_factory=dict)  # what it will be given next
    sent_at: float = 0.0  # its last heartbeat
    suspicions: list[tuple[float, str]] = field(default_factory=list)  # of this membership: since when, what

    @property
    def group(self) -> str:
        return self.member._coordinator.group

    def is_member(self) -> bool:
        return self.process.alive and self.member.state is MembershipState.JOINED and self.member.epoch > 0


class Begun(Struct, frozen=True):
    """A commit that is under way: what was known when it began."""

    group: str
    process: Process | None
    floors: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, tuple[int, str]]  # the latest epoch in which a member had it, and which


class GroupWatch:
    """Called by the eyes (`group_eyes`) and by the members."""

    def __init__(self, now: Callable[[], float], wrong: Callable[[str, str], None], *, kept: frozenset[str]) -> None:
        """`kept`: topics that are never deleted."""
        self._now = now
        self._wrong = wrong
        self._kept = kept
        self._seen: dict[ConsumerMembership, Seen] = {}
        self._claims: dict[tuple[str, int, TopicId, int], str] = {}
        self._latest: dict[tuple[str, TopicPartition], tuple[int, str]] = {}
        self._floors: dict[tuple[str, TopicPartition], Offset] = {}
        self._given: dict[tuple[str, TopicPartition], set[Offset]] = {}
        self._frontiers: dict[tuple[str, TopicPartition], Offset] = {}
        self.commits = 0
        self.rebalances = 0  # partitions that a member got

    # Members.

    def seen(self, process: Process, member: ConsumerMembership) -> Seen:
        found = self._seen.get(member)
        if found is None:
            owner = member._rules.instance_id or str(process)
            found = self._seen[member] = Seen(process, member, owner)
        return found

    def living(self, group: str) -> Iterator[Seen]:
        for one in self._seen.values():
            if one.process.alive and one.group == group:
                yield one

    def owners(self, group: str) -> dict[TopicPartition, list[str]]:
        """By those who are members, as far as they know."""
        found: dict[TopicPartition, list[str]] = {}
        for one in self.living(group):
            if one.is_member():
                for partition in one.member.owned:
                    found.setdefault(partition, []).append(one.owner)
        return found

    def beats(self, process: Process, member: ConsumerMembership) -> None:
        """A heartbeat goes out."""
        self.seen(process, member).sent_at = self._now()

    def answered(self, process: Process, member: ConsumerMembership) -> None:
        one = self.seen(process, member)
        if not one.is_member():
            return
        for since, what in one.suspicions:
            if one.sent_at > since:
                self._wrong("I15", what)
        one.suspicions = [(since, what) for since, what in one.suspicions if one.sent_at <= since]
        self._claim(one)

    def owns(self, process: Process, member: ConsumerMembership) -> None:
        """What it has may have changed."""
        one = self.seen(process, member)
        new = {partition: topic for partition, topic in member.owned.items() if one.had.get(partition) != topic}
        one.had = dict(member.owned)
        for partition, topic in new.items():
            self.rebalances += 1
            one.expected.pop(partition, None)
            for other in self.living(one.group):
                # In a later epoch than this one's it has it by right: this one was removed, and does not know yet.
                earlier = other.is_member() and other.member.epoch <= member.epoch
                if earlier and other.owner != one.owner and other.had.get(partition) == topic:
                    text = f"group {one.group}, epoch {member.epoch}: {one.owner} got {partition} at {self._now():.3f}"
                    other.suspicions.append(
                        (self._now(), f"{text}, when {other.owner} had it, a member in epoch {other.member.epoch}")
                    )
        self._claim(one)

    def membership_over(self, process: Process, member: ConsumerMembership) -> None:
        self.seen(process, member).suspicions.clear()

    def _claim(self, one: Seen) -> None:
        epoch = one.member.epoch
        if not one.is_member():
            return
        for partition, topic in one.member.owned.items():
            first = self._claims.setdefault((one.group, epoch, topic, partition.partition), one.owner)
            if first != one.owner:
                self._wrong("I15", f"group {one.group}, epoch {epoch}: {first} and {one.owner} have {partition}")
            if epoch >= self._latest.get((one.group, partition), (0, ""))[0]:
                self._latest[one.group, partition] = epoch, one.owner

    # Records.

    def given(
        self, group: str, process: Process, member: ConsumerMembership, partition: TopicPartition, offset: Offset
    ) -> None:
        """A member was handed out this record."""
        if partition.topic not in self._kept:
            return
        one = self.seen(process, member)
        expected = one.expected.get(partition, offset)
        if offset != expected:
            self._wrong("I6", f"group {group}: {process} was given {partition} at {offset} instead of {expected}")
        one.expected[partition] = Offset(offset + 1)
        given = self._given.setdefault((group, partition), set())
        given.add(offset)
        frontier = self.frontier(group, partition)
        while frontier in given:
            frontier = Offset(frontier + 1)
        self._frontiers[group, partition] = frontier

    def frontier(self, group: str, partition: TopicPartition) -> Offset:
        """Everything below was given to a member."""
        return self._frontiers.get((group, partition), Offset(0))

    # Offsets.

    def begins(self, group: str, process: Process | None) -> Begun:
        floors = {partition: offset for (name, partition), offset in self._floors.items() if name == group}
        latest = {partition: had for (name, partition), had in self._latest.items() if name == group}
        return Begun(group, process, floors, latest)

    def committed(self, begun: Begun, epoch: int | None, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Acknowledged. `epoch`: the member's; None: no member."""
        group = begun.group
        who = next((one.owner for one in self.living(group) if one.process is begun.process), str(begun.process))
        for partition, at in offsets.items():
            if partition.topic not in self._kept:
                continue
            self.commits += 1
            text = f"group {group}: {who} in epoch {epoch} committed {partition} at {at.offset}"
            if at.offset < begun.floors.get(partition, 0):
                self._wrong("I14", f"{text}, after {begun.floors[partition]} was committed")
            latest, owner = begun.latest.get(partition, (0, who))
            if epoch is not None and epoch < latest and owner != who:
                self._wrong("I14", f"{text}, which {owner} had in epoch {latest} before")
            if at.offset > self.frontier(group, partition):
                self._wrong("I16", f"{text}, and no member was given {self.frontier(group, partition)}")
            key = group, partition
            self._floors[key] = max(self._floors.get(key, Offset(0)), at.offset)

    def fetched(self, begun: Begun, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """The coordinator says that this is committed."""
        for partition, floor in begun.floors.items():
            if partition in offsets:
                at = offsets[partition]
                found = Offset(0) if at is None else at.offset
                if found < floor:
                    text = f"group {begun.group}: {begun.process} fetched {found} of {partition}"
                    self._wrong("I14", f"{text}, after {floor} was committed")
