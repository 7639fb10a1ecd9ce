"""The transactions of one producer (SEMANTICS 7): begin, send, commit or abort, one after another.

    begun (no id yet) --init--> ready --begin--> open --commit--> ready
                                                   |--abort----> ready
                                                   |--a record, an offset is refused--> failed --abort--> ready
                                                   '--prepare--> prepared --commit, abort--> ready
    commit without an answer --> committing --commit again--> ready
    commit that is refused --> failed;  abort that is refused --> over, for good: another producer has the name
    begun --take over from a former self, by its identity--> ready, and what it had open has ended

Every end has the identity of the next transaction in its answer, so sequences begin anew with each, and what is late of
one is refused (KIP-890). A transaction in which nothing was sent is not told of to anybody.

Errors of three kinds. TransactionAbortableError: abort, and begin another one. ProducerFencedError, or another error of
an abort: this producer is over. RequestTimedOutError of a commit: commit again, the outcome is one and the same.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from streamlog.api.calls import Message, Response, UnaryCall, unary
from streamlog.api.errors import from_message
from streamlog.api.pb import batches_pb2, groups_pb2
from streamlog.api.pb import transactions_pb2 as pb
from streamlog.client.connection.addresses import address_of
from streamlog.client.connection.backoff import Backoff
from streamlog.client.connection.connections import ONE_NODE_TIMEOUT_S
from streamlog.client.groups.group_offsets import OffsetAndMetadata, to_commit
from streamlog.client.producer.wire_batch import ProducerIdAndEpoch
from streamlog.errors import (
    InvalidRequestError,
    InvalidTransactionStateError,
    ProducerFencedError,
    RequestTimedOutError,
    StreamlogError,
    TransactionAbortableError,
)
from streamlog.model import Offset, ProducerEpoch, ProducerId, TopicPartition
from streamlog.ports import Clock

_INIT: Final = unary("streamlog.v1.Batches/InitProducerId", batches_pb2.InitProducerIdResponse)
_END: Final = unary("streamlog.v1.Transactions/EndTransaction", pb.EndTransactionResponse)
_OFFSETS: Final = unary("streamlog.v1.Transactions/CommitTransactionOffsets", pb.CommitTransactionOffsetsResponse)


class TransactionPhase(enum.Enum):
    UNINITIALIZED = "not initialized"
    READY = "ready"
    OPEN = "open"
    FAILED = "to be aborted"
    PREPARED = "prepared"
    COMMITTING = "being committed"
    FATAL = "failed permanently"


class TransactionRules(Struct, frozen=True, kw_only=True):
    transactional_id: str
    timeout_ms: int
    two_phase: bool
    patience_s: float  # max.block.ms: how long to ask
    attempt_s: float  # request.timeout.ms


class PreparedTransaction(Struct, frozen=True):
    """What an outside coordinator keeps, to complete the transaction after a crash (KIP-939)."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Of `str`. InvalidRequestError."""
        producer_id, colon, epoch = text.partition(":")
        if not colon or not producer_id.isdecimal() or not epoch.isdecimal():
            raise InvalidRequestError(f"{text!r} is no prepared transaction: it is ID:EPOCH", field="prepared")
        return cls(int(producer_id), int(epoch))


class GroupMetadata(Struct, frozen=True):
    """Whose offsets a transaction commits: fences a member that has been put out."""

    group: str
    member_id: str = ""  # empty: nobody's member; the group must be empty
    member_epoch: int = 0


class Nodes(Protocol):
    """streamlog.client.connection.connections.Connections."""

    async def ask(self, call: UnaryCall[Response], request: Message, *, address: str, timeout_s: float) -> Response:
        """What this node answers. StreamlogError."""
        ...

    async def ask_any(self, call: UnaryCall[Response], request: Message, *, timeout_s: float) -> Response:
        """What one of the nodes answers. StreamlogError."""
        ...


