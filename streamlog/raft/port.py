"""The quorum's interface to the rest of the node, and the interface of its state machine.

Commands are opaque bytes. A command is proposed at the leader and answered when it is committed *and* applied there;
every node applies the same commands in the same order. A retried command, identified by (client id, sequence), is
applied once and gets the first answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from streamlog.model import BrokerId, RaftIndex, RaftTerm
from streamlog.raft.voters import Voter, VoterSet

RESULT_BYTES_MAX: Final = 4096
"""The limit of `StateMachine.apply`'s result: it is kept for retries, and is part of the snapshot."""
CLIENT_ID_BYTES_MAX: Final = 128
SEQUENCE_MAX: Final = 2**63 - 1

Picture = TypeVar("Picture")


class StateMachine(Protocol[Picture]):
    """Deterministic: the same commands give the same state and the same bytes.

    `apply`, `picture` and `install` are called on the event loop and do not block; `encode` and `decode` run in a
    worker and access only their arguments.
    """

    def apply(self, index: RaftIndex, command: bytes) -> bytes:
        """Apply one committed command and return its result, at most RESULT_BYTES_MAX bytes.

        A failed command returns a result that says so. Any exception stops the node: the others would raise it as
        well, and a diverged state is worse than a stopped node.
        """
        ...

    def picture(self) -> Picture:
        """The state as an immutable value. Must be cheap: commands wait meanwhile."""
        ...

    def encode(self, picture: Picture) -> Iterable[bytes]:
        """The bytes of a state, in pieces."""
        ...

    def decode(self, pieces: Sequence[bytes]) -> Picture:
        """The inverse of `encode`. The boundaries of `pieces` may differ from those of `encode`."""
        ...

    def install(self, index: RaftIndex, picture: Picture) -> None:
        """Replace the state by this one, which is as of `index`."""
        ...


class Applied(Struct, frozen=True, kw_only=True):
    """The answer to a command."""

    index: RaftIndex  # of its entry in the log
    result: bytes
    repeated: bool = False  # it had been applied before, and this is the first answer


class Leadership(Struct, frozen=True, kw_only=True):
    """The leader as known to this node. It may be stale: only `read_barrier` confirms that a leader still leads."""

    term: RaftTerm
    leader: BrokerId | None  # None: during an election, or this node is isolated
    address: str | None
    is_self: bool
    is_ready: bool  # is_self, and everything committed in earlier terms is applied here


class Quorum(Protocol):
    """One node's access to the quorum. All calls are made on the node's event loop."""

    async def propose(self, command: bytes, *, client_id: str = "", sequence: int = 0) -> Applied:
        """Commit and apply `command`; at the leader only.

        A non-empty `client_id` with a rising `sequence` makes it safe to retry, here or at another leader. Cancelling
        leaves the outcome unknown.

        NotControllerError: not carried out; names the leader if it is known. OutcomeUnknownError: this node lost its
        leadership meanwhile, or the sequence is too old. ThrottledError: too many commands are pending.
        MessageTooLargeError, InvalidRequestError.
        """
        ...

    def submit(self, command: bytes) -> asyncio.Future[Applied]:
        """Like `propose`, for commands that depend on each other: they are in the log in the order of the calls. A
        command that can be refused at once raises at once.
        """
        ...

    async def read_barrier(self) -> RaftIndex:
        """Wait until every command acknowledged before this call, at any node, is applied here.

        At the leader only: NotControllerError, also if it turns out that it no longer leads.
        """
        ...

    def leadership(self) -> Leadership: ...

    def watch_leadership(self) -> AsyncIterator[Leadership]:
        """The current leadership, then each change, until the node stops.

        A slow reader may miss intermediate changes, but never the last one.
        """
        ...

    @property
    def applied_index(self) -> RaftIndex: ...

    def voters(self) -> VoterSet:
        """Those in effect at this node."""
        ...

    def held(self) -> Mapping[BrokerId, RaftIndex]:
        """Up to where each voter is known to hold the log durably; 0: no reply yet. Empty if this node does not lead:
        only the leader knows.
        """
        ...

    def without_vote(self) -> Collection[BrokerId]:
        """Connected voters whose directory is not the one that has the vote: they lost their disks, and do not count
        until their votes are restored (`replace_voter` with the same id).
        """
        ...

    async def add_voter(self, voter: Voter) -> RaftIndex:
        """Let a running node catch up, then give it a vote; at the leader only. The index of the change.

        DuplicateVoterError, VoterChangeInProgressError, QuorumUnavailableError when it does not catch up in time; and
        those of `propose`.
        """
        ...

    async def remove_voter(self, node_id: BrokerId) -> RaftIndex:
        """Remove a voter, or one that is still to be added; a leader that removes itself then hands over."""
        ...

    async def replace_voter(self, node_id: BrokerId, voter: Voter) -> RaftIndex:
        """`voter` catches up, then the failed `node_id` is removed, then `voter` added: two changes, one at a time.

        Both may be the same node id: a node that restarted with an empty disk. The leader cannot replace itself:
        InvalidRequestError. If this leader fails in between, a later one adds `voter`, unless it is removed before.
        Until then no other voter is replaced: VoterChangeInProgressError.
        """
        ...

    async def transfer_leadership(self) -> None:
        """Send TimeoutNow to the most up-to-date follower, without waiting. For a controlled shutdown."""
        ...
