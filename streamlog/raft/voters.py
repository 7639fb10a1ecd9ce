"""The set of voters as a value: ids, addresses, directories. `controller.quorum.voters` is parsed here.

A voter is identified by its id and its directory's id (KIP-853). The directory id is drawn when the directory is
created, so a node that lost its disk is another voter: its votes and acknowledgements do not count for the old one. A
set from the settings has no directory ids yet; the first leader fills them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NewType

from msgspec import Struct
from msgspec.structs import replace

from streamlog.errors import DuplicateVoterError, InvalidRequestError, VoterChangeInProgressError, VoterNotFoundError
from streamlog.model import BrokerId

DirectoryId = NewType("DirectoryId", bytes)
"""16 random bytes; empty: not known yet."""

UNKNOWN_DIRECTORY: Final = DirectoryId(b"")
DIRECTORY_ID_BYTES: Final = 16
VOTERS_MAX: Final = 7
"""Three or five are intended; a change temporarily adds one."""
NODE_ID_MAX: Final = 2**31 - 1
ADDRESS_BYTES_MAX: Final = 255


class Voter(Struct, frozen=True, kw_only=True):
    """InvalidRequestError for values that no node would accept in a message or in the log."""

    node_id: BrokerId
    address: str  # host:port of the node's one server
    directory_id: DirectoryId = UNKNOWN_DIRECTORY

    def __post_init__(self) -> None:
        if not 0 <= self.node_id <= NODE_ID_MAX:
            reason = f"the node id of a voter is {self.node_id}, but must be in 0..{NODE_ID_MAX}"
            raise InvalidRequestError(reason, field="node_id", limit=NODE_ID_MAX)
        length = len(self.address.encode())
        if length > ADDRESS_BYTES_MAX:
            reason = f"the address of voter {self.node_id} has {length} bytes, but may have at most {ADDRESS_BYTES_MAX}"
            raise InvalidRequestError(reason, field="address", limit=ADDRESS_BYTES_MAX)
        if len(self.directory_id) not in (0, DIRECTORY_ID_BYTES):
            reason = f"the directory id of voter {self.node_id} has {len(self.directory_id)} bytes, not"
            raise InvalidRequestError(f"{reason} {DIRECTORY_ID_BYTES}", field="directory_id")

    def is_directory(self, directory_id: DirectoryId) -> bool:
        """Whether a node with this directory is the voter."""
        return self.directory_id in (UNKNOWN_DIRECTORY, directory_id)

    def __str__(self) -> str:
        return f"{self.node_id}@{self.address}"


class VoterSet(Struct, frozen=True):
    """Immutable; by rising node id, each id once. Empty: the node waits to be added."""

    voters: tuple[Voter, ...] = ()
    pending: Voter | None = None  # another voter was removed for it, and it is not added yet

    def __post_init__(self) -> None:
        ids = [voter.node_id for voter in self.voters]
        if self.pending is not None and self.pending.node_id in ids:
            raise InvalidRequestError(f"node {self.pending.node_id} is a voter and to be added", field="voters")
        if ids != sorted(set(ids)):
            raise InvalidRequestError(f"voters must be distinct and in the order of their ids: {ids}", field="voters")
        if (count := len(ids) + (self.pending is not None)) > VOTERS_MAX:
            raise InvalidRequestError(f"{count} voters; at most {VOTERS_MAX}", field="voters", limit=VOTERS_MAX)

    @classmethod
    def of(cls, voters: Iterable[Voter], pending: Voter | None = None) -> VoterSet:
        return cls(tuple(sorted(voters, key=lambda voter: voter.node_id)), pending)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __str__(self) -> str:
        return ",".join(map(str, self.voters))

    @property
    def majority(self) -> int:
        """The number of voters that decide. 1 for the empty set, where none exists."""
        return len(self.voters) // 2 + 1

    def get(self, node_id: BrokerId) -> Voter | None:
        for voter in self.voters:
            if voter.node_id == node_id:
                return voter
        return None

    def with_added(self, voter: Voter) -> VoterSet:
        """DuplicateVoterError when its id is taken."""
        if self.get(voter.node_id) is not None:
            raise DuplicateVoterError(f"node {voter.node_id} is a voter already", voter=voter.node_id)
        return VoterSet.of((*self.voters, voter), self._pending_without(voter.node_id))

    def _pending_without(self, node_id: BrokerId) -> Voter | None:
        return None if self.pending is None or self.pending.node_id == node_id else self.pending

    def with_removed(self, node_id: BrokerId, pending: Voter | None = None) -> VoterSet:
        """`pending`: the voter that replaces it. A pending voter can be removed as well. VoterNotFoundError when it is
        none; InvalidRequestError for the last one; VoterChangeInProgressError if it would forget another pending one.
        """
        other = self._pending_without(node_id)
        if pending is not None and other is not None:
            missing = other.node_id
            raise VoterChangeInProgressError(
                f"node {node_id} cannot be replaced while node {missing} is still to be added in the place of another "
                f"voter: start node {missing}, or cancel that by 'streamlogctl cluster remove-voter {missing}'",
                voter=missing,
            )
        pending = pending or other
        if self.pending is not None and self.pending.node_id == node_id:
            return VoterSet(self.voters, pending)
        if self.get(node_id) is None:
            raise VoterNotFoundError(f"node {node_id} is not a voter; the voters are {self}", voter=node_id)
        if len(self.voters) == 1:
            raise InvalidRequestError("the last voter cannot be removed", field="voter")
        return VoterSet(tuple(voter for voter in self.voters if voter.node_id != node_id), pending)

    def with_directory(self, node_id: BrokerId, directory_id: DirectoryId) -> VoterSet:
        """The same voters, with one more directory known."""
        return self._with_changed(node_id, directory_id=directory_id)

    def with_address(self, node_id: BrokerId, address: str) -> VoterSet:
        """The same voters, one of them at another address."""
        return self._with_changed(node_id, address=address)

    def _with_changed(self, node_id: BrokerId, **fields: Any) -> VoterSet:
        return VoterSet(
            tuple(replace(v, **fields) if v.node_id == node_id else v for v in self.voters),
            self.pending,
        )


def parse_voters(text: str) -> VoterSet:
    """`controller.quorum.voters`: `id@host:port,...` in any order. InvalidRequestError names the part at fault."""
    voters = []
    for part in (part.strip() for part in text.split(",")):
        node_id, at, address = part.partition("@")
        host, _, port = address.rpartition(":")
        if not at or not host or not _is_number(node_id, NODE_ID_MAX) or not _is_number(port, 65_535):
            raise InvalidRequestError(
                f"voter {part!r} is not of the form id@host:port", field="controller.quorum.voters"
            )
        voters.append(Voter(node_id=BrokerId(int(node_id)), address=address))
    ids = [voter.node_id for voter in voters]
    if len(set(ids)) != len(ids):
        raise InvalidRequestError(f"a voter is named twice in {text!r}", field="controller.quorum.voters")
    return VoterSet.of(voters)


def _is_number(text: str, largest: int) -> bool:
    """Python refuses to read numbers of more than 4,300 digits."""
    return len(text) <= 10 and text.isascii() and text.isdigit() and int(text) <= largest