class TransactionManager:
    """Owned by the producer. `settle`: wait until all that was sent is acknowledged or has failed. `drop`: fail all
    that is not. `on_state`: sending is possible, or is not, from now on.
    """

    def __init__(
        self,
        rules: TransactionRules,
        nodes: Nodes,
        clock: Clock,
        backoff: Backoff,
        *,
        settle: Callable[[], Awaitable[None]],
        drop: Callable[[StreamlogError], None],
        on_state: Callable[[TransactionPhase, ProducerIdAndEpoch], None],
    ) -> None:
        self._rules = rules
        self._nodes = nodes
        self._clock = clock
        self._backoff = backoff
        self._settle = settle
        self._drop = drop
        self._on_state = on_state
        self._state = TransactionPhase.UNINITIALIZED
        self._identity = ProducerIdAndEpoch()
        self._touched = False  # something was sent in the open transaction, or might have been
        self._prepared: PreparedTransaction | None = None
        self._error: StreamlogError | None = None  # why it failed, or is over
        self._coordinator: str | None = None  # address of the one that has answered last

    @property
    def state(self) -> TransactionPhase:
        return self._state

    # -- what happens to records

    def check_open(self) -> None:
        """May records be sent now? InvalidTransactionStateError, TransactionAbortableError, ProducerFencedError."""
        if self._state is not TransactionPhase.OPEN:
            raise self._refusal("records are sent inside of a transaction")

    def touch(self) -> None:
        """A batch has been opened."""
        self._touched = True

    def on_failure(self, error: StreamlogError) -> None:
        """A record of the open transaction was not written: it cannot be committed any more. Where it was refused since
        the producer is fenced, the abort tells whether that is so for good.
        """
        if self._state is TransactionPhase.OPEN:
            self._error = error
            self._go(TransactionPhase.FAILED)

    # -- commands

    async def init(self) -> None:
        """Get the producer's id, fence whoever had the name before, and abort what that one has left open; once. Before
        a program reads where its group stands: what is left open holds that. RequestTimedOutError, InvalidRequestError.
        """
        if self._state is TransactionPhase.UNINITIALIZED:
            await self._init(keep_prepared=False)

    async def begin(self) -> None:
        """The first one does `init`. RequestTimedOutError, InvalidTransactionStateError, and what says that this
        producer is over.
        """
        await self.init()
        if self._state is not TransactionPhase.READY:
            raise self._refusal("a transaction begins when the one before has ended")
        self._touched = False
        self._go(TransactionPhase.OPEN)

    async def commit(self) -> None:
        """TransactionAbortableError: abort it. RequestTimedOutError: the outcome is not known, commit again."""
        if self._state is TransactionPhase.OPEN:
            await self._settle()
        if self._state is TransactionPhase.OPEN and not self._touched:
            self._go(TransactionPhase.READY)
            return
        if self._state not in (
            TransactionPhase.OPEN,
            TransactionPhase.PREPARED,
            TransactionPhase.COMMITTING,
        ):
            raise self._refusal("there is nothing to commit")
        self._go(TransactionPhase.COMMITTING)
        await self._end(commit=True)

    async def abort(self) -> None:
        """What was sent in it is not written, or not seen by readers of committed records."""
        if self._state is TransactionPhase.READY:
            return
        if self._state not in (
            TransactionPhase.OPEN,
            TransactionPhase.FAILED,
            TransactionPhase.PREPARED,
        ):
            raise self._refusal("there is nothing to abort")
        if self._state is TransactionPhase.OPEN:
            self._go(TransactionPhase.FAILED)
        self._drop(InvalidTransactionStateError("the transaction was aborted"))
        if not self._touched and self._state is not TransactionPhase.PREPARED:
            self._go(TransactionPhase.READY)
            return
        await self._end(commit=False)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | GroupMetadata
    ) -> None:
        """The group's place, if the transaction is committed. TransactionAbortableError: abort it."""
        self.check_open()
        if not offsets:
            return
        self._touched = True
        who = GroupMetadata(group) if isinstance(group, str) else group
        rows = [
            to_commit(p, at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(Offset(at)))
            for p, at in offsets.items()
        ]
        request = pb.CommitTransactionOffsetsRequest(
            transactional_id=self._rules.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            group=who.group,
            offsets=rows,
        )
        if who.member_id:
            request.member.CopyFrom(groups_pb2.GroupMember(member_id=who.member_id, member_epoch=who.member_epoch))
        try:
            await self._commit_offsets(request)
        except StreamlogError as error:
            self.on_failure(error)
            raise self._refusal("offsets could not be committed") from error

    async def _commit_offsets(self, request: pb.CommitTransactionOffsetsRequest) -> None:
        """Until all are taken. StreamlogError."""

        def check(response: pb.CommitTransactionOffsetsResponse) -> None:
            for result in response.results:
                if result.HasField("error"):
                    raise from_message(result.error)

        await self._ask(_OFFSETS, request, check)

    async def take_over(self, former: ProducerIdAndEpoch) -> bool:
        """In the place of the first `begin`, by who goes on where this producer was before. Its transaction, if it has
        not ended, is aborted: whether it was committed. ProducerFencedError: somebody else has begun under the name.
        """
        self._identity = former
        try:
            answer = await self._ask_for_end(commit=False)
        except ProducerFencedError:
            answer = await self._ask_for_end(commit=True)  # so it was decided, or the producer is over
            committed = True
        else:
            committed = False
        self._on_ended(answer)
        return committed

    # -- two-phase commit

    async def prepare(self) -> PreparedTransaction:
        """All that was sent is written; from now on only `commit` or `abort` is possible, here or after a crash.
        TransactionAbortableError: abort it.
        """
        if not self._rules.two_phase:
            raise InvalidTransactionStateError("only with transaction.two.phase.commit.enable is one prepared")
        return await self.hand_over()

    async def hand_over(self) -> PreparedTransaction:
        """As `prepare`, also without two-phase commit: whoever knows what is returned ends it
        (`end_prepared_transaction`), before its time is over.
        """
        self.check_open()
        await self._settle()
        self.check_open()
        self._prepared = PreparedTransaction(self._identity.producer_id, self._identity.epoch)
        self._go(TransactionPhase.PREPARED if self._touched else TransactionPhase.OPEN)
        return self._prepared

    async def resume(self) -> PreparedTransaction | None:
        """In the place of the first `begin`, after a crash: the transaction that was left open, to be committed or
        aborted; None: there is none.
        """
        if self._state is not TransactionPhase.UNINITIALIZED or not self._rules.two_phase:
            raise self._refusal("a producer with transaction.two.phase.commit.enable resumes before it begins")
        await self._init(keep_prepared=True)
        return self._prepared

    # -- within

    async def _init(self, *, keep_prepared: bool) -> None:
        request = batches_pb2.InitProducerIdRequest(
            transactional_id=self._rules.transactional_id,
            transaction_timeout_ms=self._rules.timeout_ms,
            enable_two_phase_commit=self._rules.two_phase,
            keep_prepared_transaction=keep_prepared,
        )
        answer = await self._ask(_INIT, request)
        self._identity = ProducerIdAndEpoch(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))
        if answer.HasField("ongoing_producer_id"):
            self._prepared = PreparedTransaction(answer.ongoing_producer_id, answer.ongoing_producer_epoch)
            self._touched = True
            self._go(TransactionPhase.PREPARED)
        else:
            self._go(TransactionPhase.READY)

    async def _end(self, *, commit: bool) -> None:
        try:
            answer = await self._ask_for_end(commit=commit)
        except RequestTimedOutError:
            raise
        except StreamlogError as error:
            self._error = error
            self._go(TransactionPhase.FAILED if commit else TransactionPhase.FATAL)
            raise self._refusal("it cannot be ended") from error
        self._on_ended(answer)

    async def _ask_for_end(self, *, commit: bool) -> pb.EndTransactionResponse:
        request = pb.EndTransactionRequest(
            transactional_id=self._rules.transactional_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            commit=commit,
        )
        answer = await self._ask(_END, request)
        self._coordinator = address_of(answer.coordinator) if answer.HasField("coordinator") else None
        return answer

    def _on_ended(self, answer: pb.EndTransactionResponse) -> None:
        self._identity = ProducerIdAndEpoch(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))
        self._prepared = self._error = None
        self._touched = False
        self._go(TransactionPhase.READY)

    async def _ask(
        self,
        call: UnaryCall[Response],
        request: Message,
        check: Callable[[Response], None] = lambda _: None,
    ) -> Response:
        """Of the coordinator, where it is known; of any node, which passes it on; again, until the time is over.
        RequestTimedOutError, what is not retriable.
        """
        deadline = self._clock.monotonic() + self._rules.patience_s
        attempt = 0
        while True:
            left_s = deadline - self._clock.monotonic()
            try:
                response = await self._ask_once(call, request, max(0.001, min(left_s, self._rules.attempt_s)))
                check(response)
                return response
            except StreamlogError as error:
                if not error.retriable:
                    raise
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise RequestTimedOutError(
                        f"the coordinator of {self._rules.transactional_id!r} did not answer within"
                        f" {self._rules.patience_s:g} s (max.block.ms): {error}"
                    ) from error
            attempt += 1
            await self._backoff.wait(attempt, left_s=left_s)

    async def _ask_once(self, call: UnaryCall[Response], request: Message, timeout_s: float) -> Response:
        coordinator = self._coordinator if call is _END else None
        if coordinator is None:
            return await self._nodes.ask_any(call, request, timeout_s=timeout_s)
        self._coordinator = None  # until it answers: its machine may be gone
        timeout_s = min(timeout_s, ONE_NODE_TIMEOUT_S)
        return await self._nodes.ask(call, request, address=coordinator, timeout_s=timeout_s)

    def _go(self, state: TransactionPhase) -> None:
        self._state = state
        self._on_state(state, self._identity)

    def _refusal(self, what: str) -> StreamlogError:
        error = self._error
        if self._state is TransactionPhase.FATAL and error is not None:
            return error.restored(error.message, error.details)
        if self._state is TransactionPhase.FAILED:
            why = "it was given up" if error is None else f"{error.code}: {error.message}"
            return TransactionAbortableError(f"abort the transaction, and begin another one: {why}", cause=str(error))
        return InvalidTransactionStateError(f"{what}; the transaction of this producer is {self._state.value}")
