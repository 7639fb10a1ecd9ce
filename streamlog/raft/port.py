"""The quorum as the rest of the node sees it, and what it asks of a state machine.

Commands are opaque bytes. A command is proposed at the leader, and the answer comes when it has been committed *and*
applied here; every node applies the same commands in the same order. A retried command, told by (client id, sequence),
is applied once and answered with the first answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.voters import Voter, VoterSet

RESULT_BYTES_MAX: Final = 4096
"""What `StateMachine.apply` may return: it is remembered for retries, and part of the snapshot."""
CLIENT_ID_BYTES_MAX: Final = 128
SEQUENCE_MAX: Final = 2**63 - 1

Picture = TypeVar("Picture")


class StateMachine(Protocol[Picture]):
    """What the commands make. Deterministic: the same commands give the same state and the same bytes of it.

    `apply`, `picture` and `install` are called on the event loop and do not wait; `encode` and `decode` run in a
    worker and touch nothing but their arguments.
    """

    def apply(self, index: RaftIndex, command: bytes) -> bytes:
        """Carry out one committed command and return its result, at most RESULT_BYTES_MAX bytes.

        A command that cannot be carried out has a result that says so. Any exception stops the node: the others
        would raise it as well, and a state that differs is worse than a node that stands.
        """
        ...

    def picture(self) -> Picture:
        """The state as an immutable value. Cheap: it is taken while commands wait."""
        ...

    def encode(self, picture: Picture) -> Iterable[bytes]:
        """The picture's bytes, in pieces."""
        ...

    def decode(self, pieces: Sequence[bytes]) -> Picture:
        """What `encode` was given. `pieces` are cut otherwise than `encode` cut them."""
        ...

    def install(self, index: RaftIndex, picture: Picture) -> None:
        """Replace the state by this one, which is that after the entry at `index`."""
        ...


class Applied(Struct, frozen=True, kw_only=True):
    """The answer to a command."""

    index: RaftIndex  # where it stands in the log
    result: bytes
    repeated: bool = False  # it had been applied before, and this is the answer of then


class Leadership(Struct, frozen=True, kw_only=True):
    """Who leads, as this node knows it. It may be out of date: only `read_barrier` tells that a leader still is one."""

    term: RaftTerm
    leader: BrokerId | None  # None: an election is on, or this node hears nobody
    address: str | None
    is_self: bool
    is_ready: bool  # is_self, and all that was committed before is applied: the time to begin to decide


class Quorum(Protocol):
    """One node's access to the quorum. All calls are made on the node's event loop."""

    async def propose(self, command: bytes, *, client_id: str = "", sequence: int = 0) -> Applied:
        """Have `command` committed and applied; at the leader only.

        `client_id` (not empty) with a `sequence` that rises by the client's commands makes it safe to retry, here or
        at another leader. Cancelling leaves the outcome unknown.

        NotControllerError: not carried out; names the leader where it is known. OutcomeUnknownError: this node lost
        its leadership meanwhile, or the sequence is too old to be remembered. ThrottledError: too many are waiting.
        MessageTooLargeError, InvalidRequestError.
        """
        ...

    def submit(self, command: bytes) -> asyncio.Future[Applied]:
        """As `propose`, for a caller whose commands build on one another: they stand in the log in the order of the
        calls. What can be refused at once is raised at once.
        """
        ...

    async def read_barrier(self) -> RaftIndex:
        """Wait until the state machine here has all that was acknowledged, by anybody, before this call.

        At the leader only: NotControllerError, also when it turns out that it no longer leads.
        """
        ...

    def leadership(self) -> Leadership: ...

    def watch_leadership(self) -> AsyncIterator[Leadership]:
        """The present leadership, then each change, until the node stops.

        Changes that a slow reader misses are left out, but never the last one.
        """
        ...

    @property
    def applied_index(self) -> RaftIndex: ...

    def voters(self) -> VoterSet:
        """Those in effect at this node."""
        ...

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        """Up to where each voter is known to hold the log durably; 0: not heard yet. Empty where this node does not
        lead: the leader alone knows.
        """
        ...

    def without_vote(self) -> Collection[BrokerId]:
        """Voters that this node has seen with another directory than the one that has the vote: they lost their disks,
        and do not count until their votes are given back (`replace_voter` with the same id).
        """
        ...

    async def add_voter(self, voter: Voter) -> RaftIndex:
        """Let a running node catch up, then give it a vote; at the leader only. The index of the change.

        DuplicateVoterError, VoterChangeInProgressError, QuorumUnavailableError when it does not catch up in time; and
        those of `propose`.
        """
        ...

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex:
        """Take the vote of a node; the leader may be asked to remove itself, and then hands over."""
        ...

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex:
        """`voter` catches up, then the dead `node_id` is removed, then `voter` added: two changes, one at a time.

        They may be the same node id: a node that came back with an empty disk. The leader cannot replace itself:
        InvalidRequestError.
        """
        ...

    async def transfer_leadership(self) -> None:
        """Ask the follower that is furthest to campaign; returns when it was asked. For a controlled shutdown."""
        ...
